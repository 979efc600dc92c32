"""`curator profile` and `curator call`: one stage watched over a sample, and its calls made again alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from curator.api.errors import CuratorError
from curator.api.format import count, duration, plural, rate, share, size
from curator.cli.loading import inputs_argument, load_recipe, recipe_options, told_what_reads
from curator.observe.report.terminal import PLAIN_WIDTH

if TYPE_CHECKING:
    from curator.trial.profile import StageProfile

FUNCTIONS_MAX = 15


@click.command(short_help="Show where the time of a stage goes.")
@recipe_options
@inputs_argument
@click.option("--stage", required=True, metavar="NAME", help="The stage to watch, as the recipe calls it.")
@click.option("--probe", type=click.IntRange(min=1), default=500, metavar="RECORDS", show_default=True,
              help="How many records from all over the input.")
@click.option("--record", metavar="FILE", help="Keep the batches of its calls, for `curator call FILE`.")
def profile(recipe: str, inputs: tuple[str, ...], settings: tuple[str, ...], out: str | None, stage: str,
            probe: int, record: str | None) -> None:
    """Run a sample of what RECIPE reads, or of the INPUTs, in this process, watch one stage, and show where
    its time goes.

    Writes nothing but FILE.
    """
    from curator.recipe import dump
    from curator.trial.calls import RecordedCalls
    from curator.trial.profile import profile as watch
    from curator.trial.sample import find

    pipeline = load_recipe(recipe, settings, out, inputs)
    find(pipeline, stage)
    calls = RecordedCalls(record, dump(pipeline), stage) if record else nullcontext()
    with told_what_reads(recipe, inputs, settings), calls as kept:
        found = watch(pipeline, stage, probe, kept)
    for line in _lines(found):
        click.echo(line)
    if record:
        click.echo(f"{plural(found.recorded, 'call')} kept in {record}: curator call {record}")


@click.command(short_help="Call a stage again with recorded batches.")
@click.argument("file")
@click.option("--times", type=click.IntRange(min=1), default=1, show_default=True,
              help="How often each call is made.")
def call(file: str, times: int) -> None:
    """Call a stage again, alone and in this process, with the batches that `curator profile --record` kept in
    FILE.

    For a debugger, another profiler, or to try a change of its code.
    """
    from curator.trial.calls import call_again, recorded
    from curator.worker.imports import hold_back

    hold_back()
    stage, batches = recorded(file)
    if not batches:
        raise CuratorError(f"{file} holds no call")
    click.echo(f"{stage.name}: {plural(len(batches), 'call')}")
    rows, seconds = 0, 0.0
    for number, made in enumerate(call_again(stage, batches, times), 1):
        ports = ", ".join(f"{port} {count(n)}" for port, n in made["out"].items())
        click.echo(f"{number:>6}  {count(made['rows']):>9} in  {duration(made['seconds']):>9}  {ports}")
        rows, seconds = rows + made["rows"], seconds + made["seconds"]
    click.echo(f"{count(rows)} records in {duration(seconds)}, {rate(rows / max(seconds, 1e-9))} records/s")


def _lines(found: StageProfile) -> Iterator[str]:
    seconds, rows = found.seconds, max(1, found.rows)
    yield f"{found.stage}: {plural(found.rows, 'record')} in {plural(len(found.calls), 'call')}"
    waits = max(0.0, seconds - found.cpu_s)
    yield (f"{duration(seconds)}, {rate(rows / max(seconds, 1e-9))} records/s, {1000 * seconds / rows:.3g} "
           f"ms a record; {share(waits, seconds) or '0%'} of it waiting, not computing")
    first = found.calls[0]
    yield (f"setup {duration(found.setup_s)}; first call {duration(first.seconds)} for "
           f"{plural(first.rows, 'record')}")
    if found.memory > 0:
        yield f"memory grew by {size(found.memory)} while it worked"
    if found.gpu_memory:
        yield f"GPU memory {size(found.gpu_memory)} at most, of what torch gave out, the model with it"
    yield ""
    own = sum(function[2] for function in found.functions)
    yield f"{'own time':>9}{'share':>8}{'with calls':>12}{'calls':>11}  where"
    for place, calls, alone, whole in found.functions[:FUNCTIONS_MAX]:
        room = PLAIN_WIDTH - 42
        where = place if len(place) <= room else "…" + place[1 - room:]
        yield f"{duration(alone):>9}{share(alone, own):>8}{duration(whole):>12}{count(calls):>11}  {where}"
    if (rest := len(found.functions) - FUNCTIONS_MAX) > 0:
        left = sum(function[2] for function in found.functions[FUNCTIONS_MAX:])
        yield f"{duration(left):>9}{share(left, own):>8}{'':>12}{'':>11}  {plural(rest, 'more function')}"
