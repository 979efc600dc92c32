"""Whole runs on this machine: processes, deaths, interruptions, edits."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from curator_dedup import DedupExact

from curator import CuratorError
from curator.machine.folders import make_folders
from curator.worker import processes
from tests.engine.small_stages import (
    TOKEN,
    Children,
    DropWord,
    DyingSink,
    FirstOfText,
    Frames,
    JsonFiles,
    Loses,
    MeanFrame,
    NoSetup,
    Shout,
    Trouble,
    folders,
    kept_aside,
    lines,
    orphans,
    remains,
    wait_until,
    words,
    write_lines,
    written,
)

STARTED: list[int] = []  # processes with a run of their own
MODES = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    """After every test: no process and no shared memory of a run."""
    monkeypatch.setenv(TOKEN, str(tmp_path))
    yield
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not folders(os.getpid())
    assert not remains(*STARTED)


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", a=["one", "two bad", "three"], b=["four", "bad five"], empty=[])


def sink(tmp_path, name="out", **options):
    return JsonFiles(path=str(tmp_path / name), **options)


def ids(rows):
    return [row["id"] for row in rows]


@MODES
def test_every_record_ends_in_one_place_and_the_numbers_say_which(tmp_path, texts, workers):
    result = (lines(texts) >> DropWord() >> Shout() >> sink(tmp_path)).run(check=False, workers=workers)
    out = tmp_path / "out"
    assert result.ok
    assert result.records == {"in": 5, "made": 0, "written": 3, "dropped": 2, "duplicate": 0, "failed": 0, "absorbed": 0}
    assert [row["loud"] for row in written(out)] == ["ONE", "THREE", "FOUR"]
    assert [(row["id"], row["reason"]) for row in kept_aside(out, "dropped")] == [("a:1", "bad_word"), ("b:1", "bad_word")]
    assert json.loads((out / "_run/stats.json").read_text())["records"] == result.records
    assert {p.name for p in (out / "_run").iterdir()} >= {"recipe.yaml", "manifest.json", "ledger", "events.jsonl", "stats.json",
                                                        "report.html"}
    assert not any(name.startswith("_") for row in written(out) for name in row)


@MODES
def test_branches_merges_and_two_sinks_on_one_port(tmp_path, texts, workers):
    checked = lines(texts) >> DropWord()
    good, bad = checked.to(sink(tmp_path, "copy")), checked.port("dropped") >> Shout()
    result = ((good + bad) >> words >> JsonFiles()).named("x", out=str(tmp_path / "out")).run(check=False, workers=workers)
    assert result.ok
    assert ids(written(tmp_path / "copy")) == ["a:0", "a:2", "b:0"]
    assert ids(written(tmp_path / "out")) == ["a:0", "a:1", "a:2", "b:0", "b:1"]
    assert result.records["written"] == 8
    assert result.records["made"] == 3
    assert not kept_aside(tmp_path / "out", "dropped")


def test_payloads_cross_processes_in_shared_memory(tmp_path):
    texts = write_lines(tmp_path / "in", a=["x" * n for n in range(1, 20)])
    result = (lines(texts) >> Frames() >> MeanFrame() >> sink(tmp_path)).run(check=False, workers=2)
    assert result.ok
    assert {row["mean"] for row in written(tmp_path / "out")} == {float(n) for n in range(1, 20)}


# -- troubles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["raise", "die", "hang", "stop"])
def test_a_bad_record_fails_alone_whatever_it_does(tmp_path, trouble):
    slow = trouble in ("hang", "stop")  # each death takes the limit, which must be long for what is innocent and short for us
    around = ["fine"] * (1 if slow else 6)
    texts = write_lines(tmp_path / "in", a=[*around, trouble, *around], b=["fine"] * 5)
    stage = Trouble(limit_s=1.0 if slow else None)
    result = (lines(texts) >> stage >> sink(tmp_path)).named("x", max_failed=1).run(check=False, workers=2)
    assert result.ok, result.stats["message"]
    rest, bad = 2 * len(around) + 5, f"a:{len(around)}"
    assert {n: count for n, count in result.records.items() if count} == {"in": rest + 1, "written": rest, "failed": 1}
    failed, = kept_aside(tmp_path / "out", "failed")
    assert failed["id"] == bad
    late = "longer than its limit of 1 s"
    assert {"raise": f"cannot stand {bad}", "die": "SIGKILL", "hang": late, "stop": late}[trouble] in failed["error"]
    assert bad not in ids(written(tmp_path / "out"))


@pytest.mark.parametrize("passing", ["once", "once kill"])
def test_a_passing_trouble_costs_no_record(tmp_path, passing):
    marks = tmp_path / "marks"
    marks.mkdir()
    texts = write_lines(tmp_path / "in", a=["fine", passing, "fine", "fine"])
    result = (lines(texts) >> Trouble(marks=str(marks)) >> sink(tmp_path)).run(check=False, workers=2)
    assert result.records["written"] == 4


@pytest.mark.parametrize(("texts", "max_failed", "ok"), [
    (["raise", "raise", "fine"], 0.7, True), (["raise", "raise", "fine"], 0.6, False), (["raise", "fine"], 0.01, True),
    (["raise"], 0.5, False), (["raise", "fine", "fine"], 0, False)])
def test_the_share_of_failures_that_is_too_much_ends_in_failure(tmp_path, texts, max_failed, ok):
    """One of several is never too much of them, unless none is to fail."""
    made = lines(write_lines(tmp_path / "in", a=texts)) >> Trouble() >> sink(tmp_path)
    result = made.named("x", max_failed=max_failed).run(check=False, workers=0)
    assert result.ok == ok
    failed = f"{texts.count('raise')} of {len(texts)} records failed, more than max_failed = {max_failed:g} allows"
    assert (failed in result.stats["message"]) != ok


@pytest.mark.parametrize(("all_or_one", "ok"), [(1.0, True), (1, False)])
def test_a_share_of_1_is_all_records_and_the_number_1_is_one(tmp_path, all_or_one, ok):
    made = lines(write_lines(tmp_path / "in", a=["raise", "raise"])) >> Trouble() >> sink(tmp_path)
    assert made.named("x", max_failed=all_or_one).run(check=False, workers=0).ok == ok


def test_a_number_of_failures_that_is_too_much_stops_the_run_which_can_continue(tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{i}": ["raise"] * 5 + ["fine"] for i in range(6)})
    made = lines(texts) >> Trouble() >> sink(tmp_path)
    stopped = made.named("x", max_failed=7).run(check=False, workers=0)
    assert stopped.stats["status"] == "stopped"
    assert "more than max_failed = 7 allows" in stopped.stats["message"]
    finished = made.named("x", max_failed=30).run(check=False, workers=0)
    assert finished.ok
    assert finished.records["failed"] == 30
    assert len(written(tmp_path / "out")) == 6


@MODES
def test_a_stage_that_cannot_be_set_up_stops_the_run_and_says_why(tmp_path, texts, workers):
    result = (lines(texts) >> NoSetup() >> sink(tmp_path)).run(check=False, workers=workers)
    assert result.stats["status"] == "stopped"
    assert "no_setup" in result.stats["message"]
    assert "the model file is not there" in result.stats["message"]


@MODES
def test_a_stage_that_loses_rows_stops_the_run_and_is_named(tmp_path, texts, workers):
    result = (lines(texts) >> Loses() >> sink(tmp_path)).run(check=False, workers=workers)
    assert result.stats["status"] == "stopped"
    assert "stage 'loses': 1 of" in result.stats["message"]


def test_a_sink_that_fails_stops_the_run_and_says_why(tmp_path, texts):
    result = (lines(texts) >> sink(tmp_path, fail="write")).run(check=False, workers=2)
    assert result.stats["status"] == "stopped"
    assert "this sink cannot write" in result.stats["message"]
    assert (lines(texts) >> sink(tmp_path)).run(check=False, workers=2).records["written"] == 5


def test_an_input_that_vanishes_is_one_failed_record(tmp_path, texts):
    made = (lines(texts) >> sink(tmp_path)).named("x", max_failed=1)
    plan_then_remove = made.sinks[0].inputs[0].node.stage
    listed = plan_then_remove.units()
    plan_then_remove.units = lambda: listed
    (texts / "b.txt").unlink()
    result = made.run(check=False, workers=0)
    assert result.records["failed"] == 1
    assert kept_aside(tmp_path / "out", "failed")[0]["id"].endswith("b.txt")


def fill(monkeypatch, *which):
    """Make some of the folders for batches as good as full."""
    def filled():
        made = make_folders()
        for at in which:
            for worker in range(1, 10):
                for number in range(40):
                    Path(made[at][0], f"w{worker}-{number}").symlink_to("/dev/full")
        return made

    monkeypatch.setattr(processes, "make_folders", filled)


def test_full_shared_memory_makes_a_run_slower_and_nothing_else(tmp_path, monkeypatch):
    texts = write_lines(tmp_path / "in", a=["x" * n for n in range(1, 20)])
    fill(monkeypatch, 0)
    result = (lines(texts) >> Frames() >> MeanFrame() >> sink(tmp_path)).run(check=False, workers=2)
    assert result.ok
    assert {row["mean"] for row in written(tmp_path / "out")} == {float(n) for n in range(1, 20)}


def test_no_room_at_all_stops_the_run_and_says_what_to_do(tmp_path, monkeypatch):
    texts = write_lines(tmp_path / "in", a=["x" * n for n in range(1, 20)])
    fill(monkeypatch, 0, 1)
    result = (lines(texts) >> Frames() >> MeanFrame() >> sink(tmp_path)).run(check=False, workers=2)
    assert result.stats["status"] == "stopped"
    assert "are full. Free space there" in result.stats["message"]
    monkeypatch.undo()
    assert (lines(texts) >> Frames() >> MeanFrame() >> sink(tmp_path)).run(check=False, workers=2).records["written"] == 19


# -- interruptions ------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from tests.engine.small_stages import *
read = lines({texts!r}, delay_s=0.01, batch=2)
made = read >> DropWord() >> FirstOfText() >> Trouble(marks={marks!r}) >> JsonFiles(path={out!r})
result = made.named("x", max_failed=100).run(check=False, workers=2)
print(result.stats["status"], result.stats["message"])
sys.exit(not result.ok)
"""


