"""The command `replay`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from curator.cli.ends import end, run_and_show

if TYPE_CHECKING:
    from curator.run.replay import Replay


@click.command(short_help="Run again what failed, after a fix.")
@click.argument("folder", metavar="OUT")
@click.option("--stage", metavar="NAME", help="Only what failed in this stage.")
@click.option("--error", metavar="TEXT", default="", help="Only what failed with this text in its error.")
@click.option("--keep-passed", is_flag=True,
              help="Keep the results of what passed, though code of a stage has changed since.")
@click.option("--recipe", metavar="FILE", help="The run's recipe, where that in OUT has no secrets.")
@click.option("--workers", type=click.IntRange(min=0), help="Cores to use [default: all].")
@click.option("--quiet", "-q", is_flag=True, help="No progress and no funnel.")
def replay(folder: str, stage: str | None, error: str, keep_passed: bool, recipe: str | None,
           workers: int | None, quiet: bool) -> None:
    """Run again the records in OUT/failed, each from the stage where it failed, into the same output.

    The numbers of the run are then those of one in which they had not failed; what fails again stays in
    failed/ with its new error. A run that is not finished is continued first.
    """
    from curator.recipe import load
    from curator.results.output import RunOutput
    from curator.run.replay import Replay
    from curator.worker.imports import hold_back

    hold_back()
    output = RunOutput.open(folder)
    if stage is not None and not output.folder.exists(f"failed/{stage}"):
        output.stage(stage)  # it says which there are
    asked = Replay(stage=stage, error=error, keep_passed=keep_passed)
    result = run_and_show(load(recipe or output.recipe, {"out": folder}), quiet=quiet, workers=workers,
                          replay=asked)
    for line in told(asked, result.records["failed"], folder, result.ok):
        click.echo(line)
    end(result)


def told(asked: Replay, failed: int, folder: str, ok: bool) -> Iterator[str]:
    """What was done, in sentences. `ok`: the run has ended well."""
    from curator.api.format import plural

    for stage, rows in asked.rows.items():
        yield f"{plural(rows, 'record')} ran again from {stage}, where they had failed."
    for (stage, why), rows in asked.whole.items():
        yield f"{plural(rows, 'record')} that had failed in {stage} were read again with their unit: {why}."
    if asked.units:
        yield f"{plural(asked.units, 'unit')} were read again."
    if not asked.rows and not asked.whole and ok:
        which = "".join([f" in {asked.stage}" if asked.stage else "",
                         f" with {asked.error!r} in its error" if asked.error else ""])
        yield f"Nothing{which or ' in failed/'} is left to run again."
    if failed:
        yield f"{plural(failed, 'record')} have failed now: curator failures {folder}"
