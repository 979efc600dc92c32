"""Barriers and batch mode: whole runs over several phases, interrupted, edited and continued."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupNear

from curator import CuratorError, read, write
from curator.api.errors import ContractError
from curator.pipeline.plan import make_plan
from curator.run.folder.guard import check_installed, list_units
from curator.run.folder.ledger import ledgers_of
from curator.run.pace import Pace
from curator.run.reading import Reading
from curator.stages import Limit, Merge, Parquet, Top
from curator.trial.explain import explain
from tests.engine.reductions import Broken, CountText, Total, Words
from tests.engine.small_stages import (
    TOKEN,
    Children,
    DropWord,
    FirstOfText,
    Frames,
    JsonFiles,
    MeanFrame,
    Payloads,
    Shout,
    Trouble,
    Unsaid,
    folders,
    kept_aside,
    lines,
    orphans,
    wait_until,
    write_lines,
    written,
)
from tests.engine.test_ledger import crashes
from tests.marks import soaked_after

STARTED: list[int] = []  # processes with a run of their own
WORKERS = pytest.mark.parametrize("workers", [0, 2])
MODES = pytest.mark.parametrize("mode", ["stream", "batch"])
CONTENT = {"a": ["one", "two bad", "three", "one"], "b": ["four", "bad five", "three"], "c": ["one", "six"], "empty": []}
GOOD = [text for name in CONTENT for text in CONTENT[name] if "bad" not in text]


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """After every test: no process and no shared memory of a run."""
    monkeypatch.setenv(TOKEN, str(tmp_path))
    yield
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not folders(os.getpid(), *STARTED)


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", **CONTENT)


def sink(folder, **options):
    return JsonFiles(path=str(folder), **options)


def counted(texts, out, suffix="", add=0, word="bad"):
    """A sink in the first phase, a reduction, a stage and a sink behind it."""
    before = (lines(texts) >> DropWord(word=word)).to(sink(out / "before"))
    made = before >> CountText(add=add) >> Shout(suffix=suffix) >> sink(out / "loud")
    return made.named("x", out=str(out))


def answers(out, add=0, suffix=""):
    """Checks what `counted` has written."""
    loud = written(out / "loud")
    assert len({row["id"] for row in loud}) == len(loud)
    assert sorted((r["loud"], r["count"]) for r in loud) == sorted(
        (t.upper() + suffix, GOOD.count(t) + add) for t in GOOD)
    assert sorted(r["text"] for r in written(out / "before")) == sorted(GOOD)
    assert sorted(r["text"] for r in kept_aside(out, "dropped")) == ["bad five", "two bad"]


def phases(result):
    """Units done now, by phase."""
    return [p["units"]["total"] - p["units"]["skipped"] for p in result.stats["phases"]]


def sums_up(result):
    """The identity of accounting, for the run and for each stage; no alarm says otherwise."""
    records = result.records
    assert records["in"] + records["made"] == sum(records[e] for e in ("written", "dropped", "duplicate", "failed", "absorbed"))
    for s in result.stats["stages"]:
        assert s["in"] + s["made"] == sum(s["out"].values()) + sum(s["dropped"].values()) + sum(
            s[e] for e in ("duplicate", "failed", "absorbed")), s["name"]
    assert not [a for a in result.stats["alarms"] if a["level"] == "error"]


# -- what a reduction sees and answers --------------------------------------------------------------------------------


@WORKERS
@MODES
def test_a_reduction_answers_each_row_knowing_all(tmp_path, texts, workers, mode):
    result = counted(texts, tmp_path / "out").run(workers=workers, mode=mode)
    answers(tmp_path / "out")
    sums_up(result)
    assert result.records == {"in": 9, "made": 7, "written": 14, "dropped": 2, "duplicate": 0, "failed": 0, "absorbed": 0}
    names = [s["name"] for s in result.stats["stages"]]
    assert names == ["lines", "drop_word", "json_files", "count_text", "shout", "json_files-2"]
    assert not any("spool" in f["path"] for f in result.stats["files"])
    assert phases(counted(texts, tmp_path / "out").run(workers=workers, mode=mode)) == [0] * len(result.stats["phases"])


@WORKERS
def test_rows_can_be_absorbed_and_others_made_of_them(tmp_path, texts, workers):
    result = (lines(texts) >> Words() >> sink(tmp_path / "out")).run(workers=workers, replace=True)
    assert [(r["id"], r["count"]) for r in written(tmp_path / "out")] == sorted(
        Counter(t for some in CONTENT.values() for t in some).items())
    assert not any("text" in row for row in written(tmp_path / "out"))
    assert result.records == {"in": 9, "made": 6, "written": 6, "dropped": 0, "duplicate": 0, "failed": 0, "absorbed": 9}
    sums_up(result)


@WORKERS
def test_a_reduction_without_a_key_has_one_shard_also_when_nothing_comes(tmp_path, texts, workers):
    both = lines(texts) >> DropWord()
    made = (both >> Total() >> sink(tmp_path / "good")) + (both.port("dropped") >> Total() >> sink(tmp_path / "bad"))
    nothing = lines(write_lines(tmp_path / "none", empty=[])) >> Total() >> sink(tmp_path / "nothing")
    result = (made + nothing).named("x", out=str(tmp_path / "out")).run(workers=workers, replace=True)
    assert [[r["total"] for r in written(tmp_path / name)] for name in ("good", "bad", "nothing")] == [[7], [2], [0]]
    sums_up(result)


@WORKERS
@MODES
def test_reductions_in_a_row_in_a_branch_and_a_merge_behind_them(tmp_path, texts, workers, mode):
    """The branch crosses one barrier, the main line two; both meet again, and all of it is counted."""
    checked = lines(texts) >> DropWord()
    good = checked >> CountText() >> Shout().with_(name="between") >> CountText(add=100).with_(name="again")
    bad = checked.port("dropped") >> CountText().with_(name="of_bad")
    made = ((good + bad) >> Merge() >> Shout().with_(name="both")).to(sink(tmp_path / "copy")) >> sink(tmp_path / "out")
    result = made.named("x", out=str(tmp_path / "out")).run(workers=workers, mode=mode)
    expected = sorted([*((t.upper(), GOOD.count(t) + 100) for t in GOOD), ("TWO BAD", 1), ("BAD FIVE", 1)])
    for place in ("out", "copy"):
        assert sorted((r["loud"], r["count"]) for r in written(tmp_path / place)) == expected
    sums_up(result)
    assert result.records["written"] == 18


@WORKERS
def test_batch_mode_writes_what_streaming_writes(tmp_path, texts, workers):
    """Routes, merges, several sinks on one port, a stateful stage, children, payloads, failures."""

    def made(out):
        unique = lines(texts) >> FirstOfText() >> Trouble()
        high = unique >> Frames() >> MeanFrame() >> Children()
        routed = (unique.port("duplicate") + high) >> Merge() >> Shout()
        routes = routed.to(sink(out / "all")).route({"long": "length(text) > 4", "short": "length(text) <= 4"})
        long = routes["long"] >> Shout(suffix="!").with_(name="louder") >> sink(out / "long")
        return (long + (routes["short"] >> sink(out / "short"))).named("x", out=str(out), max_failed=5)

    (texts / "d.txt").write_text("raise this\nseven\n")
    ends = {}
    for mode in ("stream", "batch"):
        result = made(tmp_path / mode).run(workers=workers, mode=mode)
        sums_up(result)
        kept = {e: [r["text"] for r in kept_aside(tmp_path / mode, e)] for e in ("dropped", "failed")}
        ends[mode] = kept | {name: sorted((r["loud"], r.get("mean") or 0) for r in written(tmp_path / mode / name))
                             for name in ("all", "long", "short")}
        ends[mode]["records"] = result.records
    assert ends["stream"] == ends["batch"]
    assert ends["stream"]["failed"] == ["raise this"]
    assert len(result.stats["phases"]) > 5


def test_a_limit_in_batch_mode_drops_what_was_already_read(tmp_path, texts):
    result = (lines(texts) >> Shout() >> Limit(records=2) >> sink(tmp_path / "out")).run(workers=0, mode="batch")
    assert (result.records["written"], result.records["dropped"]) == (2, 7)
    sums_up(result)


@MODES
def test_files_of_records_and_a_store_in_memory(mode, tmp_path):
    source, out = tmp_path / "in.jsonl", f"memory://phases-{mode}"
    source.write_text("".join(json.dumps({"id": f"r{i}", "q": i % 7, "l": "ab"[i % 2]}) + "\n" for i in range(100)))
    made = read(str(source)) >> Top(by="q", n=3, key="l") >> write(out, format="parquet")
    result = made.run(mode=mode)
    assert (result.records["written"], result.records["dropped"]) == (6, 94)
    sums_up(result)
    assert not any(phases(made.run(mode=mode)))
    assert sorted((r["l"], r["q"], r["id"]) for r in records_of(out)) == [
        ("a", 6, "r20"), ("a", 6, "r34"), ("a", 6, "r48"), ("b", 6, "r13"), ("b", 6, "r27"), ("b", 6, "r41")]


def records_of(out):
    source = Parquet(path=out)
    return [row for unit in source.units() for batch in source.read(unit) for row in batch.rows.to_pylist()]


@MODES
def test_a_payload_ends_with_the_last_stage_that_names_it(tmp_path, texts, mode):
    """So that decoded images and frames are not carried to the sinks, nor kept at a barrier."""
    barrier = Top(by="text", n=100)
    made = {"later": [Payloads(wanted=("timestamps",)), barrier, MeanFrame()], "now": [MeanFrame(), barrier, Payloads()],
            "unsaid": [barrier, Unsaid()]}
    seen = {}
    for name, stages in made.items():
        out = tmp_path / name
        pipeline = reduce(lambda before, one: before >> one, [Frames(), *stages, sink(out / "all")], lines(texts))
        sums_up(pipeline.named("x", out=str(out)).run(workers=0, mode=mode, replace=True))
        rows = written(out / "all")
        seen[name] = {row.get("payloads") for row in rows} | ({"mean"} if all("mean" in row for row in rows) else set())
    assert seen == {"later": {"frames timestamps", "mean"}, "now": {"", "mean"}, "unsaid": {"frames timestamps"}}


def test_an_edit_behind_a_barrier_that_wants_a_payload_gets_it(tmp_path, texts):
    def made(*more):
        pipeline = lines(texts) >> Frames() >> MeanFrame() >> Top(by="mean", n=100)
        for one in more:
            pipeline = pipeline >> one
        return (pipeline >> sink(tmp_path / "all")).named("x", out=str(tmp_path))

    assert spools(made()) == spools(made(Shout()))
    assert made().run(workers=0, replace=True).ok
    result = made(MeanFrame().with_(name="again"), Payloads(wanted=("frames",))).run(workers=0, replace=True)
    sums_up(result)
    assert {row["payloads"] for row in written(tmp_path / "all")} == {"frames"}


def test_what_a_sink_wants_of_records_that_go_around_a_reduction_leaves_what_is_before_it(tmp_path, texts):
    def made(**wanted):
        kept = read(Parquet(path=str(tmp_path / "rows.parquet"))) >> DedupNear(column="hash", distance=1)
        return (kept >> write(str(tmp_path / "out"), format="webdataset", **wanted)).named("x", out=str(tmp_path / "out"))

    hashes = pa.array([bytes(8)], pa.binary(8))
    rows = pa.table({"id": ["a"], "bytes": [b"x"], "extension": ["jpg"], "hash": hashes, "small": [b"s"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert len(spools(made())) > 3
    assert spools(made()) == spools(made(metadata_only=["small"]))


def spools(pipeline):
    return [step.key for phase in make_plan(pipeline).phases for step in phase.steps if step.spool]


# -- interruptions and edits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "often"), soaked_after(1, [("stream", True), ("stream", False), ("batch", True), ("batch", False)]))
def test_a_run_may_die_at_every_change_of_the_disk_in_every_phase(tmp_path, texts, mode, often, monkeypatch):
    """Also while files of the ledgers are merged."""
    if often:
        monkeypatch.setattr("curator.run.loop.LEDGER_S", 0.0)
        monkeypatch.setattr("curator.run.loop.LEDGER_SHARE", 0.0)
        monkeypatch.setattr("curator.run.folder.ledger_files.MERGE", 2)

    assert crashes(lambda: counted(texts, tmp_path / "out").run(workers=0, replace=True, mode=mode)) > 15
    result = counted(texts, tmp_path / "out").run(workers=0, mode=mode, replace=True)
    answers(tmp_path / "out")
    sums_up(result)
    named = {Path(f["path"]).name for f in result.stats["files"]}
    assert {p.name for p in (tmp_path / "out").rglob("part-*") if "_run" not in p.parts} == named


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from tests.engine.small_stages import *
from tests.engine.reductions import *
import curator.io.spool
curator.io.spool.SHARDS_BYTES = 1  # each shard a unit of its own, as with much data
before = lines({texts!r}, batch=2) >> Trouble(marks={first!r}) >> CountText()
made = before >> Trouble(marks={second!r}).with_(name="behind") >> JsonFiles(path={out!r})
result = made.named("x").run(check=False, workers=2)
print(result.stats["status"], result.stats["message"])
"""


