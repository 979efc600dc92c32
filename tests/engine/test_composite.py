"""Stages that are made of others: users see one stage, whose records add up, whatever its parts do with copies."""

import json

import pyarrow.parquet as pq
import pytest

from curator import RecipeError, read, stage
from curator.api.errors import ContractError
from curator.api.stage import Composite
from curator.pipeline.plan import make_plan
from curator.stages import Drop, Select
from curator.trial.preview import preview
from tests.engine.composites import Counted, Unlike, UnlikeAndTold
from tests.engine.small_stages import JsonFiles, kept_aside, lines, write_lines, written

CONTENT = {"a": ["one", "two", "three", "one"], "b": ["four", "two", "three"], "c": ["one", "six"]}


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", **CONTENT)


def made(texts, out, *after):
    pipeline = lines(texts) >> Unlike()
    for one in after:
        pipeline = pipeline >> one
    return pipeline >> JsonFiles(path=str(out))


def by_name(stats):
    return {s["name"]: s for s in stats["stages"]}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_the_funnel_shows_one_stage_and_adds_up(texts, tmp_path, workers, mode):
    out = tmp_path / "out"
    result = made(texts, out).run(workers=workers, mode=mode)
    assert result.ok
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]
    assert sorted(r["text"] for r in written(out)) == ["four", "one", "six", "three", "two"]
    assert result.records == {"in": 9, "made": 0, "written": 5, "dropped": 0, "duplicate": 4, "failed": 0, "absorbed": 0}
    stages = by_name(result.stats)
    assert [s["name"] for s in result.stats["stages"]][1:-1] == ["unlike"]
    assert stages["unlike"]["in"] == 9
    assert stages["unlike"]["duplicate"] == 4
    assert set(stages["unlike"]["columns"]) == {"cluster_size", "cluster_sizes"}
    assert stages["unlike"]["columns"]["cluster_size"]["max"] == 3
    assert stages["unlike"]["columns"]["cluster_sizes"]["values"] == {"2": 4, "3": 3}
    counted = stages["unlike"]["by_value"]["source"].values()
    assert sum(sum(ports.values()) for ports in counted) == 9
    assert sum(ports.get("duplicate", 0) for ports in counted) == 4
    assert stages["unlike"]["extra"] == {"groups": 3}
    assert stages["unlike"]["lines"] == ["up to 3 alike in 3 groups"]
    assert sum(n for _, n, _ in stages["unlike"]["tables"][0]["rows"]) == 4
    assert {"level": "note", "stage": "unlike", "text": "unlike has 3 groups"} in result.stats["alarms"]
    assert len(kept_aside(out, "duplicate")) == 4
    named = [f for f in result.stats["files"] if f["port"] == "clusters"]
    assert {f["stage"] for f in named} == {"unlike"}
    assert sum(f["rows"] for f in named) == 7
    assert pq.read_table(out / "clusters" / "unlike").num_rows == 7


def test_it_is_done_again_only_when_something_changed(texts, tmp_path):
    out = tmp_path / "out"
    made(texts, out).run(workers=0)
    before = json.loads((out / "_run" / "stats.json").read_text())["files"]
    replay = made(texts, out).run(workers=0)
    assert replay.ok
    assert replay.stats["files"] == before
    write_lines(tmp_path / "in", d=["six", "seven"])
    more = made(texts, out).run(workers=0)
    assert more.ok
    assert sorted(r["text"] for r in written(out)) == ["four", "one", "seven", "six", "three", "two"]


def test_two_in_a_row_have_names_of_their_own(texts, tmp_path):
    result = made(texts, tmp_path / "out", Unlike()).run(workers=0)
    stages = by_name(result.stats)
    assert stages["unlike"]["duplicate"] == 4
    assert stages["unlike-2"]["duplicate"] == 0
    assert stages["unlike-2"]["in"] == 5


