"""What stands in events.jsonl: of the log by itself, and of whole runs that go well, die, or are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from curator import CuratorError
from curator.api.counts import MemoryShort
from curator.api.resources import Node, Place
from curator.engine import events as ev
from curator.engine.protocol import Call, DataLost
from curator.engine.scheduler import refitted
from curator.io.files.folder import Folder
from curator.observe.live import events_log
from curator.observe.live.events_log import BURST, EventLog
from curator.observe.live.observer import Observer
from tests.engine.small_stages import (
    TOKEN,
    DropWord,
    JsonFiles,
    Shout,
    Trouble,
    WaitingSink,
    folders,
    lines,
    orphans,
    wait_until,
    write_lines,
    written,
)

DOCS = Path(__file__).parents[2] / "docs/observe.md"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def told_by(out: Path, **wanted) -> list[dict]:
    return [e for e in told(out / "_run") if all(e.get(k) == v for k, v in wanted.items())]


def documented() -> dict[str, set[str]]:
    """The events of the documentation's table, each with all words of its row that stand in backquotes."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", DOCS.read_text().partition("## Metrics")[0], re.MULTILINE)
    return {event: set(re.findall(r"`(\w+)`", rest)) for event, rest in rows}


def check_documented(events: list[dict]) -> None:
    table = documented()
    for event in events:
        assert set(event) - {"time", "t", "run", "event", "text", "more"} <= table[event["event"]], event


# -- the log by itself ----------------------------------------------------------------------------------------------


