"""The driver with many small units: what it keeps of one that is finished, and the files of its ledger."""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque

import pytest

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.api.stage import SourceRange, Unit, WrittenFile
from curator.api.summary import ColumnSummary
from curator.engine import events as ev
from curator.engine.protocol import Call, Done, Flushed, Output, Ref
from curator.engine.scheduler import Scheduler
from curator.io.files.folder import Folder
from curator.pipeline.plan import Phase
from curator.run.folder.ledger import Ledger
from curator.run.folder.ledger_files import MERGE, LedgerFiles, State
from tests.engine.scenario import chain, make_stage
from tests.marks import soaked_after


def answer(call: Call, sink: int) -> Done:
    """What a worker says at once: a row a unit, with a column that it looked at."""
    if call.kind == "flush":
        (unit, attempt), = call.units
        return Done(call.id, flushed=Flushed({0: [WrittenFile(f"part-{unit}-{attempt}", 1, 100)]}))
    units = [u for u, _ in call.units]
    outputs = tuple(Output(0, "out", u, Ref(b"", 1, 1000)) for u in units) if call.operator != sink else ()
    return Done(call.id, outputs, {u: {0: Counts(rows_in=1, out={"out": 1}, columns={"n": ColumnSummary(1, 0, 1, 1, None)})}
                                      for u in units}, 0.01)


@pytest.mark.parametrize("count", soaked_after(1, [2000, 100_000]))
def test_a_finished_unit_costs_the_driver_less_than_a_kilobyte(tmp_path, count):
    """And nothing of it is left in the scheduler: what is under way is as much at the end as in the middle."""
    phase = Phase(0, tuple(chain(make_stage())))
    for step in phase.operators[-1].steps:
        step.stage.path = str(tmp_path / "data")
    units = [Unit((SourceRange(uri=f"/in/{n:08d}", size_bytes=9),)) for n in range(count)]
    ledger = Ledger(Folder.open(str(tmp_path)))
    ledger.prepare(phase, [(0, unit) for unit in units])
    scheduler = Scheduler(phase.operators, [(0, None)] * count, {0: Node(cpus=2)})
    answers, done, bytes_at, under_way = deque(), 0, {}, {}
    actions = scheduler.start(0.0)
    tracemalloc.start()
    while True:
        for action in actions:
            match action:
                case ev.StartWorker():
                    answers.append(ev.WorkerReady(action.worker))
                case ev.Submit():
                    answers.append(answer(action.call, len(phase.operators) - 1))
                case ev.Commit():
                    ledger.add(phase, units[action.unit], action, units)
                    done += 1
                    if done % 500 == 0:
                        ledger.flush(1.0)
                    if done in (count // 4, count - 100):
                        gc.collect()
                        bytes_at[done] = tracemalloc.get_traced_memory()[0]
                        under_way[done] = len(scheduler.state.units)
        if scheduler.finished:
            break
        actions = scheduler.handle([answers.popleft()], 0.0)
    tracemalloc.stop()
    (few, at_few), (many, at_many) = bytes_at.items()
    assert (at_many - at_few) / (many - few) < 1024
    assert under_way[many] <= under_way[few] + 100
    assert not scheduler.state.units
    ledger.flush(2.0)
    replay = Ledger(Folder.open(str(tmp_path)))
    assert replay.done == count
    assert replay.counts() == ledger.counts()
    assert replay.counts()["op1.0"].rows_in == count


def line(unit: int, value: int) -> bytes:
    return b'{"unit":"%016x","label":"","uris":[],"stages":{"a":{"key":"k","counts":{"in":%d}}},"depends":[]}' % (unit, value)


def test_files_of_a_ledger_stay_few_and_their_lines_are_not_written_over_and_over(tmp_path, monkeypatch):
    monkeypatch.setattr("curator.run.folder.ledger_files.SMALL_BYTES", 1000)
    files, written = LedgerFiles(Folder.open(str(tmp_path))), 0
    add = files.add

    def counted(lines, state):
        nonlocal written
        name = add(lines, state)
        written += files.sizes[name]
        return name

    files.add = counted
    for number in range(300):
        state = State(elapsed={1: float(number)}, done=number + 1, totals={"a": {"in": number + 1}})
        files.add([line(number, 1)], lambda state=state: state)
        files.merge(state)
    assert len(list(tmp_path.iterdir())) == len(files.sizes) <= 4 * MERGE
    assert written < 12 * sum(files.sizes.values())
    read = LedgerFiles(Folder.open(str(tmp_path)))
    assert len({line for _, _, line in read.units()}) == 300
    assert read.states[0] == state


def test_of_a_unit_the_newest_line_counts_and_only_that(tmp_path):
    files = LedgerFiles(Folder.open(str(tmp_path)))
    files.add([line(1, 1), line(2, 10)], State)
    files.add([line(1, 100)], State)
    assert sorted(line for _, _, line in files.units()) == sorted([line(1, 100), line(2, 10)])


@pytest.mark.parametrize("left", ["merged", "rewritten"])
def test_old_files_that_a_death_left_count_neither_twice_nor_again(tmp_path, monkeypatch, left):
    """A merge or a rewriting was cut short before it deleted a large file that it stands for; then small ones are merged."""
    monkeypatch.setattr("curator.run.folder.ledger_files.MERGE", 2)
    monkeypatch.setattr("curator.run.folder.ledger_files.SMALL_BYTES", 1000)
    folder, old = Folder.open(str(tmp_path)), [line(number, 1) for number in range(20)]
    LedgerFiles(folder).add(old, lambda: State(done=20))
    again = old if left == "merged" else old[:1]
    LedgerFiles(folder).add(again, lambda: State(done=len(again), reset=left == "rewritten"))
    files = LedgerFiles(folder)
    for number in range(20, 26):
        assert [one for _, _, one in files.units()][-len(again):] == again
        again.insert(0, line(number, 1))
        files.add(again[:1], State)
        files.merge(State())
    assert sorted(one for _, _, one in LedgerFiles(folder).units()) == sorted(again)
