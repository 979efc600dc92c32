"""Other thresholds told from a run's output: the same as a run with them, where the output can tell; said, where it cannot."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from curator import CuratorError, RecipeError, load
from curator.results import RunOutput
from curator.results.edits import with_rules
from curator.results.what_if import Share, what_if
from curator.results.what_if_text import show_what_if

N = 400
NUMBERS = itertools.count()
RECIPE = """
name: rules
read: {{parquet: {{path: {input}}}}}
steps:
- checkpoint
- drop: {{low: a < 20, both: a > 90 AND b < 50}}
  with: {{name: first}}
- map: {{c: b * 2}}
- drop: {{much: c > 150}}
  with: {{name: second}}
- checkpoint
- drop: {{odd: n % 7 = 3 OR b BETWEEN 10 AND 12}}
  with: {{name: third}}
{more}
write: [parquet, jsonl]
out: {out}
"""


def table():
    rows = {"id": [f"r{i}" for i in range(N)], "source": [f"s{i % 3}" for i in range(N)], "n": list(range(N)),
            "a": [i * 37 % 101 if i % 11 else None for i in range(N)], "b": [(i * 53 % 97) / 1.0 for i in range(N)],
            "text": [f"text {i % 300} \x1b[31m<b>" for i in range(N)], "language": [("en", "de")[i % 2] for i in range(N)]}
    return pa.table(rows)


def recipe(folder: Path, name: str, more: str = "") -> str:
    if not (folder / "in.parquet").exists():
        pq.write_table(table(), folder / "in.parquet")
    return RECIPE.format(input=folder / "in.parquet", out=folder / name, more=more)


def ran(folder: Path, name: str, overrides=None, more: str = "") -> RunOutput:
    load(recipe(folder, name, more), overrides).run(workers=0)
    return RunOutput.open(str(folder / name))


def funnel(output: RunOutput) -> dict:
    return {s["name"]: (sum(s["out"].values()), {r: n for r, n in s["dropped"].items() if n}) for s in output.stats["stages"]}


def told(answer) -> dict:
    return {row.stage: (row.after, {r: after for r, (_, after) in row.reasons.items() if after}) for row in answer.funnel}


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("looked")
    return folder, ran(folder, "out")


@settings(max_examples=3, phases=[Phase.generate])  # each is a run
@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200), st.sampled_from(["", "third"]))
def test_where_all_is_rules_the_new_funnel_is_that_of_a_run_with_them(looked, a, both, much, drawn):
    folder, output = looked
    overrides = {"steps.first.low": f"a < {a}", "steps.first.both": f"a > {both} AND b < 50"}
    if drawn:
        overrides |= {"steps.second.much": f"c > {much}", "steps[5].odd": "false", "steps.third.few": "n < 30"}
    name = f"fresh-{next(NUMBERS)}"
    answer, fresh = what_if(output, overrides), ran(folder, name, overrides)
    with fresh.connect() as db:
        ended = dict(db.execute("SELECT id, coalesce(_stage || ' ' || reason, 'written') FROM records").fetchall())
    with output.connect() as db:
        before = dict(db.execute("SELECT id, coalesce(_stage || ' ' || reason, 'written') FROM records").fetchall())
    moved = {}
    for id in ended:
        if ended[id] != before[id]:
            moved[before[id], ended[id]] = moved.get((before[id], ended[id]), 0) + 1
    # `map` must see what the first step drops no more, so beyond it nothing is told of these
    known = {(b, e): n for (b, e), n in moved.items() if not (b.startswith("first") and not e.startswith("first"))}
    found = {(_spoken(m.before), _spoken(m.after)): m.records for m in answer.moves}
    reach = {b: n for (b, e), n in found.items() if e.startswith("reaches")}
    assert {k: n for k, n in found.items() if not k[1].startswith("reaches")} == known
    assert sum(reach.values()) == sum(n for (b, e), n in moved.items() if b.startswith("first") and not e.startswith("first"))
    assert told(answer)["first"] == funnel(fresh)["first"]
    for row in answer.funnel:
        assert row.before == funnel(output)[row.stage][0]
        assert row.after <= funnel(fresh)[row.stage][0] <= row.after + row.open


def _spoken(end):
    return {"written": "written", "reaches": "reaches"}.get(end.kind, f"{end.stage} {end.reason}")


def test_rules_behind_one_another_are_followed_to_the_end(looked):
    folder, output = looked
    overrides = {"steps.second.much": "c > 190", "steps.third.odd": "n % 7 = 3", "steps.third.new": "a > 95"}
    answer, fresh = what_if(output, overrides), ran(folder, "fresh-behind", overrides)
    assert told(answer) == funnel(fresh)
    assert answer.notes == ()
    back, lost = (sum(getattr(s, way) for s in answer.by["language"]) for way in ("back", "lost"))
    assert back == sum(s.back for s in answer.by["source"]) == sum(m.records for m in answer.moves if m.after.kind == "written") > 0
    assert lost == sum(m.records for m in answer.moves if m.before.kind == "written") > 0
    assert len(answer.back) == 10
    assert {"id", "source", "c", "n", "text", "before", "after"} <= answer.back[0].keys()
    assert answer.back[0]["after"] == "written"


def test_what_a_stage_must_see_is_said(tmp_path):
    more = "- dedup.exact\n- {limit: {records: 60}}"
    output = ran(tmp_path, "out", more=more)
    answer = what_if(output, {"steps.third.odd": "n % 7 = 3 AND n < 50", "steps.third.high": "n < 10"})
    notes = "\n".join(answer.notes)
    assert "more records would reach dedup.exact; how many of them are copies is not told" in notes
    assert "records that dedup.exact saw would be dropped before it" in notes
    assert "limit would not see" in notes
    assert next(row for row in answer.funnel if row.stage == "limit").open > 0


def test_a_record_that_is_gone_may_have_been_the_one_that_others_are_copies_of(tmp_path):
    output = ran(tmp_path, "out", more="- dedup.exact")
    with output.connect() as db:
        survivor, copies = db.execute("SELECT duplicate_of, count(*) FROM records WHERE _place = 'duplicate' GROUP BY 1 ORDER BY 1"
                                      ).fetchone()
    (note,) = what_if(output, {"steps.third.new": f"id = '{survivor}'"}).notes
    assert note == (f"1 records that dedup.exact saw would be dropped before it; {copies:,} duplicates name one of them, and some of "
                    "these would be kept in its place")


@pytest.mark.parametrize(("more", "why"), [
    ("- map: {a: a + 1}", "map-2 changes the column 'a', behind first"),
    ("- repeat: {times: 2}", "repeat makes records of others, behind first"),
    ("- select: {drop: [a]}", "select changes the column 'a', behind first")])
def test_records_whose_columns_are_not_what_the_rule_saw_are_not_told_of(tmp_path, more, why):
    output = ran(tmp_path, "out", more=more)
    answer = what_if(output, {"steps.first.low": "a < 50"})
    assert any(note.startswith(f"{output.places[0].rows:,} records written by to_parquet: {why}") for note in answer.notes)
    assert all(move.before.kind != "written" for move in answer.moves)


def test_what_was_not_kept_is_said(tmp_path):
    load(recipe(tmp_path, "out") + "discard: [dropped/first]").run(workers=0)
    output = RunOutput.open(str(tmp_path / "out"))
    assert "dropped by first were not kept (discard)" in what_if(output, {"steps.first.low": "a < 50"}).notes[0]


def test_a_rule_set_stands_for_all_conditions_of_a_step(looked, tmp_path):
    _, output = looked
    (tmp_path / "own.yaml").write_text("rules: [{reason: below, when: a < 20}]")
    answer = what_if(output, with_rules(output, f"first={tmp_path}/own.yaml"))
    assert answer.edits[0].changes == [("low", "a < 20", None), ("both", "a > 90 AND b < 50", None), ("below", None, "a < 20")]
    renamed = {(m.before.reason, m.after.reason) for m in answer.moves if m.after.kind == "dropped"}
    assert renamed == {("low", "below")}
    with pytest.raises(RecipeError, match=r"are 3 drop steps .first, second, third.; say for which: --rules first="):
        with_rules(output, "own.yaml")


@pytest.mark.parametrize(("overrides", "message"), [
    ({"steps.first.low": "a < 20"}, "same as in the run"), ({}, "no --set and no --rules"),
    ({"steps.map.c": "b * 3"}, "'map' is no drop step"),
    ({"steps.frist.low": "a < 3"}, "nothing under steps is named 'frist'; did you mean first"),
    ({"steps.first.low": "z < 3"}, "the column 'z' is nowhere in the output"), ({"steps.first.low": "a <"}, "not valid SQL"),
    ({"steps.first.low": "30"}, "`30` is INTEGER, not a condition"),
    ({"steps.first.with.name": "other"}, "makes another pipeline"), ({"read.path": "elsewhere"}, "only conditions of drop steps")])
def test_what_is_no_edit_of_rules_is_refused(looked, overrides, message):
    with pytest.raises(CuratorError, match=message):
        what_if(looked[1], overrides)


def test_it_is_printed_in_80_columns_and_without_what_a_terminal_obeys(looked):
    text = io.StringIO()
    show_what_if(what_if(looked[1], {"steps.second.much": "c > 190 -- more\n", "steps.third.new": "a > 95"}), text)
    assert max(map(len, text.getvalue().splitlines())) <= 80
    assert "\x1b" not in text.getvalue()
    assert "second: much: c > 150 -> c > 190" in text.getvalue()


def test_the_command_answers_as_json(looked):
    from click.testing import CliRunner

    from curator.cli.main import main

    done = CliRunner().invoke(main, ["what-if", looked[1].folder.uri, "--set", "steps.third.odd=n % 7 = 3", "--json"])
    answer = json.loads(done.output)
    assert done.exit_code == 0
    assert answer["edits"][0]["stage"] == "third"
    assert {row["stage"] for row in answer["funnel"]} == set(looked[1].order())
    assert CliRunner().invoke(main, ["what-if", looked[1].folder.uri, "--set", "steps.third.odd"]).exit_code == 2


def test_records_of_a_source_each_are_told_by_it_in_the_examples_alone(looked):
    output = io.StringIO()
    answer = what_if(looked[1], {"steps.third.new": "a > 95"})
    lost = [{"id": "x", "before": "written", "after": "dropped", "source": "photos/cat.jpg"}]
    sources = [Share(f"photos/{name}.jpg", 0, 1) for name in ("cat", "dog")]
    show_what_if(replace(answer, lost=lost, by={"source": sources}), output)
    assert "x  photos/cat.jpg" in output.getvalue()
    assert "dog" not in output.getvalue()