def start_run(texts: Path, out: Path) -> subprocess.Popen:
    """A run in a process of its own. While it has a record `gate` to do and the gate is closed, it cannot end."""
    here = Path(__file__).parents[2]
    script = SCRIPT.format(here=str(here), texts=str(texts), out=str(out), marks=str(texts.parent))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    STARTED.append(process.pid)
    return process


def open_gate(texts: Path) -> None:
    Path(texts.parent, "open").touch()


@pytest.mark.slow  # in test_ledger.py a run dies at every change of the disk, in test_phases.py in each phase
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_moment_and_started_again_the_result_is_the_same(tmp_path, seed):
    import random

    rng = random.Random(seed)
    content = {f"f{i:02}": [rng.choice(["bad", "raise", f"sleep {rng.randrange(40)}"]) if rng.random() < 0.7 else f"text {i} {k}"
                            for k in range(8)] for i in range(14)}
    texts = write_lines(tmp_path / "in", **content, last=["gate"])
    process, kills = start_run(texts, tmp_path / "out"), 0
    wait_until(lambda: list((tmp_path / "out/data").glob("part-*")))  # however fast the machine is, it is killed while it works
    while process.returncode is None:
        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        process.communicate(timeout=120)
        open_gate(texts)
        kills += 1
        process = start_run(texts, tmp_path / "out")
        with contextlib.suppress(subprocess.TimeoutExpired):  # on a slow one it needs ever more time to get on
            told = process.communicate(timeout=rng.uniform(0.4, 1.6) * 1.4**kills)
    assert process.returncode == 0, told
    undisturbed = start_run(texts, tmp_path / "calm")
    assert undisturbed.wait(120) == 0, undisturbed.communicate()
    once, calm = written(tmp_path / "out"), written(tmp_path / "calm")
    assert len(ids(once)) == len(set(ids(once)))
    assert sorted(row["text"] for row in once) == sorted(row["text"] for row in calm)
    for ending in ("dropped", "failed"):  # of equal texts any one may be the first
        told = [sorted(row["text"] for row in kept_aside(tmp_path / name, ending)) for name in ("out", "calm")]
        assert told[0] == told[1]
    kept = set(ids(once)) | set(ids(kept_aside(tmp_path / "out", "failed")))
    copies = kept_aside(tmp_path / "out", "duplicate")
    assert {row["duplicate_of"] for row in copies} <= kept
    assert len(copies) == len(kept_aside(tmp_path / "calm", "duplicate"))
    stats = [json.loads((tmp_path / name / "_run/stats.json").read_text()) for name in ("out", "calm")]
    assert stats[0]["records"] == stats[1]["records"]
    assert not [s for s in stats[0]["alarms"] if s["level"] == "error"]


