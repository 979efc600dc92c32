"""`curator new`: a pack or a recipe to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.group(short_help="Begin a pack or a recipe of your own.")
def new() -> None:
    """Begin a pack or a recipe of your own: files that run as they are, to be changed."""


@new.command("pack", short_help="Begin a pack: a stage, a rule set, a recipe, tests.")
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
def new_pack(name: str, folder: Path | None) -> None:
    """Write the files of a pack NAME into FOLDER [default: curator-NAME]: one stage, one rule set, one
    recipe, tests. It installs and passes its tests as it is. Nothing is overwritten."""
    from curator.scaffold.pack import new_pack as make

    place, made = make(name, folder)
    for path in made:
        click.echo(path)
    click.echo(f"\nNow: cd {shlex.quote(str(place))} && pip install -e . pytest && python -m pytest"
               f"\nThen: curator run {name}/clean examples/texts.jsonl --out out/")


@new.command("recipe", short_help="Begin a recipe, for the input that is there.")
@click.argument("name")
@click.option("--read", metavar="PATH",
              help="What it reads: a table (JSON Lines, Parquet, CSV, …), or with --like what that one reads "
                   "[default: a few records, written beside it].")
@click.option("--like", metavar="RECIPE", help="Copy this packaged recipe, such as text/web.")
def new_recipe(name: str, read: str | None, like: str | None) -> None:
    """Write a commented recipe to NAME.yaml. It runs as it is. Nothing is overwritten."""
    from curator.scaffold.recipe import new_recipe as make

    made = make(name, read, like)
    for path in made:
        click.echo(path)
    recipe = shlex.quote(str(made[0]))
    click.echo(f"\nNow: curator preview {recipe}\nThen: curator run {recipe}")
