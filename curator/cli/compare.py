"""The command `compare`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from curator.api.format import printable
from curator.cli.ends import json_option, show_json, shown, wrapped
from curator.cli.loading import complete_runs

if TYPE_CHECKING:
    from curator.results.look.compare import Comparison, Score

LINES = 40  # of a diff
INPUTS = 5  # that are named of each kind
SCORES = 30
EXAMPLES = 3
MOVES = 12


@click.command(short_help="Show what differs between two runs, and why.")
@click.argument("one", metavar="RUN1", shell_complete=complete_runs)
@click.argument("two", metavar="RUN2", shell_complete=complete_runs)
@click.option("--all", "everything", is_flag=True, help="All that differs, and ten examples of each.")
@json_option
def compare(one: str, two: str, everything: bool, as_json: bool) -> None:
    """Show what differs between the runs in the folders RUN1 and RUN2: recipe, code, input, funnel, scores
    and records; at the end, in one sentence, whether they have the same records.
    """
    from curator.results.look.compare import compare as ask
    from curator.results.output import RunOutput

    answer = ask(RunOutput.open(one), RunOutput.open(two))
    if as_json:
        show_json(answer)
        return
    for line in wrapped(told(answer, everything)):
        click.echo(line)


def told(answer: Comparison, everything: bool) -> Iterator[str]:
    """A comparison, line by line."""
    if answer.recipe:
        yield "recipe"
        for line in _some(answer.recipe, LINES, everything):
            yield "  " + printable(line[:200])
    if answer.code:
        yield "code"
        yield from (f"  {shown(name, 40)}: {a} -> {b}" for name, (a, b) in answer.code.items())
    for what, files in answer.inputs.items():
        if files:
            yield f"input {what}: {len(files):,}"
            yield from (f"  {shown(file, 200)}" for file in _some(files, INPUTS, everything))
    yield from _funnel(answer)
    yield from _scores(answer, everything)
    if answer.moved:
        yield "records"
    for moved in answer.moved if everything else answer.moved[:MOVES]:
        ends = [shown("not there" if end is None else end, 120) for end in (moved.before, moved.after)]
        yield f"  {moved.count:,}: {ends[0]} -> {ends[1]}"
        yield from (f"      {shown(one, 100)}" for one in moved.examples[:None if everything else EXAMPLES])
    if not everything and len(answer.moved) > MOVES:
        yield f"  … and {len(answer.moved) - MOVES:,} more kinds: --all"
    yield answer.verdict


def _funnel(answer: Comparison) -> Iterator[str]:
    yield f"{'funnel: records in':<48}{'first':>12}{'second':>12}"
    for stage, what, a, b in answer.funnel:
        if what == "in" or a != b:
            name = shown(stage, 46) if what == "in" else f"    {shown(what, 40)}"
            numbers = "".join(f"{'-' if n is None else f'{n:,}':>12}" for n in (a, b))
            yield f"  {name:<46}{numbers}{'' if a == b else '  *'}"


def _scores(answer: Comparison, everything: bool) -> Iterator[str]:
    # Means of the same values differ in their last digits when they are added in another order.
    found = [s for s in answer.scores if s.moved or any(len(set(_pair(s, at))) > 1 for at in (None, 1))]
    if found:
        yield f"{'scores':<28}{'mean':>21}{'median':>21}{'moved':>8}"
    for score in found if everything else found[:SCORES]:
        moved = "" if score.moved is None else f"{score.moved:.1%}"
        pairs = "".join(f"{' '.join(_pair(score, at)):>21}" for at in (None, 1))
        yield f"  {shown(score.column, 25):<26}{pairs}{moved:>8}"
    if not everything and len(found) > SCORES:
        yield f"  … and {len(found) - SCORES} more: --all"


def _pair(score: Score, at: int | None) -> list[str]:
    values = score.means if at is None else [q[at] if q else None for q in score.quantiles]
    return ["-" if value is None else f"{value:.4g}" for value in values]


def _some(lines: list[str], most: int, everything: bool) -> Iterator[str]:
    yield from lines if everything else lines[:most]
    if not everything and len(lines) > most:
        yield f"… and {len(lines) - most:,} more: --all"
