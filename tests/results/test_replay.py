"""Records that failed run again: what stands in the folder then is what a run leaves in which they had not failed."""

import os

import pytest
from click.testing import CliRunner
from curator_dedup import DedupExact

from curator import CuratorError
from curator.cli.main import main
from curator.front import from_source, load
from curator.run.replay import Replay
from curator.stages import Drop, Top
from tests.engine.small_stages import JsonFiles, kept_aside, lines, write_lines, written
from tests.engine.test_ledger import crashes
from tests.results.fixable import Fixable, FixableChildren, FixableFrames, FixableLines, Frames, Measured

CONTENT = {"a": ["same", "bad same", "x bad", "alpha"], "b": ["bad same", "late bad", "a worse one"], "c": ["fine", "same"]}


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "broken").touch()
    return write_lines(tmp_path / "in", **CONTENT)


def mend(tmp_path):
    (tmp_path / "broken").unlink()


def pipeline(texts, out, *stages):
    made = lines(texts)
    for one in stages:
        made = made >> one
    return (made >> JsonFiles()).named("x", out=str(out), max_failed=0.9)


def two_that_fail(tmp_path):
    """Scores, rules and comparison, with two stages that fail for records of their own."""
    return (Measured(), Fixable(marks=str(tmp_path)), Fixable(marks=str(tmp_path), word="worse", column="other").with_(name="other"),
            Drop(conditions={"late": "text like 'late%'"}), DedupExact(column="text"))


def go(pipeline, replay=None):
    return pipeline.run(workers=0, check=False, replay=replay)


def told(result):
    """What the run says of itself but times."""
    stages = [{k: v for k, v in s.items() if k not in ("busy_s", "rows_per_s", "workers", "tables")} for s in result.stats["stages"]]
    outputs = [{k: v for k, v in o.items() if k in ("stage", "port", "rows")} for o in result.stats["outputs"]]
    return stages, outputs, result.records, result.stats["first_errors"], result.stats["alarms"]


def rows(out):
    """Which records ended where, but for which of two equal ones was first."""
    aside = {port: sorted((r["text"], r.get("reason") or "") for r in kept_aside(out, port)) for port in ("dropped", "duplicate", "failed")}
    return aside | {"data": sorted((r["text"], r["length"]) for r in written(out / "data"))}


def test_after_a_replay_everything_is_as_if_nothing_had_failed(tmp_path, texts):
    made = pipeline(texts, tmp_path / "out", *two_that_fail(tmp_path))
    first = go(made)
    assert first.records["failed"] == 5
    mend(tmp_path)
    replay = Replay()
    again = go(made, replay)
    calm = go(pipeline(texts, tmp_path / "calm", *two_that_fail(tmp_path)))
    assert told(again) == told(calm)
    assert rows(tmp_path / "out") == rows(tmp_path / "calm")
    assert (replay.rows, replay.units) == ({"fixable": 4, "other": 1}, 0)
    assert not list((tmp_path / "out/failed").rglob("*.parquet"))

    nothing = Replay()
    assert told(go(made, nothing)) == told(calm)
    assert not nothing.rows
    assert not nothing.whole
    assert go(made).stats["units"]["skipped"] == 3  # the ledger has it as done


def test_only_what_is_asked_for_runs_again_and_what_fails_again_has_its_new_error(tmp_path, texts):
    made = pipeline(texts, tmp_path / "out", *two_that_fail(tmp_path))
    go(made)
    by_stage = Replay(stage="other")
    assert go(made, by_stage).records["failed"] == 5  # it is still broken
    assert by_stage.rows == {"other": 1}
    by_error = Replay(error="'BAD same'")
    write_lines(tmp_path, marker=["x"])
    assert go(made, by_error).records["failed"] == 5
    assert by_error.rows == {"fixable": 2}
    failed = kept_aside(tmp_path / "out", "failed")
    assert sorted(r["text"] for r in failed) == ["a worse one", "bad same", "bad same", "late bad", "x bad"]

    mend(tmp_path)
    result = go(made, by_error)
    assert result.records["failed"] == 3
    assert {r["text"] for r in kept_aside(tmp_path / "out", "failed")} == {"a worse one", "late bad", "x bad"}
    stage = next(s for s in result.stats["stages"] if s["name"] == "fixable")
    assert (stage["in"], stage["failed"], stage["out"]) == (9, 2, {"out": 7})
    go(made, Replay())
    go(calm := pipeline(texts, tmp_path / "calm", *two_that_fail(tmp_path)))
    assert rows(tmp_path / "out") == rows(tmp_path / "calm"), calm


def test_a_reduction_behind_sees_the_replayed_records_too(tmp_path, texts):
    stages = (Fixable(marks=str(tmp_path)), Top(n=3, by="length"))
    made = pipeline(texts, tmp_path / "out", *stages)
    go(made)
    assert sorted(len(r["text"]) for r in written(tmp_path / "out/data")) == [4, 5, 11]
    mend(tmp_path)
    again = go(made, Replay())
    calm = go(pipeline(texts, tmp_path / "calm", *stages))
    assert rows(tmp_path / "out") == rows(tmp_path / "calm")
    assert told(again) == told(calm)


