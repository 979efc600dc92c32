"""The command `trace`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from curator.cli.ends import json_option, show_json, shown, wrapped
from curator.cli.loading import run_argument
from curator.observe.report.terminal import PLAIN_WIDTH

if TYPE_CHECKING:
    from curator.results.look.trace import Found, Life

VALUE = 100  # characters of a value


@click.command(short_help="Show the life of a record: what each stage did to it, and why it went.")
@run_argument
@click.argument("wanted", metavar="ID")
@click.option("--rerun", is_flag=True,
              help="Run the record through the recipe again, and show what each stage changes.")
@json_option
def trace(folder: str, wanted: str, rerun: bool, as_json: bool) -> None:
    """Show what became of a record of the run in the folder RUN: by its id, its URL or path, or a piece of
    its text. Of several that are meant there is a list.
    """
    from curator.results.look.trace import FOUND_MAX, find, lives
    from curator.results.look.trace import rerun as run_again
    from curator.results.output import RunOutput

    output = RunOutput.open(folder)
    found = find(output, wanted)
    if len(found) > 1:
        if as_json:
            show_json(found)
            return
        many = "Many" if len(found) >= FOUND_MAX else str(len(found))
        click.echo(f"{many} records are meant; give the id of one:")
        for one in found:
            click.echo(f"  {named(one)}")
            if one.excerpt:
                click.echo(f"      {shown(one.excerpt, PLAIN_WIDTH - 6)}")
        return
    made = lives(output, found[0].id)
    if as_json:
        show_json(made)
        return
    for life in made:
        for line in wrapped(told(life)):
            click.echo(line)
    if rerun:
        from curator.observe.preview import show_preview

        show_preview(run_again(output, made[0]))


def told(life: Life) -> Iterator[str]:
    """A life, line by line."""
    yield click.style(shown(life.id, 200), bold=True)
    yield f"  {end(life)}"
    yield f"  from {shown(life.source, 200)}"
    for one in life.parents:
        yield f"  child of {named(one)}"
    for step in life.passed:
        at = step.stage == life.stage and life.place != "data"
        if at or step.columns or step.rewritten:
            yield f"  {step.stage}" + (f": {life.place}" if at else "")
        texts = {name: value for name, value in step.columns.items() if isinstance(value, str)}
        for name, value in texts.items():
            yield f"      {name} = {plain(value)}"
        others = [f"{name}={plain(value)}" for name, value in step.columns.items() if name not in texts]
        yield from textwrap.wrap(", ".join(others), PLAIN_WIDTH, initial_indent=" " * 6,
                                 subsequent_indent=" " * 6)
        for name, later in step.rewritten.items():
            yield f"      {name}, which {later} made anew"
        if at:
            yield from why(life)
    row = f", row {life.row}" if life.row is not None else ""
    yield f"  {life.place} in {shown(life.file, 200)}{row}"
    for one in life.children:
        yield f"  parent of {named(one)}"
    if life.children_count > len(life.children):
        yield f"  and of {life.children_count - len(life.children)} more"
    for one in life.copies:
        yield f"  its duplicate: {named(one)}"
    if life.copies_count > len(life.copies):
        yield f"  and {life.copies_count - len(life.copies)} more"


def end(life: Life) -> str:
    """What became of a record, in a line."""
    if life.place == "data":
        return "written"
    if life.place == "duplicate":
        return f"duplicate in {life.stage}" + (f" of {named(life.others[0])}" if life.others else "")
    why = shown(next(iter((life.why or "").splitlines()), ""), 100)
    word = "by" if life.place == "dropped" else "in"
    return f"{life.place} {word} {life.stage}" + (f": {why}" if why else "")


def why(life: Life) -> Iterator[str]:
    """Why a record is not in the data."""
    if life.place == "duplicate":
        for one in life.others:
            yield f"      equal to {named(one)}"
        return
    for line in (life.why or "").splitlines()[:3]:
        yield f"      {shown(line, 300)}"
    if life.condition:
        yield f"      when {shown(life.condition, 300)}"
        for name, value in life.values.items():
            yield f"      {name} = {plain(value)}"
    if life.line:
        yield f"      {shown(life.line, 300)}"


def named(one: Found) -> str:
    """A record and where it lies."""
    if not one.place:
        return f"{shown(one.id, 200)} (not kept)"
    return f"{shown(one.id, 200)} ({one.place}{f', {one.stage}' if one.place != 'data' else ''})"


def plain(value: Any) -> str:
    """A value on one line; of a text how long it is."""
    if value is None:
        return "null"
    if isinstance(value, str):
        more = f" ({len(value):,} characters)" if len(value) > VALUE else ""
        return f"{shown(value, VALUE)!r}{more}"
    return f"{value:.6g}" if isinstance(value, float) else shown(str(value), VALUE)