@pytest.mark.parametrize("last", soaked_after(1, [signal.SIGKILL, signal.SIGTERM]))
def test_killed_in_each_phase_and_started_again_the_result_is_the_same(tmp_path, last):
    """In both phases one unit waits at a gate when the driver is killed; others may be done, or wait in the same call."""
    content = {f"f{i}": [f"text {i % 5} {k % 3}" for k in range(12)] for i in range(9)} | {"last": ["gate"]}
    texts, out = write_lines(tmp_path / "in", **content), tmp_path / "out"
    gates = [tmp_path / name for name in ("first", "second")]
    for gate in gates:
        gate.mkdir()
    here = str(Path(__file__).parents[2])
    script = SCRIPT.format(here=here, texts=str(texts), first=str(gates[0]), second=str(gates[1]), out=str(out))
    for gate in gates:
        for number in (signal.SIGKILL, last):
            driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
            STARTED.append(driver.pid)
            # The driver, the process that forks, and workers: it is in the middle of its work.
            wait_until(lambda gate=gate: len(orphans(str(tmp_path))) > 2 and (gate / "waits").exists(), 60)
            (gate / "waits").unlink()
            driver.send_signal(number)
            driver.communicate(timeout=60)
            assert driver.returncode in (-number, 0)
            wait_until(lambda: not orphans(str(tmp_path)))
        (gate / "open").touch()
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.strip() == "finished"
    every = [t for some in content.values() for t in some]
    assert sorted((r["text"], r["count"]) for r in written(out)) == sorted((t, every.count(t)) for t in every)
    stats = json.loads((out / "_run/stats.json").read_text())
    assert (stats["records"]["in"], stats["records"]["written"]) == (len(every), len(every))
    assert not [a for a in stats["alarms"] if a["level"] == "error"]
    assert {p.name for p in out.rglob("part-*") if "_run" not in p.parts} == {Path(f["path"]).name for f in stats["files"]}


