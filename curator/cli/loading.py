"""What a command is about: a recipe with its options, how it is loaded, and what a shell completes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from curator.api.errors import CuratorError, InputError, PackError, RecipeError


def recipe_options(command: Callable) -> Callable:
    """RECIPE, `--set` and `--out`, which `run`, `plan` and `preview` share."""
    for option in (
        click.option("--out", metavar="FOLDER",
                     help="Write everything here instead of into the folder that the recipe names."),
        click.option("--set", "settings", multiple=True, metavar="PATH=VALUE",
                     help="Change a value of the recipe, for example read.path='crawl/*.warc.gz'."),
        click.argument("recipe", shell_complete=complete_recipes),
    ):
        command = option(command)
    return command


inputs_argument = click.argument("inputs", nargs=-1, metavar="[INPUT]...", type=click.Path())


def values_of(settings: tuple[str, ...], example: str) -> dict[str, str]:
    """The values of `--set` by path. `example`: one to be shown where it is written otherwise."""
    values = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise CuratorError(f"--set {setting!r}: write it as PATH=VALUE, for example {example}")
        values[key.strip()] = value
    return values


def load_recipe(recipe: str, settings: tuple[str, ...], out: str | None, inputs: tuple[str, ...] = ()) -> Any:
    """The pipeline of a recipe with other values. `inputs`: paths that it reads instead of its own."""
    from curator.recipe import load
    from curator.recipe.inputs import reads
    from curator.worker.imports import hold_back

    hold_back()
    overrides = (reads(recipe, inputs) if inputs else {}) | values_of(settings, "read.path=docs/")
    if out is not None:
        overrides["out"] = out
    try:
        return load(recipe, overrides)
    except RecipeError as error:
        named = os.path.splitext(recipe)[1] not in ("", ".yaml", ".yml")
        if os.path.isdir(recipe) or (named and os.path.isfile(recipe)):
            error.add_note(f"if {recipe} is what is to be read, the recipe stands before it: RECIPE {recipe}")
            if said := what_reads("", (recipe,)):
                error.add_note(said)
        raise


def what_reads(recipe: str, inputs: tuple[str, ...]) -> str | None:
    """Which recipes read such files, if this is not one of them."""
    from curator.recipe.inputs import other_recipes

    return other_recipes(recipe, inputs[0]) if inputs else None


@contextmanager
def told_what_reads(recipe: str, inputs: tuple[str, ...], given: tuple[str, ...] = ()) -> Iterator[None]:
    """Where an input cannot be read, say which recipes read such files. A setting may name it: `read=…`."""
    from curator.recipe.inputs import reads_a_path

    try:
        yield
    except InputError as error:
        named = inputs or os.path.isfile(recipe) or any(one.startswith("read") for one in given)
        if not named and reads_a_path(recipe):
            error.add_note(f"name what it is to read: {recipe} INPUT…")
        if said := what_reads(recipe, inputs):
            error.add_note(said)
        raise


def complete_recipes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Packaged recipes, and recipes and folders that lie there, else files. No pack is imported. Not both at
    once: bash forgets all names where files are asked for too."""
    found = [item.value for item in complete_resources(ctx, param, incomplete)]
    found += sorted(glob(escape(incomplete) + "*.y*ml"))
    folders = sorted(glob(escape(incomplete) + "*/")) if found else []  # alone, a shell goes on in it
    return _beginning(incomplete, [*found, *folders]) or [CompletionItem(incomplete, type="file")]


def complete_resources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Packaged rule sets for `curator rules`, recipes for all others; without their pack where nothing begins
    so."""
    from curator.registry import packs

    kind = "rules" if ctx.info_name == "rules" else "recipes"
    there = packs.resources(kind)
    return (_beginning(incomplete, (found.name for found in there))
            or _beginning(incomplete, (found.short for found in there)))


def complete_stages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Packs and stages of the core; stages of a pack once its name is there: its import takes its time."""
    from curator.registry import packs

    chosen = incomplete.partition(".")[0] if "." in incomplete else packs.CORE
    names = []
    for pack in packs.installed():
        names += [f"{pack.name}."] if pack.name != packs.CORE else []
        if pack.name == chosen:
            with suppress(PackError):
                names += pack.stages()
    return _beginning(incomplete, names)


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders of runs, and folders that may hold some."""
    from curator.io.files.listing import RUN

    parent = Path(incomplete).parent if incomplete and not incomplete.endswith("/") else Path(incomplete)
    try:
        folders = [folder for folder in parent.iterdir() if (folder / RUN).is_dir()]
    except OSError:
        folders = []
    found = _beginning(incomplete, (f"{folder}/" for folder in folders))
    return found or [CompletionItem(incomplete, type="dir")]


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


run_argument = click.argument("folder", metavar="RUN", shell_complete=complete_runs)
