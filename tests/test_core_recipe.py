"""Recipes over the real core: what is loaded can be planned, run and written back."""

import json

import pytest

from curator.api.errors import ContractError, RecipeError
from curator.front import load
from curator.pipeline.plan import make_plan
from curator.recipe import dump
from curator.run.run import run

RECIPE = """
name: whole
read: {jsonl: {path: FOLDER/in.jsonl}}
steps:
  - map: {chars: length(text)}
  - drop: {rules: FOLDER/rules.yaml, long: chars > 200}
  - merge: [again]
  - dedup.exact
  - sample: {fraction: 0.9}
  - route: {high: q >= 0.5, low: q < 0.5}
write: parquet
branches:
  again: {from: drop.dropped, steps: [{map: {text: "substr(text, 1, 100)"}}, {select: {drop: [reason]}}]}
  low: {steps: [{rename: {q: quality}}], write: jsonl}
discard: [dropped/sample]
out: FOLDER/out
seed: 3
"""


@pytest.fixture
def recipe(tmp_path):
    rows = [{"id": str(i), "text": "word " * i, "q": i / 60} for i in range(60)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rules.yaml").write_text("name: mine\nrules:\n  - {reason: tiny, when: chars < 20}\n")
    return RECIPE.replace("FOLDER", str(tmp_path))


def keys(pipeline):
    return sorted((step.name, step.key) for step in make_plan(pipeline).steps)


def test_a_recipe_is_the_same_after_it_was_written(recipe):
    pipeline = load(recipe)
    assert keys(load(dump(pipeline))) == keys(pipeline)


def test_a_run_keeps_its_recipe_and_continues_from_it(recipe, tmp_path):
    first = run(load(recipe), workers=0)
    assert first.stats["records"]["in"] == 60
    stages = {stage["name"]: stage for stage in first.stats["stages"]}
    assert stages["drop"]["dropped"] == {"tiny": 4, "long": 19}
    assert stages["low"]["in"] == first.stats["records"]["written"] - stages["to_parquet"]["in"] > 0
    again = run(load(tmp_path / "out" / "_run" / "recipe.yaml"), workers=0)
    assert again.stats["records"] == first.stats["records"]


@pytest.mark.parametrize(("key", "value", "error", "said"), [
    ("steps.drop.long", "charz > 3", ContractError, r"recipe:6: steps\[1\]\.drop: .*needs 'charz'.*did you mean 'chars'"),
    ("steps.drop.rules", "mine", RecipeError, r"steps\[1\]\.drop: unknown rule set 'mine'"),
    ("steps.route.high", "q >", RecipeError, r"--set steps\.route\.high|steps\[5\]\.route: .*not valid SQL"),
    ("steps.sample.fraction", "2", RecipeError, r"steps\[4\]\.sample: .*fraction must be a number from 0 to 1"),
    ("steps.dedup.exact.colum", "text", RecipeError, "unknown parameter 'colum'; did you mean 'column'"),
])
def test_mistakes_are_found_before_anything_runs(recipe, key, value, error, said):
    with pytest.raises(error, match=said):
        make_plan(load(recipe, {key: value}))
