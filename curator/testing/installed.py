"""Whether what a pack brings beside its stages can be used: recipes and rule sets. Nothing is read but the pack's own files."""

from __future__ import annotations

import functools

from curator import sql
from curator.api.errors import CuratorError, InputError, RecipeError
from curator.api.stage import Source
from curator.pipeline.plan import make_plan
from curator.recipe import load
from curator.registry import packs
from curator.registry.packs import Pack, Resource
from curator.stages.rules import load_rules


def faults(pack: Pack) -> list[str]:
    """What is wrong with the recipes and rule sets of a pack, a text for each of them that cannot be used."""
    faulty = []
    for kind, word, check in (("recipes", "recipe", check_recipe), ("rules", "rule set", check_rules)):
        for found in (r for r in packs.resources(kind) if r.pack == pack):
            try:
                check(found)
            except Exception as error:  # planning runs the code of its stages, whose authors may be strangers
                name = "" if isinstance(error, CuratorError) else f"{type(error).__name__}: "
                faulty.append(f"{word} {found.name}: {name}{error}")
    return faulty


def check_recipe(found: Resource) -> None:
    """Load a packaged recipe and plan it, as far as that goes without input: contracts hold behind sources that say what
    columns they give.

    Raises:
        RecipeError: everything that is wrong with it.
    """
    pipeline = load(found.path)
    for node in pipeline.nodes():
        if isinstance(node.stage, Source):  # not what the files show that happen to lie where the recipe's example points
            node.stage.columns = functools.partial(Source.columns, node.stage)
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
            raise RecipeError(f"{found.path}: rule {rule.reason!r} names no column: `{rule.when}` is the same for every record")
