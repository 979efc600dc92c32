"""Whatever is written as a recipe: a pipeline or a RecipeError, never anything else."""

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.front import Pipeline, load
from curator.recipe import dump
from tests.recipe.recipe_stages import DESIGN, graph

WORDS = st.sampled_from([
    "read", "steps", "write", "branches", "from", "merge", "with", "drop", "route", "jsonl", "parquet", "path", "low", "high",
    "text.signals", "dedup.exact", "limit", "typed", "name", "max_failed", "discard", "seed", "quality", "poor", "drop.dropped",
    "route.low", "dropped", "x", "5%", "*.gz", "rules", "storage_options"])
LEAVES = WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(LEAVES, lambda c: st.lists(c, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), c, max_size=4),
                     max_leaves=12)
GOOD = st.sampled_from([
    {"drop": {"a": "x"}}, {"route": {"low": "x", "high": "y"}}, {"merge": ["low"]}, {"merge": "high"}, {"limit": 5},
    {"drop": None, "with": {"name": "d"}}])
ENTRY = WORDS | st.dictionaries(WORDS, TREES, min_size=1, max_size=2) | GOOD
SINK = st.sampled_from([{"parquet": {"path": "o"}}, "parquet", {"jsonl": {"path": "o"}}]) | TREES
PORTS = st.sampled_from(["drop.dropped", "route.low", "jsonl.out", "quality.poor"])
LINE = st.fixed_dictionaries({}, optional={
    "from": PORTS | TREES, "steps": st.lists(ENTRY, max_size=3), "write": SINK, "read": ENTRY})
RECIPES = st.fixed_dictionaries({"read": st.just({"jsonl": {"path": "x"}}) | ENTRY, "write": SINK}, optional={
    "steps": st.lists(ENTRY, max_size=4) | TREES, "branches": st.dictionaries(WORDS, LINE, max_size=3) | TREES,
    "max_failed": TREES, "discard": TREES, "seed": TREES, "name": TREES})
KEYS = st.lists(WORDS | st.sampled_from(["0", "1", ""]), max_size=4).map(".".join)
ANYTHING = {"suppress_health_check": list(HealthCheck), "deadline": None}


def only_recipe_errors(text: str, overrides=None) -> None:
    try:
        made = load(text, overrides)
    except RecipeError:
        return
    assert isinstance(made, Pipeline)
    assert made.sinks
    assert graph(load(dump(made))) == graph(made)


@settings(**ANYTHING)
@given(tree=RECIPES | TREES, key=KEYS, value=st.text(max_size=6))
def test_arbitrary_trees_give_a_pipeline_or_a_recipe_error(tree, key, value):
    text = yaml.safe_dump(tree) + "\n"
    only_recipe_errors(text)
    only_recipe_errors(text, {key: value})


@settings(**ANYTHING)
@given(text=st.text(max_size=60) | st.text(st.sampled_from("ab:-{}[]&*!|>'\"%#? \n\t,1.~"), max_size=40),
       at=st.integers(0, len(DESIGN)), cut=st.integers(0, 20))
def test_arbitrary_texts_give_a_pipeline_or_a_recipe_error(text, at, cut):
    only_recipe_errors(text + "\n")
    only_recipe_errors(DESIGN[:at] + text + DESIGN[at + cut:])
    if "\x00" not in text and "/" not in text:
        only_recipe_errors(text)
