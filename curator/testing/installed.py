"""Whether what a pack brings beside its stages can be used: recipes, rule sets, and what its modules import
of the core.

Nothing is read but the pack's own files.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from curator import sql
from curator.api.errors import InputError, RecipeError, in_words
from curator.api.stage import Source
from curator.pipeline.plan import make_plan
from curator.recipe import load
from curator.registry import packs
from curator.registry.packs import Pack, Resource
from curator.stages.rules import load_rules

# What a pack may import of the core, with all that lies in it; of `curator` what it exports. docs/packs.md
# says what for.
OPEN_TO_PACKS = ("curator", "curator.api", "curator.stages", "curator.io.files", "curator.io.tables",
                 "curator.io.media", "curator.io.http", "curator.io.source",
                 "curator.io.sink", "curator.io.units", "curator.sql", "curator.ngrams",
                 "curator.models", "curator.testing")


def faults(pack: Pack) -> list[str]:
    """What is wrong with a pack's imports, recipes and rule sets, a text for each."""
    faulty = list(import_faults(pack))
    for kind, word, check in (("recipes", "recipe", check_recipe), ("rules", "rule set", check_rules)):
        for found in (r for r in packs.resources(kind) if r.pack == pack):
            try:
                check(found)
            except Exception as error:  # planning runs the code of its stages, whose authors may be strangers
                faulty.append(f"{word} {found.name}: {in_words(error)}")
    return faulty


def import_faults(pack: Pack) -> Iterator[str]:
    """What a pack imports of the core that the core keeps to itself, and of other packs: both may change
    under it."""
    others = {other.module.partition(".")[0]: other for other in packs.installed()}
    own = pack.module.partition(".")[0]
    module = sys.modules[pack.module]
    alone = [Path(file)] if (file := getattr(module, "__file__", None)) else []
    for file in [f for place in getattr(module, "__path__", []) for f in Path(place).rglob("*.py")] or alone:
        for line, used in imports_of(file):
            top = used.partition(".")[0]
            if top == "curator" != own and not is_open(used):
                yield (f"{file}:{line} imports {used}, which may change: a pack uses "
                       f"{', '.join(OPEN_TO_PACKS)} (docs/packs.md)")
            elif top in others.keys() - {own, "curator"}:
                yield (f"{file}:{line} imports {used} of {others[top]}: packs know nothing of each other, "
                       "they meet in columns")


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            ours = (importlib.util.find_spec(node.module) if node.module.partition(".")[0] == "curator"
                    else None)
            for full in (f"{node.module}.{alias.name}" for alias in node.names):
                inner = ours and ours.submodule_search_locations and importlib.util.find_spec(full)
                yield node.lineno, full if inner else node.module


def is_open(module: str) -> bool:
    """Whether packs may import this module of the core."""
    return module == "curator" or any(f"{module}.".startswith(f"{each}.") for each in OPEN_TO_PACKS[1:])


def check_recipe(found: Resource) -> None:
    """Load a packaged recipe and plan it, as far as that goes without input: contracts hold behind sources
    that say what columns they give.

    Raises:
        RecipeError: everything that is wrong with it.
    """
    pipeline = load(found.path)
    for node in pipeline.nodes():
        # not what the files show that happen to lie where the recipe's example points
        if isinstance(node.stage, Source):
            vars(node.stage)["columns"] = functools.partial(Source.columns, node.stage)
    try:
        make_plan(pipeline)
    except InputError:
        return  # a stage looks at files of its own, which are the user's


def check_rules(found: Resource) -> None:
    """Load a packaged rule set; each rule is about a column.

    Raises:
        RecipeError: naming file, rule and field.
    """
    for rule in load_rules(str(found.path)).rules:
        if not sql.columns_of(rule.when):
            raise RecipeError(f"{found.path}: rule {rule.reason!r} names no column: `{rule.when}` is the "
                              "same for every record")