def test_a_line_is_there_as_soon_as_it_is_flushed(tmp_path):
    clock = Clock()
    log = EventLog(Folder.open(str(tmp_path)), 3, clock)
    clock.now = 1.5
    log.add("worker_lost", "it died", worker=7, stage=None)
    log.flush()
    (event,) = told(tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {"t": 1.5, "run": 3, "event": "worker_lost", "worker": 7, "text": "it died"}


def test_a_flood_of_one_kind_is_told_in_few_lines_and_none_is_uncounted(tmp_path):
    clock = Clock()
    log = EventLog(Folder.open(str(tmp_path)), 1, clock)
    for i in range(5000):
        log.add("unit_read", f"unit {i}")
    log.add("worker_lost", "of another kind")
    log.flush()
    assert Counter(e["event"] for e in told(tmp_path)) == {"unit_read": BURST, "worker_lost": 1}
    for second in range(10):
        clock.now += 1.0
        for i in range(100):
            log.add("unit_read", f"unit {second} {i}")
        log.flush()
    log.close()
    reads = [e for e in told(tmp_path) if e["event"] == "unit_read"]
    assert BURST + 10 <= len(reads) <= BURST + 12
    assert sum(e.get("more", 1) for e in reads) == 6000 == log.totals["unit_read"]


def test_half_a_line_of_a_machine_that_went_down_is_taken_away(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"event": "run_begin", "run": 1}\n{"event": "wor')
    log = EventLog(Folder.open(str(tmp_path)), 2)
    log.add("run_begin", "again")
    log.close()
    assert [e["run"] for e in told(tmp_path)] == [1, 2]


def test_where_files_cannot_grow_it_is_written_again_now_and_then_and_at_the_end():
    clock, folder = Clock(), Folder.open(f"memory://events-{os.getpid()}/_run")
    folder.write("events.jsonl", b'{"run": 1}\n')
    log = EventLog(folder, 2, clock)

    def runs() -> list[int]:
        return [json.loads(line)["run"] for line in folder.read("events.jsonl").splitlines()]

    log.add("run_begin", "")
    log.flush()
    assert runs() == [1, 2]
    log.add("worker_start", "")
    log.flush()
    assert runs() == [1, 2], "not for every line"
    clock.now += events_log.REWRITE_S
    log.flush()
    assert runs() == [1, 2, 2]
    log.add("run_end", "")
    log.close()
    assert runs() == [1, 2, 2, 2]


def test_a_log_that_cannot_be_written_stops_no_run_and_is_told_at_its_end(tmp_path, monkeypatch):
    log = EventLog(Folder.open(str(tmp_path)), 1)
    write = os.write

    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.add("worker_start", "a")
    log.flush()
    assert "events.jsonl" in log.trouble
    monkeypatch.setattr(os, "write", write)
    log.add("worker_start", "b")
    log.flush()
    assert not log.trouble
    assert [e["text"] for e in told(tmp_path)] == ["a", "b"]
    monkeypatch.setattr(os, "write", full)
    log.add("run_end", "c")
    with pytest.raises(CuratorError, match=r"events\.jsonl"):
        log.close()


# -- what the scheduler says, in words --------------------------------------------------------------------------------


def test_every_event_and_action_has_its_documented_fields(tmp_path):
    observer = Observer(Folder.open(str(tmp_path)), "x", 1)
    steps = (SimpleNamespace(name="ocr"), SimpleNamespace(name="score"))
    observer.begin(units=2, skipped=0, bytes=10, cores=2.0, gpus=0)
    operator = SimpleNamespace(plan=SimpleNamespace(steps=steps, index=0))
    units = [SimpleNamespace(label=name) for name in ("a.pdf", "b.pdf")]
    observer.phase([SimpleNamespace(name="ocr + score", steps=steps)], units, 1, 2)
    observer.see([ev.NodeUp(1, Node(name="n1", cpus=8, gpus=2))], [
        ev.StartWorker(1, 0, (Place(1, (0,)),)), ev.StartWorker(2, 0, (Place(1, (0,)), Place(2, (1,)))), ev.StartWorker(3, 0),
        ev.StartWorker(4, 0)])
    observer.see([ev.WorkerReady(1, 0.25)], [ev.StopWorker(3), ev.Submit(Call(1, 0, "read", units=((0, 1),), worker=1))])
    observer.see([ev.WorkerLost(1, "signal 9", step=1), ev.WorkerLost(3, "it ended")], [
        ev.Report("lost", "a worker of ocr + score is gone: signal 9", details={"worker": 1}),
        ev.Submit(Call(2, 0, "process", units=((0, 0),), worker=2, rows=3, crashes=2)), ev.Submit(Call(3, 0, "process"))])
    observer.see([DataLost(3, "node 2"), ev.NodeDown(2, "no answer")], [
        ev.StopWorker(4, kill=True), ev.Report("lost", "a worker of ocr + score is gone: too slow"),
        ev.Report("restart", "unit 1 starts again", unit=1), ev.Report("retry", "ocr", operator=0),
        ev.Commit(0, 1, {}, {"out": ["f"]}, {}, frozenset(), frozenset()),
        ev.Report("plan", "2 of ocr", details={"workers": {"ocr": 2}, "rate": 1.5, "rate_max": 2.0}),
        refitted(operator, 1, MemoryShort(1, 64, 32, 0.0)), refitted(operator, 1, MemoryShort(0, 0, None, 0.0)),
        *(ev.Report(kind, "told") for kind in get_args(ev.ReportKind) if kind not in (
            "plan", "lost", "restart", "retry", "out_of_memory", "batch_grown"))])
    observer.end("stopped", "by Ctrl-C", {"in": 3})
    events = told(tmp_path)
    check_documented(events)
    assert {e["event"] for e in events} == set(documented()), "the table has what there is, and no more"
    by = {e["event"]: e for e in events}
    assert [(e.get("worker"), e.get("stage"), e.get("reason")) for e in events if e["event"] == "worker_lost"] == [
        (1, "score", "signal 9"), (None, None, None)]
    assert by["worker_end"]["worker"] == 3
    assert [(e.get("gpus"), e.get("places")) for e in events if e["event"] == "worker_start"] == [
        ([0], None), ([0], [[1, 0], [2, 1]]), (None, None), (None, None)]
    assert (by["unit_read"]["unit"], by["unit_read"]["attempt"], by["unit_restart"]["unit"]) == ("a.pdf", 2, "b.pdf")
    assert (by["isolate"]["rows"], by["isolate"]["deaths"], by["isolate"]["units"]) == (3, 2, ["a.pdf"])
    assert observer.dead == 2


def test_a_run_that_breaks_off_says_so_in_its_last_line(tmp_path):
    def broken() -> None:
        with Observer(Folder.open(str(tmp_path)), "x", 1) as observer:
            observer.begin(units=1, skipped=0)
            raise ZeroDivisionError("of ours")

    with pytest.raises(ZeroDivisionError):
        broken()
    assert told(tmp_path)[-1]["status"] == "error"
    assert "ZeroDivisionError: of ours" in told(tmp_path)[-1]["text"]


# -- whole runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, str(tmp_path))
    yield
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not folders(os.getpid())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_from_beginning_to_end(tmp_path, workers):
    texts = write_lines(tmp_path / "in", a=["one", "two bad"], b=["three"])
    result = (lines(texts) >> DropWord() >> Shout() >> JsonFiles(path=str(tmp_path / "out"))).run(workers=workers)
    events = told(tmp_path / "out/_run")
    check_documented(events)
    assert (events[0]["event"], events[0]["units"], events[0]["skipped"]) == ("run_begin", 2, 0)
    assert (events[-1]["event"], events[-1]["status"], events[-1]["records"]) == ("run_end", "finished", result.records)
    assert [e["t"] for e in events] == sorted(e["t"] for e in events)
    started = {e["worker"] for e in events if e["event"] == "worker_start"}
    assert {e["worker"] for e in events if e["event"] == "worker_ready"} <= started
    assert {e["operator"] for e in events if e["event"] == "worker_start"} >= {"drop_word + shout", "write"}
    for event in ("unit_read", "unit_commit"):
        assert len({e["unit"] for e in events if e["event"] == event}) == 2


def test_deaths_and_what_comes_of_them(tmp_path):
    texts = write_lines(tmp_path / "in", a=["one", "die", "three"], b=["four"])
    result = (lines(texts) >> Trouble() >> JsonFiles(path=str(tmp_path / "out"))).run(check=False, workers=2)
    assert result.records["failed"] == 1
    events = told(tmp_path / "out/_run")
    check_documented(events)
    lost = told_by(tmp_path / "out", event="worker_lost", operator="trouble")
    assert len(lost) >= 2
    assert all("signal" in e["reason"].lower() or "kill" in e["reason"].lower() for e in lost), lost
    alone = told_by(tmp_path / "out", event="isolate")
    assert alone[-1]["rows"] == 1
    assert told_by(tmp_path / "out", event="record_failed")
    assert any("Workers were lost: " in alarm["text"] for alarm in result.stats["alarms"])


SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from tests.engine.small_stages import WaitingSink, lines
(lines({texts!r}) >> WaitingSink(path={out!r}, gate={gate!r})).run(workers=2)
"""


def test_after_a_kill_the_events_are_there_and_the_next_attempt_goes_on_in_the_same_file(tmp_path):
    texts, out, gate = write_lines(tmp_path / "in", a=["one"], b=["wait"]), tmp_path / "out", tmp_path / "gate"
    script = SCRIPT.format(here=str(Path(__file__).parents[2]), texts=str(texts), out=str(out), gate=str(gate))
    process = subprocess.Popen([sys.executable, "-c", script])
    try:  # both units are read, and one can never be finished
        wait_until(lambda: (out / "_run/events.jsonl").exists() and len(told_by(out, event="unit_read")) == 2, 60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = told(out / "_run")
    assert before[0]["event"] == "run_begin"
    assert [e["t"] for e in before] == sorted(e["t"] for e in before)
    assert not told_by(out, event="run_end")
    gate.touch()
    assert (lines(texts) >> WaitingSink(path=str(out), gate=str(gate))).run(workers=2).ok
    after = told(out / "_run")
    assert after[:len(before)] == before
    more = after[len(before):]
    assert (more[0]["event"], more[-1]["event"]) == ("run_begin", "run_end")
    assert {e["run"] for e in before} == {before[0]["run"]}
    assert {e["run"] for e in more} == {before[0]["run"] + 1}
    assert [row["text"] for row in written(out)] == ["one", "wait"]
