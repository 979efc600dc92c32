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
from curator.run.folder.ledger_files import MERGE, LedgerFiles
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

    def counted(lines):
        nonlocal written
        name = add(lines)
        written += files.sizes[name]
        return name

    files.add = counted
    for number in range(300):
        files.add([line(number, 1), b'{"sum":{"a":{"in":1}}}', b'{"run":1,"elapsed":%d.0}' % number])
        files.merge()
    assert len(list(tmp_path.iterdir())) == len(files.sizes) <= 4 * MERGE
    assert written < 12 * sum(files.sizes.values())
    found, total = set(), 0
    for _, block in LedgerFiles(Folder.open(str(tmp_path))).scan():
        found |= {unit for _, unit in block.units}
        total += block.sums["a"]["in"] if block.sums else 0
    assert (len(found), total) == (300, 300)


def test_of_a_unit_the_newest_line_counts_and_only_that(tmp_path):
    files = LedgerFiles(Folder.open(str(tmp_path)))
    files.add([line(1, 1), line(2, 10), b'{"sum":{"a":{"in":11}}}'])
    files.add([line(1, 100), b'{"sum":{"a":{"in":100}}}'])
    lines = list(files.copied())
    assert sorted(one for one in lines if one.startswith(b'{"unit"')) == sorted([line(1, 100), line(2, 10)])
    assert lines[-1] == b'{"sum":{"a":{"in":110}}}'
