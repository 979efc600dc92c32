"""`--set`: values put into a recipe from outside."""

import pytest

from curator.front import load
from tests.recipe.recipe_stages import DESIGN, Jsonl, Limit, ToParquet, problems


@pytest.mark.parametrize(("key", "value", "check"), [
    ("read.path", "crawl/*.gz", lambda s: s["warc"].path == "crawl/*.gz"),
    ("read.path", "*.gz", lambda s: s["warc"].path == "*.gz"),
    ("read.path", "[a, b]", lambda s: s["warc"].path == ["a", "b"]),
    ("read.text.warc.path", "a", lambda s: s["warc"].path == "a"),
    ("read.warc.limit", "5", lambda s: s["warc"].limit == 5),
    ("read.limit", "", lambda s: s["warc"].limit is None),
    ("read", "{jsonl: {path: z}}", lambda s: s["jsonl"].path == "z"),
    ("steps.language.keep", "[en,no]", lambda s: s["language"].keep == ["en", "no"]),
    ("steps.text.language.keep", "[fr]", lambda s: s["language"].keep == ["fr"]),
    ("steps[0].threshold", "1", lambda s: s["language"].threshold == 1.0),
    ("steps.0.threshold", "1e-3", lambda s: s["language"].threshold == 0.001),
    ("steps.text.language", "{threshold: 1}", lambda s: s["language"].threshold == 1.0 and s["language"].keep is None),
    ("steps.signals.column", "007", lambda s: s["signals"].column == "007"),
    ("steps.language.with.batch_size", "3", lambda s: s["language"].batch_size == 3),
    ("steps[3].too_short", "x = 'a: b' # c", lambda s: s["drop-2"].conditions["too_short"] == "x = 'a: b' # c"),
    ("steps[3].too_short", "[1] = x", lambda s: s["drop-2"].conditions["too_short"] == "[1] = x"),
    ("steps[3].too_short", "[1]", lambda s: s["drop-2"].conditions["too_short"] == "[1]"),
    ("steps.drop-2.too_short", "x", lambda s: s["drop-2"].conditions["too_short"] == "x"),
    ("steps[3].more", "x > 1", lambda s: s["drop-2"].conditions["more"] == "x > 1"),
    ("write.path", "else/", lambda s: s["to_parquet"].path == "else/"),
    ("write.storage_options.key", "a", lambda s: s["to_parquet"].storage_options == {"key": "a"}),
    ("branches.low.write.path", "l/", lambda s: s["low"].path == "l/"),
    ("branches.low.steps.shout.times", "2", lambda s: s["shout"].arguments["times"] == 2),
])
def test_set(key, value, check):
    pipeline = load(DESIGN.replace("discard: [duplicate, dropped/drop-2]", ""), {key: value})
    assert check({n.stage.name: n.stage for n in pipeline.nodes()})


def test_set_settings():
    pipeline = load(DESIGN, {"max_failed": "10", "discard": "true", "name": "x", "out": "o/", "storage_options.key": "k"})
    assert pipeline.settings.max_failed == 10
    assert pipeline.settings.discard == ("dropped", "duplicate")
    assert (pipeline.name, pipeline.settings.out, pipeline.settings.storage_options) == ("x", "o/", {"key": "k"})


@pytest.mark.parametrize(("key", "value", "said"), [
    ("steps.langage.keep", "[en]",
     "--set steps.langage.keep: nothing under steps is named 'langage'; did you mean text.language?"),
    ("steps.language.kep", "[en]", "--set steps.language.kep: steps[0].text.language.kep: unknown parameter 'kep'"),
    ("steps.drop.short", "x", "2 are named 'drop'; say which: steps[2] or steps[3]"),
    ("steps[9].x", "x", "there is no steps[9]; there are 6, counted from 0"),
    ("language.keep", "x", "there is no key 'language'; did you mean steps.language.keep?"),
    ("maxfailed", "x", "unknown key 'maxfailed'; did you mean max_failed?"),
    ("branches.lo.write.path", "x", "unknown branch 'lo'; did you mean low?"),
    ("branches.low", "x", "branches.low is not a value"),
    ("read.path.x", "x", "there is a plain value before 'x'"),
    ("max_failed", "many", "--set max_failed: max_failed: expected a count"),
    ("steps.language.threshold", "high", "expected a number, got the text 'high'"),
    ("", "x", "unknown key"),
])
def test_set_a_path_that_leads_nowhere(key, value, said):
    assert any(said in problem for problem in problems(DESIGN, {key: value}))


def test_set_fills_what_a_recipe_leaves_open():
    text = "read: jsonl\nsteps: [limit]\nwrite: parquet\n"
    pipeline = load(text, {"read.path": "in/", "write.path": "out/", "steps.limit": "5"})
    assert [n.stage for n in pipeline.nodes()] == [Jsonl(path="in/"), Limit(rows=5), ToParquet(path="out/")]
