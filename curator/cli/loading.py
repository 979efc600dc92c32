"""The recipe that a command is about: its options, and how it is loaded."""

from __future__ import annotations

import json
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
    from curator.worker.imports import hold_back

    hold_back()
    overrides = _reads(recipe, inputs) if inputs else {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise CuratorError(f"--set {setting!r}: write it as PATH=VALUE, for example read.path=docs/")
        overrides[key.strip()] = value
    if out is not None:
        overrides["out"] = out
    return load(recipe, overrides)


def _reads(recipe: str, inputs: tuple[str, ...]) -> dict[str, str]:
    """What makes a recipe read these paths. Of the readers of tables it is the one for the first of them."""
    import yaml

    from curator.pipeline.formats import TABLES, format_of
    from curator.recipe import recipe_text

    paths = list(inputs) if len(inputs) > 1 else inputs[0]
    by_path = {"read.path": json.dumps(paths)}
    try:
        read = yaml.safe_load(recipe_text(recipe))["read"]
    except (yaml.YAMLError, TypeError, KeyError):  # no recipe: loading it says what is wrong, and where
        return by_path
    if isinstance(read, list):
        raise CuratorError(f"{recipe} has {len(read)} readers, so it is not clear which one reads "
                           f"{inputs[0]}: use --set read[0].path=… and so on")
    steps = read if isinstance(read, dict) else {read: None}
    name, found = next((key for key in steps if key != "with"), ""), format_of(inputs[0])
    if name not in TABLES or found not in TABLES or found == name:
        return by_path
    given = steps[name] if isinstance(steps[name], dict) else {}
    others = {key: value for key, value in steps.items() if key != name}
    return {"read": json.dumps({found: {**given, "path": paths}, **others})}
