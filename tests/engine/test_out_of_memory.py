"""A stage that runs out of memory gets smaller batches, larger ones when there is memory again, and people are told."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import Stage, stage
from curator.api.counts import Counts, MemoryShort
from curator.engine.protocol import Call, Done, Failed
from curator.worker.fitting import GROW_AFTER, TRY_AFTER, Fitting, is_out_of_memory
from tests.engine.small_stages import JsonFiles, lines, write_lines
from tests.engine.test_worker import answer, runner, texts


class Hungry(Stage):
    """Runs out of memory with more rows than `fits`, and remembers what it was given."""

    def __init__(self, fits: int) -> None:
        self.fits, self.sizes = fits, []

    def process(self, batch):
        self.sizes.append(len(batch))
        if len(batch) > self.fits:
            raise MemoryError
        return batch


def test_running_out_of_memory_halves_at_once_and_is_remembered():
    hungry = Hungry(4)
    made = runner(hungry)
    got, counts = answer(made, texts(*"abcdefghij"))
    assert hungry.sizes == [10, 5, 2, 3, 5, 2, 3]
    assert len(got[0, "out", 0]) == 10
    assert counts[0][0].memory.rows == 10
    hungry.sizes.clear()
    got, _ = answer(made, texts(*"abcdefghij"))
    assert max(hungry.sizes) <= 4
    assert len(got[0, "out", 0]) == 10


def test_the_rest_of_a_large_batch_is_cut_by_the_size_that_was_just_learned():
    hungry = Hungry(4)
    made = runner(hungry.with_(batch_size=8))
    answer(made, texts(*"a" * 80))
    assert [size for size in made.stage.sizes if size > 4] == [8]


def test_when_there_is_memory_again_batches_grow_to_what_they_were_and_both_are_told():
    hungry = Hungry(4)
    made = runner(hungry)
    changes, total = [], Counts()
    for _ in range(2 * TRY_AFTER):
        *_, last = made.run(Call(1, 0, "process", (texts(*"a" * 16),), ((0, 0),)))
        assert isinstance(last, Done)
        total.add(last.counts[0][0])
        changes += [(change.rows, change.rows_max) for change in last.refitted.values()]
        hungry.fits = 100 if len(changes) else 4
    assert changes[0] == (16, 4)
    assert changes[-1] == (0, None)
    assert [most for _, most in changes[1:-1]] == sorted(most for _, most in changes[1:-1])
    assert hungry.sizes[-1] == 16
    assert (total.memory.rows, total.memory.rows_max) == (16, None)
    total.check()


def test_a_call_that_ran_out_after_a_part_was_sent_on_is_told_with_the_next_that_is_answered(monkeypatch):
    monkeypatch.setattr("curator.worker.steps.BUFFERED_BYTES", 0)
    monkeypatch.setattr("curator.worker.runner.CHUNK_BYTES", 1)

    @stage
    def hungry(batch):
        for row in range(len(batch)):
            if row == 4:
                raise MemoryError
            yield batch.slice(row, row + 1)

    made, rows = runner(hungry), texts(*"a" * 16)
    for _ in (16, 8):
        *sent, last = made.run(Call(1, 0, "process", (rows,), ((0, 0),)))
        assert sent
        assert isinstance(last, Failed)
        assert "MemoryError" in last.error
    *_, last = made.run(Call(2, 0, "process", (rows,), ((0, 0),)))
    assert [(change.rows, change.rows_max) for change in last.refitted.values()] == [(16, 4)]
    assert (last.counts[0][0].memory.calls, last.counts[0][0].memory.rows) == (2, 16)
    *_, last = made.run(Call(3, 0, "process", (rows,), ((0, 0),)))
    assert not last.refitted
    assert last.counts[0][0].memory is None


@given(st.integers(1, 300), st.integers(1, 300))
def test_a_size_that_never_fits_is_tried_more_and_more_rarely_and_one_that_does_is_found(whole, fits):
    fitting, tries = Fitting(), []
    for call in range(20_000):
        rows = min(whole, fitting.rows_max or whole)
        if rows > fits:
            tries.append(call)
            fitting.ran_out(rows)
        else:
            fitting.went_well(rows)
    if fits >= whole:
        assert not tries
        assert fitting.rows_max is None
    else:
        assert len(tries) < 25
        assert 2 * min(whole, fitting.rows_max or whole) > fits, "at least half of what would do"


def test_what_fits_again_is_found_again_however_often_it_failed():
    fitting = Fitting()
    calls = 0
    for fits in (100, 7, 100, 1, 100):
        for calls in range(100_000):
            rows = min(100, fitting.rows_max or 100)
            fitting.ran_out(rows) if rows > fits else fitting.went_well(rows)
            if fits == 100 and fitting.rows_max is None:
                break
            if fits < 100 and calls > 4 * GROW_AFTER:
                break
        assert (fitting.rows_max is None) == (fits == 100)


class OutOfMemoryError(RuntimeError):
    """As torch has it."""


def chained() -> BaseException:
    try:
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError("the picture is too large") from error
    except ValueError as error:
        return error


@pytest.mark.parametrize(("error", "is_it"), [
    (MemoryError(), True), (pa.ArrowMemoryError("malloc of size 1 failed"), True),
    (np.exceptions.AxisError("x"), False), (OutOfMemoryError("CUDA out of memory."), True),
    (RuntimeError("CUDA error: out of memory"), True),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
    (chained(), True), (ValueError("out of memory, says the text"), False), (RuntimeError("no"), False)])
def test_what_counts_as_out_of_memory(error, is_it):
    assert is_out_of_memory(error) is is_it


def test_what_the_failed_call_held_is_let_go_before_it_is_tried_with_fewer_rows():
    alive = []

    @stage
    def hungry(batch):
        mine = pa.array(np.zeros(1 << 20))
        alive.append(pa.total_allocated_bytes())
        if len(batch) > 1:
            raise MemoryError(f"{len(mine)}")
        return batch

    before = pa.total_allocated_bytes()
    answer(runner(hungry), texts(*"abcdefgh"))
    assert max(alive) - before < 2 * (8 << 20)


def test_a_run_tells_it_in_the_events_the_stats_and_the_alarms(tmp_path):
    write_lines(tmp_path / "in", a=[str(i) for i in range(64)])

    @stage
    def hungry(batch):
        if len(batch) > 8:
            raise MemoryError
        return batch

    result = (lines(tmp_path / "in", batch=64) >> hungry >> JsonFiles(path=str(tmp_path / "out"))).run(workers=0)
    told, = (s["memory"] for s in result.stats["stages"] if s["name"] == "hungry")
    assert told["rows"] > 8
    most = told["rows_max"]
    assert 4 < most <= 8  # a busy machine reads the file in parts
    assert any("hungry ran out of memory in" in alarm["text"] and f"at most {most} rows" in alarm["text"]
               for alarm in result.stats["alarms"])
    events = [json.loads(line) for path in tmp_path.rglob("events.jsonl") for line in path.read_text().splitlines()]
    event = next(e for e in events if e["event"] == "out_of_memory")
    assert event["text"] == f"out of memory in stage hungry: batches of {told['rows']} rows, at most {most} rows from now on"


def test_counts_of_two_workers_keep_the_last_size():
    first, then = MemoryShort(2, 64, 16, 100.0), MemoryShort(1, 32, None, 200.0)
    assert first + then == then + first == MemoryShort(3, 64, None, 200.0)
    counts = Counts(memory=first)
    assert Counts.from_json(json.loads(json.dumps(counts.to_json()))) == counts
    assert "memory" not in Counts().to_json()