def test_when_the_parent_of_the_workers_dies_the_run_stops_and_can_continue(tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{i}": [f"text {i} {k}" for k in range(30)] for i in range(8)}, last=["gate"])
    process = start_run(texts, tmp_path / "out")
    wait_until(lambda: list((tmp_path / "out/data").glob("part-*")))
    os.kill(int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]), signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (1, "")
    assert "the process that holds the workers has died" in out
    open_gate(texts)
    replay = start_run(texts, tmp_path / "out")
    assert replay.wait(120) == 0
    assert json.loads((tmp_path / "out/_run/stats.json").read_text())["records"]["in"] == 241


def test_when_the_driver_and_the_parent_of_the_workers_die_at_once_nothing_is_left(tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{i}": [f"text {i} {k}" for k in range(30)] for i in range(8)}, last=["gate"])
    process = start_run(texts, tmp_path / "out")
    wait_until(lambda: list((tmp_path / "out/data").glob("part-*")))
    fork_server = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    assert folders(process.pid)
    process.send_signal(signal.SIGSTOP)  # so that neither sees the other die
    os.kill(fork_server, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=120)
    wait_until(lambda: not folders(process.pid))
    open_gate(texts)
    assert start_run(texts, tmp_path / "out").wait(120) == 0


def test_ctrl_c_stops_cleanly_and_the_same_command_continues(tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{i}": [f"text {i} {k}" for k in range(30)] for i in range(8)}, last=["gate"])
    process = start_run(texts, tmp_path / "out")
    wait_until(lambda: list((tmp_path / "out/data").glob("part-*")))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert out.startswith("stopped stopped by Ctrl-C; the same command continues it")
    stats = json.loads((tmp_path / "out/_run/stats.json").read_text())
    assert stats["status"] == "stopped"
    open_gate(texts)
    replay = start_run(texts, tmp_path / "out")
    assert replay.wait(120) == 0
    assert json.loads((tmp_path / "out/_run/stats.json").read_text())["records"]["in"] == 241


# -- a second run ---------------------------------------------------------------------------------------------------


def times(out: Path) -> dict[str, int]:
    return {p.name: p.stat().st_mtime_ns for p in (out / "data").glob("part-*")}


@MODES
def test_the_same_recipe_again_does_nothing_and_tells_the_same(tmp_path, texts, workers):
    made = lines(texts) >> DropWord() >> sink(tmp_path)
    first = made.run(check=False, workers=workers)
    before = times(tmp_path / "out")
    second = made.run(check=False, workers=workers)
    assert times(tmp_path / "out") == before
    assert second.records == first.records
    assert second.stats["units"]["skipped"] == 3


@MODES
def test_a_new_and_a_changed_input_are_done_and_nothing_else(tmp_path, texts, workers):
    made = lines(texts) >> DropWord() >> sink(tmp_path)
    first = made.run(check=False, workers=workers).stats
    before = times(tmp_path / "out")
    write_lines(texts, b=["bad", "new"], c=["six"])
    result = made.run(check=False, workers=workers)
    assert result.stats["units"]["skipped"] == 2
    assert "latest_seconds" not in first
    latest = result.stats["latest_seconds"]
    assert 0 < latest == pytest.approx(result.stats["seconds"] - first["seconds"], abs=0.002)
    assert [row["text"] for row in written(tmp_path / "out")] == ["one", "three", "new", "six"]
    assert len(before.items() & times(tmp_path / "out").items()) == 1  # that of a; the empty one has none
    assert len(kept_aside(tmp_path / "out", "dropped")) == 2


@MODES
def test_after_an_edit_no_old_result_survives(tmp_path, texts, workers):
    (lines(texts) >> DropWord() >> sink(tmp_path)).run(check=False, workers=workers)
    result = (lines(texts) >> DropWord(word="o") >> sink(tmp_path)).run(replace=True, check=False, workers=workers)
    assert [row["text"] for row in written(tmp_path / "out")] == ["three", "bad five"]
    assert [row["text"] for row in kept_aside(tmp_path / "out", "dropped")] == ["one", "two bad", "four"]
    assert result.records["in"] == 5


def test_only_the_sinks_after_the_edit_are_done_again(tmp_path, texts):
    def made(suffix):
        read = lines(texts)
        return (read.to(sink(tmp_path, "plain")) >> Shout(suffix=suffix) >> JsonFiles()).named("x", out=str(tmp_path / "out"))

    first = made("").run(check=False, workers=2)
    before = times(tmp_path / "plain")
    second = made("!").run(replace=True, check=False, workers=2)
    assert times(tmp_path / "plain") == before
    assert [row["loud"] for row in written(tmp_path / "out")][:1] == ["ONE!"]
    assert second.records == first.records
    assert len(written(tmp_path / "out")) == 5


def test_inputs_that_are_gone_are_not_forgotten_silently(tmp_path, texts):
    made = lines(texts) >> sink(tmp_path)
    made.run(check=False, workers=0)
    (texts / "b.txt").unlink()
    with pytest.raises(CuratorError, match=r"results of an input that this recipe no longer reads .*b\.txt.*--prune"):
        made.run(check=False, workers=0)
    assert len(written(tmp_path / "out")) == 5
    assert made.run(check=False, workers=0, prune=True).records["in"] == 3
    assert len(written(tmp_path / "out")) == 3


@pytest.mark.parametrize("stateful", [False, True])
def test_what_was_written_and_is_gone_is_told_and_made_again_when_asked(tmp_path, stateful):
    texts = write_lines(tmp_path / "in", a=["same", "only a", "bad a"], b=["same", "only b"])
    made = lines(texts) >> DropWord() >> (FirstOfText() if stateful else Shout()) >> sink(tmp_path)
    first = made.run(check=False, workers=0)
    before, aside = written(tmp_path / "out"), kept_aside(tmp_path / "out", "dropped")
    gone = next(path for path in (tmp_path / "out/data").iterdir() if "only a" in path.read_text())
    rows = len(written(tmp_path / "out"))
    gone.unlink()
    rows -= len(written(tmp_path / "out"))
    told = made.run(check=False, workers=0)
    assert told.ok
    note, = (alarm["text"] for alarm in told.stats["alarms"])
    assert re.search(rf"lacks 1 file that the run there wrote, with {rows} records? \(data/{gone.name}\).*--prune", note)
    assert len(written(tmp_path / "out")) == len(before) - rows  # nothing is done unasked
    said = []
    again = made.run(check=False, workers=0, prune=said.append)
    assert [line.endswith("they are made again") for line in said] == [True]
    assert sorted(written(tmp_path / "out"), key=lambda row: row["id"]) == sorted(before, key=lambda row: row["id"])
    assert kept_aside(tmp_path / "out", "dropped") == aside
    assert again.records == first.records
    assert again.stats["units"]["skipped"] == 1
    assert not made.run(check=False, workers=0).stats["alarms"]


def test_a_file_whose_input_is_gone_too_is_not_said_to_be_made_again(tmp_path):
    texts = write_lines(tmp_path / "in", a=["of a"], b=["of b"], c=["of c"])
    made = lines(texts) >> sink(tmp_path)
    made.run(workers=0)
    for path in [path for path in (tmp_path / "out/data").iterdir() if "of c" not in path.read_text()]:
        path.unlink()
    (texts / "a.txt").unlink()
    said = []
    made.run(workers=0, prune=said.append)
    lost, missing = said
    assert "results of an input" in lost
    assert lost.endswith("are removed")
    assert "lacks 1 file that the run there wrote, with 1 record (" in missing
    assert missing.endswith("they are made again")
    assert [row["text"] for row in written(tmp_path / "out")] == ["of b", "of c"]


def test_when_the_kept_copy_vanishes_another_takes_its_place(tmp_path):
    texts = write_lines(tmp_path / "in", a=["same", "only a"], b=["same", "only b"], c=["only c"])
    made = lines(texts) >> FirstOfText() >> sink(tmp_path)
    made.run(check=False, workers=0)
    assert sorted(row["text"] for row in written(tmp_path / "out")) == ["only a", "only b", "only c", "same"]
    holder = next(row["id"] for row in written(tmp_path / "out") if row["text"] == "same")[0]
    write_lines(texts, **{holder: [f"only {holder}"]})
    result = made.run(check=False, workers=0)
    assert sorted(row["text"] for row in written(tmp_path / "out")) == ["only a", "only b", "only c", "same"]
    assert result.records["duplicate"] == 0
    assert result.stats["units"]["skipped"] == 1  # c rests on nothing that changed


def test_new_inputs_are_compared_with_what_earlier_runs_kept(tmp_path):
    texts = write_lines(tmp_path / "in", a=["same", "x"])
    made = lines(texts) >> FirstOfText() >> sink(tmp_path)
    made.run(check=False, workers=2)
    write_lines(texts, b=["y", "same"])
    result = made.run(check=False, workers=2)
    assert [row["text"] for row in written(tmp_path / "out")] == ["same", "x", "y"]
    copy, = kept_aside(tmp_path / "out", "duplicate")
    assert (copy["id"], copy["duplicate_of"]) == ("b:1", "a:0")
    assert result.records["duplicate"] == 1


def test_children_keep_their_parents_name(tmp_path, texts):
    result = (lines(texts) >> Children() >> sink(tmp_path)).run(check=False, workers=2)
    assert result.records["made"] == 5
    assert ids(written(tmp_path / "out"))[:2] == ["a:0#0", "a:0#1"]


def test_rows_that_are_discarded_are_counted_and_not_kept(tmp_path, texts):
    made = lines(texts) >> DropWord() >> sink(tmp_path)
    result = replace(made, settings=replace(made.settings, discard=("dropped",))).run(check=False, workers=0)
    assert result.records["dropped"] == 2
    assert not (tmp_path / "out/dropped").exists()


# -- duplicates over failures and edits ----------------------------------------------------------------------------------


@MODES
def test_an_edit_after_deduplication_keeps_the_same_survivors_in_every_sink(tmp_path, workers):
    texts = write_lines(tmp_path / "in", a=["same", "x", "same"], b=["same", "y"], c=["y", "z"])

    def made(suffix):
        unique = lines(texts) >> DedupExact(column="text")
        both = unique.to(sink(tmp_path, "plain")) >> Shout(suffix=suffix) >> JsonFiles()
        return both.named("x", out=str(tmp_path / "out"))

    made("").run(check=False, workers=workers)
    plain = written(tmp_path / "plain")
    assert sorted(row["text"] for row in plain) == ["same", "x", "y", "z"]
    write_lines(texts, d=["same", "new"])  # comes first or last, it does not take the place of what was kept
    made("!").run(replace=True, check=False, workers=workers)
    assert ids(written(tmp_path / "out")) == ids(written(tmp_path / "plain"))
    assert set(ids(plain)) <= set(ids(written(tmp_path / "plain")))
    assert {row["loud"] for row in written(tmp_path / "out")} == {"SAME!", "X!", "Y!", "Z!", "NEW!"}


@pytest.mark.parametrize("after", [False, True], ids=["before its file is there", "after that"])
def test_units_that_start_again_give_each_record_once(tmp_path, after):
    """A sink's worker dies at the end of a unit, with all that it had of others: who reads the folder finds no trace of it."""
    marks = tmp_path / "marks"
    marks.mkdir()
    content = {f"f{i}": [f"text {i % 3} {k % 20}" for k in range(30)] for i in range(8)}
    texts = write_lines(tmp_path / "in", **content)
    dying = DyingSink(path=str(tmp_path / "out"), marks=str(marks), after=after)
    result = (lines(texts) >> DedupExact(column="text") >> dying).run(check=False, workers=2)
    assert result.ok, result.stats["message"]
    assert sorted(row["text"] for row in written(tmp_path / "out")) == sorted({t for ts in content.values() for t in ts})
    assert len(kept_aside(tmp_path / "out", "duplicate")) == result.records["duplicate"] == 240 - 60
    assert list(marks.iterdir())