@WORKERS
def test_an_edit_after_the_barrier_leaves_what_is_before_it(tmp_path, texts, workers):
    out = tmp_path / "out"
    counted(texts, out).run(workers=workers, replace=True)
    assert phases(counted(texts, out, suffix="!").run(workers=workers, replace=True)) == [0, 1]
    answers(out, suffix="!")
    result = counted(texts, out, suffix="!", add=10).run(workers=workers, replace=True)
    assert phases(result) == [0, 1]
    answers(out, suffix="!", add=10)
    sums_up(result)


def test_an_edit_before_the_barrier_does_all_of_it_again(tmp_path, texts):
    out = tmp_path / "out"
    counted(texts, out, word="six").run(workers=0, replace=True)
    old = {p.name for p in (out / "_run/spool").rglob("part-*")}
    result = counted(texts, out).run(workers=0, replace=True)
    assert phases(result) == [4, 1]
    answers(out)
    sums_up(result)
    assert old.isdisjoint(p.name for p in (out / "_run/spool").rglob("part-*"))


def test_an_edit_clears_what_is_behind_the_barrier_before_anything_is_done(tmp_path, texts):
    out = tmp_path / "out"
    counted(texts, out).run(workers=0, replace=True)
    stopping = counted(texts, out, word="one")
    stopping.sinks[0].stage.fail = "write"
    stopped = stopping.run(workers=0, check=False, replace=True)
    assert stopped.stats["status"] == "stopped"
    assert written(out / "loud") == [] == written(out / "before")
    counted(texts, out).run(workers=0, replace=True)
    answers(out)


