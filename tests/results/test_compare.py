"""What differs between two runs, and whether they have the same records."""

import json
import os
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from curator.cli.compare import _scores
from curator.cli.main import main
from curator.front import load
from curator.results import RunOutput
from curator.results.look.compare import EARLIER, Score, compare
from curator.results.recut import recut
from curator.run.run import run as run_graph

SHORT = "dropped by drop: short"

RECIPE = """
read: {{jsonl: {{path: {here}/in}}}}
steps:
- map: {{words: "length(text)", text: "{text}"}}
- drop: {{short: words < {least}}}
write: {write}
out: {here}/{out}
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "in").mkdir()
    give(tmp_path, "a", ["one", "three", "eleven"])
    give(tmp_path, "b", ["twelve"])

    def go(out, least=4, text="text", write="parquet"):
        load(RECIPE.format(here=tmp_path, out=out, least=least, text=text, write=write)).run(workers=0)
        return RunOutput.open(str(tmp_path / out))

    return go


def give(folder, name, texts):
    with open(folder / "in" / f"{name}.jsonl", "w") as file:
        file.writelines(json.dumps({"id": text, "text": text}) + "\n" for text in texts)


def test_two_runs_of_one_recipe_have_the_same_records(run):
    found = compare(run("one"), run("two", write="jsonl"))
    assert (found.same, found.moved, found.texts) == (4, [], 0)
    assert found.verdict.startswith("The same 4 records, each with the same end.")
    assert found.code == {}
    assert not any(found.inputs.values())
    assert all(a == b for stage, _, a, b in found.funnel if not stage.startswith("to_"))


def test_an_edit_is_told_with_the_records_that_it_moved(run):
    found = compare(run("one"), run("two", least=6))
    assert [line.split() for line in found.recipe if line[0] == "+"] == [["+", "conditions:", "{short:", "words", "<", "6}"]]
    assert list(found.code) == ["drop"]
    [moved] = found.moved
    assert (moved.before, moved.after, moved.count, moved.examples) == ("written", "dropped by drop: short", 1, ["three"])
    assert ("drop", "dropped: short", 1, 2) in found.funnel
    assert "1 with another end; what differs is the recipe, parameters or code of drop" in found.verdict


def test_another_text_and_other_scores_are_told(run):
    found = compare(run("one"), run("two", text="concat(text, '!')"))
    assert (found.same, found.moved, found.texts) == (4, [], 4)
    [words] = found.scores
    assert (words.column, words.means, words.moved) == ("words", (5.0, 5.0), 0.0)
    assert words.quantiles[0][1] == 5.5


def test_lists_of_numbers_are_no_scores(run):
    one, two = (run(out, text="text\", vector: \"[1.5::DOUBLE, 2.5]") for out in ("one", "two"))
    found = compare(one, two)
    assert [score.column for score in found.scores] == ["words"]
    assert found.same == 4


def test_other_input_is_told(run, tmp_path):
    one = run("one")
    give(tmp_path, "c", ["a new one"])
    os.unlink(tmp_path / "in/b.jsonl")
    found = compare(one, run("two"))
    assert [[os.path.basename(f) for f in found.inputs[what]] for what in ("gone", "new")] == [["b.jsonl"], ["c.jsonl"]]
    assert {(m.before, m.after, *m.examples) for m in found.moved} == {("written", None, "twelve"), (None, "written", "a new one")}
    assert "1 in the first only, 1 in the second only" in found.verdict
    assert "the input (1 gone, 1 new)" in found.verdict


@pytest.mark.parametrize("edited", [False, True])
def test_what_ended_before_a_recut_begins_is_told_apart(tmp_path, run, edited):
    (tmp_path / "r.yaml").write_text(RECIPE.format(here=tmp_path, out="one", least=4, text="text", write="parquet").replace(
        "write:", "- drop: {long: words > 5}\n  with: {name: later}\nwrite:"))
    load(tmp_path / "r.yaml").run(workers=0)
    one = RunOutput.open(str(tmp_path / "one"))
    made = recut(one, {"steps.later.long": f"words > {4 if edited else 7}"}, str(tmp_path / "two"))
    run_graph(made.pipeline, workers=0)
    two = RunOutput.open(str(tmp_path / "two"))
    for runs, ends in (((one, two), (SHORT, EARLIER)), ((two, one), (EARLIER, SHORT))):
        found = compare(*runs)
        assert [m.count for m in found.moved if (m.before, m.after) == ends] == [1]
        assert not [m for m in found.moved if None in (m.before, m.after)]
        assert "1 that ended before the other run begins" in found.verdict
        assert " only" not in found.verdict


def test_an_input_in_the_folder_of_a_run_is_not_what_it_wrote(tmp_path, run):
    one = run("one")
    (tmp_path / "one/mine").mkdir()
    (tmp_path / "in").rename(tmp_path / "one/mine/in")
    (tmp_path / "one/mine/in/b.jsonl").unlink()
    two = load(RECIPE.format(here=f"{tmp_path}/one/mine", out="two", least=4, text="text", write="parquet"))
    found = compare(one, RunOutput.open(two.run(workers=0).stats["out"]))
    assert [(moved.before, moved.after, moved.examples) for moved in found.moved] == [("written", None, ["twelve"])]
    assert "1 in the first only" in found.verdict


def test_the_command_says_it_in_text_and_as_json(run):
    one, two = run("one").folder.uri, run("two", least=6).folder.uri
    told = CliRunner().invoke(main, ["compare", one, two])
    assert told.exit_code == 0
    assert "1: written -> dropped by drop: short" in told.output
    assert all(len(line) <= 80 for line in told.output.splitlines()[:-1])
    assert json.loads(CliRunner().invoke(main, ["compare", one, two, "--json"]).output)["same"] == 3


def test_scores_that_moved_by_the_order_of_adding_alone_are_not_shown():
    same = {"quantiles": ((1.0, 2.0, 3.0),) * 2, "moved": 0.0}
    scores = [Score(column="sum", means=(0.3, 0.1 + 0.2), **same), Score(column="other", means=(12345678.0, 2345678.9), **same)]
    told = "\n".join(_scores(SimpleNamespace(scores=scores), everything=False))
    assert "sum" not in told
    assert " 1.235e+07 2.346e+06 " in told
