"""What a recipe reads instead of what it names, and which packaged recipes read what lies somewhere."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import Any

import yaml

from curator.api.errors import CuratorError
from curator.api.format import listing
from curator.api.stage import Source
from curator.io.files.faults import path_text
from curator.io.files.folder import list_files
from curator.io.files.listing import ending
from curator.pipeline.formats import TABLES, format_of
from curator.recipe import recipe_text
from curator.recipe.parameters import parameters
from curator.registry import packs

NAMED = 6  # recipes in a message
FILE_TABLES = ("jsonl", "parquet", "csv", "arrow")  # a folder of one is its files
KINDS, LOOKED_AT = 3, 20  # endings of a folder that are told, and of those that the recipe itself may read


def reads(recipe: str, inputs: Sequence[str]) -> dict[str, str]:
    """What of a recipe is to be another value, so that it reads these paths. Of the readers of tables it is
    the one for the first of them; a table that is named stands also in the place of documents one a file.

    Raises:
        CuratorError: the recipe has several readers.
    """
    inputs = [path_text(one) for one in inputs]
    paths = inputs if len(inputs) > 1 else inputs[0]
    read = _read_of(recipe)
    if not read:  # no recipe: loading it says what is wrong, and where
        return {}
    if isinstance(read, list):
        raise CuratorError(f"{recipe} has {len(read)} readers, so it is not clear which one reads "
                           f"{inputs[0]}: use --set read[0].path=… and so on")
    steps = read if isinstance(read, dict) else {read: None}
    name, found = next((key for key in steps if key != "with"), ""), format_of(inputs[0])
    if not isinstance(name, str) or (made := packs.find_stage(name)) is None:
        return {}  # likewise
    if "path" not in (one.name for one in parameters(made)):
        raise CuratorError(f"{recipe} reads by {name}, which takes no path, so it cannot read {inputs[0]}. "
                           f"What it takes instead is shown by: curator stages {name}")
    before, others = steps.get(name), {key: value for key, value in steps.items() if key != name}
    # a reader that is given by its path alone is written out
    own = {name: {**(before if isinstance(before, dict) else {}), "path": paths}}
    may_be_tables = found is None and (name in FILE_TABLES or gives_texts(name))
    kinds = endings(inputs[0], LOOKED_AT) if may_be_tables else []
    if kinds and not any(_lists(own, kind) for kind in kinds):
        found = format_of(f"x{kinds[0]}")  # a folder or a glob of tables
    if (found not in TABLES or found == name or not (name in TABLES or gives_texts(name))
            # a reader of source code takes .json itself
            or (name not in TABLES and _lists(own, ending(inputs[0]).lower()))):
        return ({"read.path": json.dumps(paths)} if isinstance(before, dict) else
                {"read": json.dumps({**own, **others})})
    given = before if isinstance(before, dict) and name in TABLES else {}
    return {"read": json.dumps({found: {**given, "path": paths}, **others})}


def reads_a_path(recipe: str) -> bool:
    """Whether a recipe has one reader, which names a path: an input may stand in its place."""
    read = _read_of(recipe)
    return isinstance(read, dict) and any(isinstance(one, dict) and "path" in one for one in read.values())


def gives_texts(reader: str) -> bool:
    """Whether a source of a pack gives documents as a table does: a column `text`, and no other but names."""
    factory = packs.find_stage(reader)
    try:
        made = packs.build(factory, path="x") if factory and packs.kind_of(factory) == "source" else None
        columns = made.columns() if isinstance(made, Source) else None
    except (CuratorError, OSError, TypeError, ValueError):
        return False
    return columns is not None and "text" in columns and all(kind is not None for kind in columns.values())


def who_reads(path: str) -> list[str]:
    """The packaged recipes whose reader takes what lies at this path, by the endings of its files."""
    found: dict[str, None] = {}
    for kind in endings(path):
        for resource in packs.resources("recipes"):
            if (read := _read_of(resource.name)) is not None and _takes(read, kind):
                found[resource.name] = None
    return list(found)


def other_recipes(recipe: str, path: str) -> str | None:
    """What to tell somebody whose recipe read nothing at this path: which ones read what lies there. None if
    it is what this recipe reads."""
    kinds, found = endings(path), who_reads(path)
    own = _read_of(recipe) if recipe else None
    if not kinds or any(_takes(own, one) for one in endings(path, LOOKED_AT)):
        return None
    files = f"files that end in {' and '.join(kinds)}"
    return (f"{files} are read by these packaged recipes: {listing(found, NAMED)}" if found else
            f"no packaged recipe reads {files}: `curator stages` lists the readers")


def endings(path: str, most: int = KINDS) -> list[str]:
    """The most frequent endings of the files at a path: `.jsonl.gz`, `.pdf`."""
    try:
        names = [file.name for file in list_files(path)]
    except CuratorError:
        names = [path]
    return [kind for kind, _ in Counter(ending(name).lower() for name in names).most_common(most) if kind]


def _takes(read: Any, ending: str) -> bool:
    """Whether a reader of a recipe finds a file of this ending in a folder."""
    if not isinstance(read, dict) or len(read) != 1:
        return False
    [name] = read
    if (kind := format_of("x" + ending)) is not None and name == kind:
        return True
    if name in TABLES:
        return kind in TABLES
    return _lists(read, ending) or (kind in TABLES and gives_texts(name))


def _lists(read: Any, ending: str) -> bool:
    """Whether a reader that is no table's lists files of this ending, by a folder that has one."""
    [(name, given)] = read.items()
    factory = packs.find_stage(name)
    if not isinstance(given, dict) or "path" not in given or not isinstance(factory, type):
        return False
    with tempfile.TemporaryDirectory(prefix="curator-") as folder:
        open(os.path.join(folder, "x" + ending), "wb").close()
        try:
            made = packs.build(factory, **{**given, "path": folder})
            return isinstance(made, Source) and bool(made.units())
        except (CuratorError, OSError, TypeError, ValueError):
            return False


def _read_of(recipe: str) -> Any:
    """What a recipe says of its readers, None if that cannot be told."""
    try:
        return yaml.safe_load(recipe_text(recipe))["read"]
    except (yaml.YAMLError, TypeError, KeyError):
        return None