def test_new_and_changed_inputs_are_done_and_then_the_shards(tmp_path, texts):
    out = tmp_path / "out"
    counted(texts, out).run(workers=0, replace=True)
    (texts / "d.txt").write_text("one\n")
    result = counted(texts, out).run(workers=0, replace=True)
    assert phases(result) == [1, 1]
    assert Counter(r["count"] for r in written(out / "loud") if r["loud"] == "ONE") == {4: 4}
    (texts / "d.txt").unlink()
    with pytest.raises(CuratorError, match="--prune"):
        counted(texts, out).run(workers=0, replace=True)
    result = counted(texts, out).run(workers=0, prune=True)
    assert phases(result) == [0, 1]
    answers(out)
    sums_up(result)


def test_from_one_mode_to_the_other_and_without_the_barrier_nothing_old_stays(tmp_path, texts):
    out = tmp_path / "out"
    for mode in ("stream", "batch", "stream"):
        sums_up(counted(texts, out).run(workers=0, mode=mode, replace=True))
        answers(out)
    plain = (lines(texts) >> DropWord() >> sink(out / "loud")).named("x", out=str(out))
    sums_up(plain.run(workers=0, replace=True))
    assert sorted(r["text"] for r in written(out / "loud")) == sorted(GOOD)
    assert not list((out / "_run/spool").rglob("part-*"))
    assert not any(p.is_file() for p in (out / "_run/ledger-2").iterdir())
    counted(texts, out).run(workers=0, replace=True)
    answers(out)


