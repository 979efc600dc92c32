"""The recipe that a command is about: its options, and how it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from curator.api.errors import CuratorError


def recipe_options(command: Callable) -> Callable:
    """RECIPE, `--set` and `--out`, which `run`, `plan` and `preview` share."""
    for option in (
        click.option("--out", metavar="FOLDER",
                     help="Write everything here instead of into the folder that the recipe names."),
        click.option("--set", "settings", multiple=True, metavar="PATH=VALUE",
                     help="Change a value of the recipe, for example read.path='crawl/*.warc.gz'."),
        click.argument("recipe"),
    ):
        command = option(command)
    return command


inputs_argument = click.argument("inputs", nargs=-1, metavar="[INPUT]...")


def load_recipe(recipe: str, settings: tuple[str, ...], out: str | None, inputs: tuple[str, ...] = ()) -> Any:
    """The pipeline of a recipe with other values. `inputs`: paths that it reads instead of its own."""
    from curator.recipe import load
    from curator.recipe.inputs import reads
    from curator.worker.imports import hold_back

    hold_back()
    overrides = reads(recipe, inputs) if inputs else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise CuratorError(f"--set {setting!r}: write it as PATH=VALUE, for example read.path=docs/")
        overrides[key.strip()] = value
    if out is not None:
        overrides["out"] = out
    return load(recipe, overrides)
