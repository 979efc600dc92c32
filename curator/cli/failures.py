"""What failed: the commands `failures` and `replay`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from curator.api.format import count, plural, shorten
from curator.cli.ends import end, quiet_option, run_and_show, show_json, shown, workers_option
from curator.cli.loading import run_argument

if TYPE_CHECKING:
    from curator.run.replay import Replay

MOST = 20  # groups that are shown
LINES = 3  # of a message


@click.command(short_help="Show what failed in a run, by stage and error.")
@run_argument
@click.option("--all", "everything", is_flag=True, help=f"All groups, not the first {MOST}.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with a whole traceback of each.")
def failures(folder: str, everything: bool, as_json: bool) -> None:
    """Show what lies in RUN/failed by stage and error, with an example of each. Numbers, paths, ids and what
    stands in quotation marks are folded, so that what failed alike is together.
    """
    from curator.results.look.failures import failures as find
    from curator.results.output import RunOutput

    output = RunOutput.open(folder)
    found = find(output)
    if as_json:
        show_json(found)
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
        name, source = (one.example[key] or "" for key in ("id", "source"))
        for word, said in (("for example", name), ("from", "" if source in name else source)):
            if said:
                click.echo(f"    {word} {shorten(shown(said, 200), 66, keep_end=True)}")
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


@click.command(short_help="Run again what failed, after a fix.")
@run_argument
@click.option("--stage", metavar="NAME", help="Only what failed in this stage.")
@click.option("--error", metavar="TEXT", default="", help="Only what failed with this text in its error.")
@click.option("--keep-passed", is_flag=True,
              help="Keep the results of what passed, though code of a stage has changed since.")
@click.option("--recipe", metavar="FILE", help="The run's recipe, where that in RUN has no secrets.")
@workers_option
@quiet_option
def replay(folder: str, stage: str | None, error: str, keep_passed: bool, recipe: str | None,
           workers: int | None, quiet: bool) -> None:
    """Run again the records in RUN/failed, each from the stage where it failed, into the same output.

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
    for stage, rows in asked.rows.items():
        yield f"{plural(rows, 'record')} that had failed in {stage} ran again from there."
    for (stage, why), rows in asked.whole.items():
        yield f"For {plural(rows, 'record')} that had failed in {stage} the unit was read again: {why}."
    if asked.units:
        yield f"Read again: {plural(asked.units, 'unit')}."
    if not asked.rows and not asked.whole and ok:
        which = "".join([f" in {asked.stage}" if asked.stage else "",
                         f" with {asked.error!r} in its error" if asked.error else ""])
        yield f"Nothing{which or ' in failed/'} is left to run again."
    if failed:
        yield f"Failed now: {plural(failed, 'record')}. Why: curator failures {folder}"
