"""A data set made anew from a run's output is what a fresh run with the edited recipe writes, record for record."""

from __future__ import annotations

import itertools
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from curator import CuratorError, load
from curator.results import RunOutput
from curator.results.recut import recut
from curator.run.run import run

TEXT = """
name: text
read: {{jsonl: {{path: {folder}/in.jsonl}}}}
steps:
- text.signals
- drop: {{rules: gopher_quality}}
  with: {{name: quality}}
- map: {{short: word_count < 80}}
- drop: {{few: word_count < 60 AND short, marks: symbol_ratio > 0.2}}
  with: {{name: few}}
- dedup.exact: {{mode: {mode}}}
write: {sink}
out: {folder}/{name}
"""
NUMBERS = itertools.count()
WORDS = ["the", "of", "and", "to", "that", "have", "with", "be", "house", "river", "stone", "light", "paper", "green", "walk", "seven",
         "under", "window", "12", "3.4", "##", "...", "open", "morning"]


def text(folder, name="out", mode="cluster", sink="parquet"):
    if not (folder / "in.jsonl").exists():
        draw = random.Random(5)
        texts = [" ".join(draw.choices(WORDS, k=draw.choice([20, 45, 55, 75, 90, 120]))) + "." for _ in range(60)]
        rows = [{"id": f"r{i:03}", "text": draw.choice(texts), "seen": i} for i in range(160)]
        (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TEXT.format(folder=folder, name=name, mode=mode, sink=sink)


def ended(output, steps=("quality", "few", "dedup.exact")):
    """All records that reached the first of these steps, with all they have."""
    kinds = ("data", "duplicate", "dropped")
    with output.connect() as db:
        rows = db.execute("SELECT * EXCLUDE (_file, _row) FROM records WHERE _place = 'data' OR _stage IN (SELECT unnest($1)) "
                          "ORDER BY id", [list(steps)])
        names = [d[0] for d in rows.description]
        found = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
    assert {row["_place"] for row in found} <= set(kinds)
    # where `map` was spared, what the rule before it drops keeps the column that it had
    return [{name: value for name, value in row.items() if (name, row["_stage"]) != ("short", "quality")} for row in found]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recut")
    load(text(folder)).run(workers=0)
    return folder, RunOutput.open(str(folder / "out"))


@settings(max_examples=3, phases=[Phase.generate])  # each is three runs
@given(st.integers(20, 130), st.floats(0.0, 0.4), st.integers(30, 130), st.booleans())
def test_a_recut_is_a_fresh_run_with_the_edited_recipe_record_for_record(first, words, symbols, few, earlier):
    folder, output = first
    number = next(NUMBERS)
    overrides = {"steps.few.few": f"word_count < {few} AND short", "steps.few.marks": f"symbol_ratio > {symbols!r}"}
    if earlier:
        overrides |= {"steps.quality.too_few_words": f"word_count < {words}", "steps.quality.stop_words_missing": "false"}
    made = recut(output, overrides, str(folder / f"recut-{number}"))
    assert run(made.pipeline, workers=0).ok
    load(text(folder, f"fresh-{number}"), overrides).run(workers=0)
    recutted, fresh = (RunOutput.open(str(folder / f"{name}-{number}")) for name in ("recut", "fresh"))
    steps = ("quality", "few", "dedup.exact")[not earlier:]
    assert made.step == steps[0]
    assert ended(recutted, steps) == ended(fresh, steps)
    assert {s["name"]: s["dropped"] for s in recutted.stats["stages"] if s["name"] in steps} == {
        s["name"]: s["dropped"] for s in fresh.stats["stages"] if s["name"] in steps}


def test_a_stream_keeps_one_of_each_text_and_the_same_command_goes_on(tmp_path):
    load(text(tmp_path, mode="stream", sink="jsonl")).run(workers=0)
    output, overrides = RunOutput.open(str(tmp_path / "out")), {"steps.quality.too_few_words": "word_count < 30"}
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    made = recut(output, overrides, str(tmp_path / "recut"))
    assert (made.step, made.again, made.spared) == ("quality", ("map", "few", "dedup.exact"), ())
    run(made.pipeline, workers=0)
    load(text(tmp_path, "fresh", mode="stream", sink="jsonl"), overrides).run(workers=0)
    of, fresh = (ended(RunOutput.open(str(tmp_path / name))) for name in ("recut", "fresh"))

    def kinds(rows):
        return sorted((row["text"], row["_place"], str(row["reason"])) for row in rows)
    assert kinds(of) == kinds(fresh)
    again = run(recut(output, overrides, str(tmp_path / "recut")).pipeline, workers=0)
    assert again.stats["units"]["skipped"] == again.stats["units"]["total"]
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before


def test_a_stage_that_only_measures_is_spared_where_nobody_comes_to_it_anew(first, tmp_path):
    folder, output = first
    tighter = recut(output, {"steps.quality.too_few_words": "word_count < 70"}, str(tmp_path / "tighter"))
    assert (tighter.spared, tighter.again) == (("map",), ("few", "dedup.exact"))
    assert recut(output, {"steps.quality.too_few_words": "word_count < 30"}, str(tmp_path / "wider")).spared == ()
    run(tighter.pipeline, workers=0)
    load(text(folder, "fresh-tighter"), {"steps.quality.too_few_words": "word_count < 70"}).run(workers=0)
    fresh = [row for row in ended(RunOutput.open(str(folder / "fresh-tighter"))) if row["_place"] == "data"]
    assert [row for row in ended(RunOutput.open(str(tmp_path / "tighter"))) if row["_place"] == "data"] == fresh


def rules(folder, more="", write="parquet", end=""):
    pq.write_table(pa.table({"id": [str(i) for i in range(20)], "n": list(range(20)), "bytes": [bytes([i]) * 9 for i in range(20)],
                             "small": [b"s" * i for i in range(20)]}),
                   folder / "in.parquet")
    load(f"read: {{parquet: {{path: {folder}/in.parquet}}}}\nsteps:\n- drop: {{low: n < 5}}\n{more}\nwrite: {write}\n"
         f"out: {folder}/out\n{end}").run(workers=0)
    return RunOutput.open(str(folder / "out"))


def test_samples_of_archives_come_back_with_their_bytes(tmp_path):
    output = rules(tmp_path, write="{webdataset: {metadata_only: [small]}}")  # columns that no shard gives back
    made = recut(output, {"steps.drop.low": "n < 3"}, str(tmp_path / "recut"))
    run(made.pipeline, workers=0)
    again = RunOutput.open(str(tmp_path / "recut"))
    with again.connect() as db:
        rows = db.execute("SELECT id, key, _file, small FROM records WHERE _place = 'data' ORDER BY n").fetchall()
    assert [row[0] for row in rows] == [str(i) for i in range(3, 20)]
    for id, key, file, small in rows:
        assert small == b"s" * int(id)
        part = again.media(file, key)[0]
        assert (tmp_path / "recut" / file).with_suffix(".tar").read_bytes()[part.offset:part.offset + part.size] == bytes([int(id)]) * 9


@pytest.mark.parametrize(("more", "write", "end", "message"), [
    ("- map: {n: n + 1}", "parquet", "",
     "map, behind drop, changes the column 'n'.*`curator run`.* in that run's folder again from the last `checkpoint`"),
    ("", "{parquet: {select: [id]}}", "", "the records written by to_parquet have not .*n.*`curator run`"),
    ("", "parquet", "discard: [dropped]", "20 records came to drop, and of these 15 are in the output"),
    ("- repeat: {times: 2}", "parquet", "", "repeat, behind drop, makes records of others"), ("", "csv", "", "written as csv")])
def test_what_does_not_lie_in_the_output_is_refused_with_what_to_do(tmp_path, more, write, end, message):
    with pytest.raises(CuratorError, match=message):
        recut(rules(tmp_path, more, write, end), {"steps.drop.low": "n < 3"}, str(tmp_path / "recut"))
    assert not (tmp_path / "recut").exists()


def test_neither_the_runs_own_folder_nor_one_that_did_not_end_will_do(tmp_path):
    output = rules(tmp_path)
    for to in (tmp_path / "out", tmp_path / "out" / "data" / "x"):
        with pytest.raises(CuratorError, match="lies in the folder of the run"):
            recut(output, {"steps.drop.low": "n < 3"}, str(to))
    output.stats["status"] = "stopped"
    with pytest.raises(CuratorError, match="is stopped, so not all its records are there"):
        recut(output, {"steps.drop.low": "n < 3"}, str(tmp_path / "recut"))


def test_the_command_says_where_it_begins_and_shows_the_funnel(tmp_path):
    from click.testing import CliRunner

    from curator.cli.main import main

    rules(tmp_path)
    done = CliRunner().invoke(main, ["recut", str(tmp_path / "out"), "--to", str(tmp_path / "recut"), "--set", "steps.drop.low=n < 3",
                                     "--workers", "0"])
    assert done.exit_code == 0, done.output
    assert "20 records, from drop on" in done.output
    assert "20 in = 17 written + 3 dropped" in done.output