@pytest.mark.parametrize("stages", [(Frames, FixableFrames), (FixableChildren,)], ids=["payload", "children"])
def test_what_cannot_run_alone_is_read_again_with_its_unit(tmp_path, texts, stages):
    chain = [s(marks=str(tmp_path)) if issubclass(s, Fixable) else s() for s in stages]
    made = pipeline(texts, tmp_path / "out", *chain)
    first = go(made)
    mend(tmp_path)
    replay = Replay()
    again = go(made, replay)
    calm = go(pipeline(texts, tmp_path / "calm", *chain))
    assert first.records["failed"] == 4
    assert told(again) == told(calm)
    assert (sum(replay.whole.values()), replay.units, replay.rows) == (4, 2, {})
    assert sorted(r["id"] for r in written(tmp_path / "out/data")) == sorted(r["id"] for r in written(tmp_path / "calm/data"))


def test_a_unit_that_could_not_be_read_is_read_again(tmp_path, texts):
    source = from_source(FixableLines(path=str(texts), marks=str(tmp_path)))
    made = (source >> JsonFiles()).named("x", out=str(tmp_path / "out"), max_failed=0.9)
    first = go(made)
    assert (first.records["in"], first.records["failed"]) == (7, 1)
    mend(tmp_path)
    replay = Replay(stage="fixable_lines")
    again = go(made, replay)
    assert (again.records["in"], again.records["written"], replay.units) == (9, 9, 1)


@pytest.mark.slow
def test_a_replay_may_die_at_every_change_of_the_disk(tmp_path, texts, monkeypatch):
    """Units whose rows run alone, and one that is read again as a whole."""
    monkeypatch.setattr("curator.run.loop.LEDGER_S", 0.0)
    monkeypatch.setattr("curator.run.loop.LEDGER_SHARE", 0.0)
    stages = (*two_that_fail(tmp_path), Frames(), FixableFrames(marks=str(tmp_path), word="fine"), Top(n=20, by="length"))
    made = pipeline(texts, tmp_path / "out", *stages)
    assert go(made).records["failed"] == 6
    mend(tmp_path)
    assert crashes(lambda: go(made, Replay())) > 20
    again = go(made)
    calm = go(pipeline(texts, tmp_path / "calm", *stages))
    assert rows(tmp_path / "out") == rows(tmp_path / "calm")
    assert told(again)[:3] == told(calm)[:3]


def test_results_of_code_that_has_changed_are_kept_on_request_only(tmp_path, texts, monkeypatch):
    made = pipeline(texts, tmp_path / "out", *two_that_fail(tmp_path))
    go(made)
    mend(tmp_path)
    monkeypatch.setattr(Fixable, "version", 2)
    made = pipeline(texts, tmp_path / "out", *two_that_fail(tmp_path))
    with pytest.raises(CuratorError, match=r"fixable .version 2 of its code.*--keep-passed"):
        go(made, Replay())
    (texts / "c.txt").rename(tmp_path / "c.txt")
    with pytest.raises(CuratorError, match="no longer reads"):
        go(made, Replay(keep_passed=True))
    (tmp_path / "c.txt").rename(texts / "c.txt")
    with pytest.raises(CuratorError, match="version 2 of its code"):  # what was refused has changed nothing
        go(made, Replay())
    replay = Replay(keep_passed=True)
    assert go(made, replay).records["failed"] == 0
    assert sum(replay.rows.values()) == 5
    assert go(made).stats["units"]["skipped"] == 3  # and a run has nothing to do

    os.utime(texts / "a.txt")
    edited = pipeline(texts, tmp_path / "out", *two_that_fail(tmp_path)[:-1], DedupExact(column="length"))
    with pytest.raises(CuratorError, match="recipe is not that of the run"):
        go(edited, Replay(keep_passed=True))


def test_the_command_says_what_ran_again_and_what_is_left(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(f'{{"id": "{text}", "text": "{text}"}}\n' for text in ("1", "x", "3", "y")))
    out = tmp_path / "out"
    load(f"""
read: {{jsonl: {{path: {tmp_path}/in.jsonl}}}}
steps: [{{map: {{number: CAST(text AS INTEGER)}}}}]
write: jsonl
max_failed: 90%
out: {out}
""").run(workers=0)

    def told(*options):
        answer = CliRunner().invoke(main, ["replay", str(out), "-q", "--workers", "0", *options])
        return answer.exit_code, answer.output

    code, said = told()
    assert code == 0
    assert "2 records that had failed in map ran again from there." in said
    assert f"Failed now: 2 records. Why: curator failures {out}" in said
    assert "Nothing in map with 'no such' in its error is left" in told("--stage", "map", "--error", "no such")[1]
    assert told("--stage", "nowhere")[0] == 2
    assert sorted(r["id"] for r in kept_aside(out, "failed")) == ["x", "y"]