def test_a_spool_that_was_removed_is_made_again_when_it_is_needed(tmp_path, texts):
    out = tmp_path / "out"
    counted(texts, out).run(workers=0, replace=True)
    shutil.rmtree(out / "_run/spool")
    assert phases(counted(texts, out).run(workers=0, replace=True)) == [0, 0]
    result = counted(texts, out, suffix="!").run(workers=0, replace=True)
    assert phases(result) == [3, 1]  # a file without records spooled nothing
    answers(out, suffix="!")
    sums_up(result)


def test_a_run_folder_may_be_moved(tmp_path, texts):
    def made(out, n):
        return lines(texts) >> Top(by="text", n=n) >> write(str(out), format="parquet")

    made(tmp_path / "old", 2).run(workers=0, replace=True)
    (tmp_path / "old").rename(tmp_path / "new")
    assert phases(made(tmp_path / "new", 2).run(workers=0, replace=True)) == [0, 0]
    assert phases(made(tmp_path / "new", 3).run(workers=0, replace=True)) == [0, 1]
    assert sorted(row["text"] for row in records_of(str(tmp_path / "new"))) == ["three", "three", "two bad"]


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "how", "workers"), [("absorb", "raise", 0), ("finish", "raise", 2), ("absorb", "die", 2),
                                                       ("finish", "hang", 2)])
def test_what_no_row_is_to_blame_for_stops_the_run_and_loses_nothing(tmp_path, texts, where, how, workers):
    (texts / "d.txt").write_text("hurt\n")
    made = lines(texts) >> Broken(where=where, how=how).with_(timeout_s=0.5 if how == "hang" else None) >> sink(tmp_path / "out")
    stopped = made.run(workers=workers, check=False)
    assert stopped.stats["status"] == "stopped"
    told = {"raise": f"ValueError: cannot {where} this", "die": "the worker died: killed by SIGKILL",
            "hang": "a call took longer than its limit of 0.5 s"}[how]
    assert "broken" in stopped.stats["message"]
    assert told in stopped.stats["message"]
    assert not kept_aside(tmp_path / "out", "failed")
    calm = (lines(texts) >> Broken(where="nowhere", how=how) >> sink(tmp_path / "out")).run(workers=workers, replace=True)
    assert calm.records["written"] == 10
    sums_up(calm)


