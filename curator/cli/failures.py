"""The command `failures`."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

import click

MOST = 20  # groups that are shown
LINES = 3  # of a message


@click.command(short_help="Show what failed in a run, by stage and error.")
@click.argument("folder", metavar="OUT")
@click.option("--all", "everything", is_flag=True, help=f"All groups, not the first {MOST}.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with a whole traceback of each.")
def failures(folder: str, everything: bool, as_json: bool) -> None:
    """Show what lies in OUT/failed by stage and error, with an example of each. Numbers, paths, ids and what
    stands in quotation marks are folded, so that what failed alike is together.
    """
    from curator.api.format import count, plural, shorten
    from curator.results.look.failures import failures as find
    from curator.results.output import RunOutput

    output = RunOutput.open(folder)
    found = find(output)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False))
        return
    script = "__main__." in output.recipe  # a stage of a script: no other process has its code
    lost = output.stats["records"]["failed"] - sum(one.count for one in found)
    for one in found if everything else found[:MOST]:
        first, *more = [line for line in one.pattern.splitlines() if line.strip()][:LINES] or ["no message"]
        click.secho(f"{count(one.count)} in {one.stage}: {shown(first, 200)}", bold=True)
        for line in more:
            click.echo(f"    {shown(line, 200)}")
        units = shown(one.first, 60) + (f" to {shown(one.last, 60)}" if one.units > 1 else "")
        click.echo(f"    {plural(one.units, 'unit')}: {units}")
        click.echo(f"    for example {shorten(shown(one.example['id'] or '', 200), 66, keep_end=True)}")
        if one.line:
            click.echo(f"    {shown(one.line, 300)}")
        click.echo(f"    {_again(folder, script, one.stage, one.text)}\n")
    if not everything and len(found) > MOST:
        click.echo(f"{plural(len(found) - MOST, 'group')} more: --all\n")
    if lost > 0:
        click.echo(f"{plural(lost, 'record')} failed that are not in failed/: the recipe discards them, or "
                   "gives them to another stage.")
    elif not found:
        click.echo("Nothing failed.")
    if found and output.stats["status"] == "stopped":
        click.echo("The run has stopped early: the same `curator run` does again what was not finished; then "
                   "replay what is left.")
    elif found:
        click.echo(f"All of it, after a fix: {_again(folder, script)}")


def _again(folder: str, script: bool, stage: str = "", error: str = "") -> str:
    """What runs a group again, or all that failed."""
    if script:
        given = {"stage": stage, "error": error}
        values = ", ".join(f"{name}={value!r}" for name, value in given.items() if value)
        return f"in its script: pipeline.run(replay=Replay({values}))"
    return (f"curator replay {shlex.quote(folder)}" + (f" --stage {shlex.quote(stage)}" if stage else "")
            + (f" --error {shlex.quote(error)}" if error else ""))


def shown(text: str, most: int) -> str:
    """A text of whatever origin on one line of a terminal."""
    from curator.api.format import printable, shorten

    return shorten(printable(text), most)
