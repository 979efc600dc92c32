"""What commands share that run a recipe: what they show, what they ask, and how they end."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from curator.api.format import printable, shorten
from curator.observe.report.terminal import PLAIN_WIDTH, WIDTH_MAX

if TYPE_CHECKING:
    from curator.run.run import Result

# as shells have it: 128 and the number of the signal; anything else gives 2
EXITS = {"interrupted": 130, "terminated": 143}

workers_option = click.option("--workers", type=click.IntRange(min=0),
                              help="Cores to use [default: all]. 0: work in this process, to debug.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="No progress and no funnel.")
json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


def run_and_show(pipeline: Any, *, quiet: bool = False, stages: bool = False,
                 watch: Callable[[Mapping[str, Any]], None] | None = None, **options: Any) -> Result:
    """Run a pipeline with progress, and show the funnel; nothing with `quiet`. `watch`: who is shown the run
    as well; `options`: as `run` takes them. Ray Data has progress bars of its own."""
    from curator.observe.live.progress import Progress
    from curator.observe.report.funnel import show_funnel
    from curator.run.run import run

    theirs = options.get("engine") == "ray-data"
    if theirs and quiet:
        os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    progress = None if quiet or theirs else Progress(stages=stages)
    tellers = [tell for tell in (progress and progress.update, watch) if tell]

    def tell_all(shot: Mapping[str, Any]) -> None:
        for tell in tellers:
            tell(shot)

    try:
        result = run(pipeline, watch=tell_all if tellers else None, **options)
    finally:
        if progress:
            progress.close()
    if not quiet:
        show_funnel(result.stats)
    return result


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """Lines in the width of the terminal, 80 elsewhere: what goes on stands a little further in. A word that
    is wider, such as a path, stays whole."""
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX) if sys.stdout.isatty() else PLAIN_WIDTH
    for line in lines:
        outer = line[:len(line) - len(line.lstrip())]
        parts = textwrap.wrap(line.lstrip(), width, initial_indent=outer, subsequent_indent=outer + " " * 4,
                              break_long_words=False, break_on_hyphens=False)
        yield "\n".join(parts) if len(line) > width else line


def shown(text: str, most: int) -> str:
    """A text of whatever origin on one line of a terminal."""
    return shorten(printable(text), most)


def show_json(answer: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(answer, enc_hook=str), indent=1))


def asked(lost: str) -> bool:
    """Whether somebody sits there and says yes."""
    return sys.stdin.isatty() and sys.stderr.isatty() and click.confirm(f"{lost}. Go on?", err=True)


def end(result: Result) -> None:
    """Say what went wrong, if something did, and end with its number."""
    if not result.ok:
        click.echo(f"curator: {result.error}", err=True)
        sys.exit(EXITS.get(result.stats["stopped_by"], 2))