@pytest.mark.parametrize(("where", "how"), [("absorb", "raise"), ("finish", "raise"), ("process", "die"), ("absorb", "die")])
def test_a_passing_trouble_costs_time_only(tmp_path, texts, where, how):
    (texts / "d.txt").write_text("hurt\n")
    (tmp_path / "marks").mkdir()
    made = lines(texts) >> Broken(where=where, how=how, marks=str(tmp_path / "marks")) >> sink(tmp_path / "out")
    result = made.run(workers=2)
    assert (tmp_path / "marks/once").exists()
    assert sorted((r["text"], r["count"]) for r in written(tmp_path / "out")) == sorted(
        (t, n) for t, n in Counter([*(t for some in CONTENT.values() for t in some), "hurt"]).items() for _ in range(n))
    sums_up(result)


@WORKERS
def test_a_row_that_pass_two_cannot_stand_fails_alone(tmp_path, texts, workers):
    (texts / "d.txt").write_text("hurt\n")
    result = (lines(texts) >> Broken(where="process") >> sink(tmp_path / "out")).named("x", max_failed=1).run(workers=workers)
    assert (result.records["written"], result.records["failed"]) == (9, 1)
    assert [r["text"] for r in kept_aside(tmp_path / "out", "failed")] == ["hurt"]
    sums_up(result)


@pytest.mark.parametrize("max_failed", [1, 0.0015])
def test_failures_count_over_all_phases(tmp_path, max_failed):
    """One record fails before the barrier and one behind it: together they are too many."""
    texts = write_lines(tmp_path / "in", a=["raise before", *(f"text {i}" for i in range(99))])
    made = lines(texts) >> Trouble() >> CountText() >> Broken(where="process").with_(name="second") >> sink(tmp_path / "out")
    (texts / "b.txt").write_text("hurt\n")
    result = made.named("x", max_failed=max_failed).run(workers=0, check=False)
    assert result.stats["status"] == "stopped"
    assert f"2 of 101 records failed, more than max_failed = {max_failed:g} allows" in result.stats["message"]


def test_a_watcher_sees_every_phase(tmp_path, texts):
    seen = []
    (lines(texts, delay_s=0.1, batch=1) >> CountText() >> Trouble().with_(name="slow") >> sink(tmp_path / "out")).run(
        workers=0, watch=lambda shot: seen.append(dict(shot)))
    assert {s["phases"] for s in seen} == {2}
    assert all(s["units_done"] <= s["units_total"] for s in seen)


def test_the_bytes_read_a_second_begin_anew_with_no_phase(tmp_path, texts, monkeypatch):
    """And of a phase that an earlier run had begun those that it read do not count."""
    now = [0.0]
    monkeypatch.setattr("curator.run.pace.time", SimpleNamespace(monotonic=lambda: now[0]))
    plan = make_plan(lines(texts) >> CountText() >> sink(tmp_path / "out"))
    loops = []
    pace = Pace(plan, loops)
    for phase, before in zip(plan.phases, (0, 7_000), strict=True):
        reading = Reading([1_000, before], todo=1)
        loops.append(SimpleNamespace(phase=phase, reading=reading, state=None, behind=False, busy_s=dict, being_read=lambda most: [],
                                     progress=lambda reading=reading: reading.bytes(None)))
        for _ in range(20):
            now[0] += 1
            reading.done += 50
            rate = pace.look({}, 1, set())["bytes_rate"]
        assert rate == pytest.approx(50)


LACKS = r"^wants wants not_there.at_all, which is not installed: pip install not-there$"


@dataclass
class Wants(Trouble):
    requires = {"json": "", "os.path": "", "not_there.at_all": "pip install not-there"}


@pytest.mark.parametrize("how", [{"workers": 0}, {"workers": 2}, {"ray": "local"}], ids=str)
def test_a_library_that_a_stage_behind_a_barrier_wants_is_asked_for_before_anything_runs(tmp_path, texts, how):
    made = lines(texts) >> CountText() >> Wants() >> sink(tmp_path / "out")
    with pytest.raises(CuratorError, match=LACKS):
        made.run(**how)
    assert not list((tmp_path / "out/_run").glob("ledger*"))  # nothing was begun
    assert explain(make_plan(made)).count(LACKS.strip("^$")) == 1