def test_what_a_part_cannot_do_is_failed_and_counted_and_the_record_goes_on(texts, tmp_path):
    rows = [{"id": f"r{n}", "text": text} for n, text in enumerate(["a", None, "a"])]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = read(str(tmp_path / "in.jsonl")) >> Unlike() >> JsonFiles(path=str(tmp_path / "out"))
    result = pipeline.named("p", max_failed=1).run(workers=0, check=False)
    assert result.records == {"in": 3, "made": 1, "written": 2, "dropped": 0, "duplicate": 1, "failed": 1, "absorbed": 0}
    assert by_name(result.stats)["unlike"]["failed"] == 1
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]


def test_a_missing_column_is_told_in_its_name(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(ContractError, match="stage 'unlike' needs 'text'"):
        make_plan(read(str(tmp_path / "a.jsonl")) >> Unlike() >> JsonFiles(path=str(tmp_path / "out")))


def test_a_preview_shows_the_records_and_not_the_copies(texts, tmp_path):
    shown = {p.name: p for p in preview(made(texts, tmp_path / "out"), 9)}
    assert list(shown)[1:] == ["unlike"]
    assert shown["unlike"].before.num_rows == 9
    assert set(shown["unlike"].outputs) == {"out", "duplicate"}


class Parted(Composite):
    """Two ways through parts, one for each record, that meet in the last one."""

    def expand(self, rows, folder, storage_options):
        short = rows >> Drop(conditions={"short": "length(text) < 2"})
        return (short >> Select(drop=["more"])) + (short.port("dropped") >> Select(drop=["more"])) >> Select(drop=["none"])


def test_records_that_come_by_two_parts_are_given_once(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": "x" * n, "more": n, "none": 0}) + "\n" for n in range(5)))
    result = (read(str(tmp_path / "in.jsonl")) >> Parted() >> JsonFiles(path=str(tmp_path / "out"))).run(workers=0)
    assert result.records == {"in": 5, "made": 0, "written": 5, "dropped": 0, "duplicate": 0, "failed": 0, "absorbed": 0}
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]


@pytest.mark.parametrize(("whole", "made", "absorbed", "written"), [(UnlikeAndTold(), 1, 0, 6), (Counted(), 0, 8, 1)])
def test_what_a_composite_makes_of_copies_or_of_the_records_adds_up(texts, tmp_path, whole, made, absorbed, written):
    result = (lines(texts) >> whole >> JsonFiles(path=str(tmp_path / "out"))).run(workers=0)
    assert {key: result.records[key] for key in ("in", "made", "absorbed", "written")} == {
        "in": 9, "made": made, "absorbed": absorbed, "written": written}
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]


@stage(needs={"text"})
def split_long(batch):
    """Two of each text of five characters, none is left of others; raises at a text of three."""
    if any(len(text) == 3 for text in batch.column("text")):
        raise ValueError("three")
    rows = [at for at, text in enumerate(batch.column("text")) for _ in range(2 if len(text) == 5 else 1)]
    made = batch.take(rows)
    return made.with_columns({"id": [f"{i}-{n}" for n, i in enumerate(made.column("id"))]})


class Front(Composite):
    """Records that are dropped, fail, and are made before the last part sees any."""

    def expand(self, rows, folder, storage_options):
        return rows >> Drop(conditions={"short": "length(text) < 2"}) >> split_long >> Select(drop=["none"])


@pytest.mark.parametrize("workers", [0, 2])
def test_records_that_end_or_are_made_in_front_of_the_last_part_add_up(tmp_path, workers):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": "x" * n, "none": 0}) + "\n" for n in range(6)))
    pipeline = read(str(tmp_path / "in.jsonl")) >> Front() >> JsonFiles(path=str(tmp_path / "out"))
    result = pipeline.named("p", max_failed=1).run(workers=workers, check=False)
    assert result.records == {"in": 6, "made": 1, "written": 4, "dropped": 2, "duplicate": 0, "failed": 1, "absorbed": 0}
    assert by_name(result.stats)["front"]["dropped"] == {"short": 2}
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]
    assert len(kept_aside(tmp_path / "out", "dropped")) == 2


class Nothing(Composite):
    def expand(self, rows, folder, storage_options):
        return rows


def test_a_composite_of_nothing_is_refused(texts, tmp_path):
    with pytest.raises(RecipeError, match="nothing"):
        make_plan(lines(texts) >> Nothing() >> JsonFiles(path=str(tmp_path / "out")))