def test_what_the_driver_of_a_cluster_lacks_is_a_note(tmp_path, texts):
    """The nodes may have it: those with GPUs have other libraries than a small one that drives the run."""
    plan = make_plan(lines(texts) >> CountText() >> Wants() >> sink(tmp_path / "out"))
    noted = check_installed(plan, ledgers_of(plan, None), list_units(plan), is_here=False)
    assert noted.notes == (f"{LACKS.strip('^$')} (here; a node of the cluster that lacks it cannot run it)",)


def test_an_edit_that_wants_what_is_not_installed_removes_nothing(tmp_path, texts):
    def made(between):
        return lines(texts) >> between >> CountText() >> sink(tmp_path / "out")

    first = made(Trouble()).run(workers=0)
    before = written(tmp_path / "out")
    with pytest.raises(CuratorError, match=LACKS):
        made(Wants()).run(workers=0, replace=True)
    assert written(tmp_path / "out") == before
    assert made(Trouble()).run(workers=0).stats["units"]["skipped"] == first.stats["units"]["total"]


def test_a_run_with_nothing_left_to_do_asks_for_no_library(tmp_path, texts, monkeypatch):
    made = lines(texts) >> CountText() >> Wants() >> sink(tmp_path / "out")
    with monkeypatch.context() as there:
        there.setattr(Wants, "requires", {})
        first = made.run(workers=0)
    assert made.run(workers=0).records == first.records


@dataclass
class Slow(Trouble):
    """Its setup waits for a file called `open` in `marks`."""

    def setup(self, ctx):
        wait_until(Path(self.marks, "open").exists)


def test_a_watcher_is_told_which_stage_rows_wait_for_while_it_is_set_up(tmp_path, texts):
    def watch(shot):
        if shot["limit"].startswith("setting up slow; ") and shot["limit"].endswith(" wait"):
            (tmp_path / "open").touch()

    slow = Slow(marks=str(tmp_path)).with_(name="slow")
    assert (lines(texts) >> slow >> sink(tmp_path / "out")).run(workers=3, watch=watch).ok


def test_a_call_that_is_under_way_keeps_its_core_busy(tmp_path, monkeypatch):
    monkeypatch.setattr("curator.run.numbers.SHORT_S", 0.0)
    texts = write_lines(tmp_path / "in", a=["gate"])

    def watch(shot):
        if re.search(r"the 4 cores are only (1\d|2[0-5])% busy", shot["limit"]):  # one of four
            (tmp_path / "open").touch()

    assert (lines(texts) >> Trouble(marks=str(tmp_path)) >> sink(tmp_path / "out")).run(workers=4, watch=watch).ok


# -- plans ----------------------------------------------------------------------------------------------------------------


def test_a_plan_without_a_barrier_has_one_phase_and_no_spool(tmp_path, texts):
    plan = make_plan(lines(texts) >> DropWord() >> sink(tmp_path / "out"))
    assert len(plan.phases) == 1
    assert not any(s.spool for s in plan.phases[0].steps)


def test_the_key_of_a_reduction_and_what_it_absorbs_must_be_there(tmp_path, texts):
    with pytest.raises(ContractError, match=r"'count_text' needs 'txt'.*did you mean 'text'"):
        make_plan(lines(texts) >> CountText(key="txt") >> sink(tmp_path / "out"))


def test_the_plan_tells_of_phases(tmp_path, texts):
    told = counted(texts, tmp_path / "out").plan()
    for words in ("2 phases", "phase 2 of 2", "3 shards by text"):
        assert words in told
    assert "phase 4 of 4" in counted(texts, tmp_path / "out").plan(mode="batch")


def test_a_preview_goes_over_a_barrier_without_writing(tmp_path, texts):
    from curator.trial.preview import preview

    shown = {p.name: p for p in preview(counted(texts, tmp_path / "out"), 5)}
    assert shown["count_text"].outputs["out"].column("count").to_pylist()[0] == 2
    assert list(shown) == ["lines", "drop_word", "count_text", "shout"]
    assert not (tmp_path / "out").exists()
