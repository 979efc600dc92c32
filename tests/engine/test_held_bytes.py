"""How many bytes a worker holds during a call, counted by Arrow's allocator: what was sent on is let go."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from curator import Batch, Context, Outputs, Sink, Source, Stage, VideoBatch, stage
from curator.api.stage import SIDE_OUTPUTS, Reduce, SourceRange, Unit
from curator.engine.protocol import Call, Ref, Slice, UnitInfo
from curator.io.files.folder import Folder
from curator.io.spool import Shard
from curator.pipeline.plan import Operator, Step, Target
from curator.stages import Drop, Each
from curator.worker.runner import Runner

MB = 1 << 20
PARTS, PART_BYTES = 60, 4 * MB  # what a call of these tests answers


@contextmanager
def counted() -> Iterator[pa.MemoryPool]:
    """A pool of its own for what is allocated inside: its bytes, the most of them, and their sum."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr("curator.worker.runner.CHUNK_BYTES", 8 * MB)
    monkeypatch.setattr("curator.worker.steps.BUFFERED_BYTES", 8 * MB)


def runner(*stages: Stage, kind: str = "map", reader=None) -> Runner:
    steps = tuple(Step(f"s{i}", s, "key") for i, s in enumerate(stages))
    routes = {(i, port): (Target(9),) for i, s in enumerate(stages) for port in (*s.ports, *SIDE_OUTPUTS)
              if not (i < len(stages) - 1 and port == "out")}
    operator = Operator(0, kind, steps, ("out",) * (len(stages) - 1), routes, reader=reader)
    made = Runner(operator, lambda batch: len(batch), lambda batch: batch, Folder(""))
    made.setup(Context())
    return made


def blobs() -> pa.Array:
    """One value of `PART_BYTES`, in memory of Arrow's."""
    return pa.array(["x" * PART_BYTES], pa.string())


def given(rows: int, units: int = 1, **columns) -> list[Slice]:
    """Rows of several units, each of which has as many."""
    each = rows // units
    batches = [Batch(pa.table({"id": [f"{u}:{i}" for i in range(each)], "source": ["s"] * each,
                               "_unit": pa.array([u] * each, pa.int32()),
                               **{name: make(each) for name, make in columns.items()}})) for u in range(units)]
    return [Slice(Ref(batch, each, batch.nbytes), u, 0, 0, each) for u, batch in enumerate(batches)]


def most_held(made: Runner, call: Call) -> tuple[int, int]:
    """The most bytes that were allocated at once during the call, and the rows that it answered."""
    gc.collect()
    rows = 0
    with counted() as pool:
        for part in made.run(call):
            rows += sum(output.ref.rows for output in part.outputs)
            del part
        return pool.max_memory(), rows


def process(pieces: list[Slice]) -> Call:
    return Call(1, 0, "process", tuple(pieces), tuple((p.unit, 0) for p in pieces))


def read(kind: str = "read") -> Call:
    unit = Unit((SourceRange(uri="u", size_bytes=1),))
    return Call(1, 0, kind, units=((0, 0),), infos={0: UnitInfo(unit, "u")})


def test_a_stage_that_streams_holds_no_more_than_a_part_and_what_may_be_repeated():
    @stage(adds={"blob": pa.string()})
    def grows(batch):
        for row in range(len(batch)):
            yield Outputs(out=batch.slice(row, row + 1).with_columns({"blob": blobs()}))

    held, rows = most_held(runner(grows), process(given(PARTS)))
    assert rows == PARTS
    assert held < 8 * MB + 8 * MB + 4 * PART_BYTES


def test_what_a_later_step_makes_of_it_is_let_go_too():
    @stage
    def streams(batch):
        for row in range(len(batch)):
            yield batch.slice(row, row + 1)

    @stage(adds={"blob": pa.string()}, batch_size=1)
    def grows(batch):
        return batch.with_columns({"blob": blobs()})

    held, rows = most_held(runner(streams, grows), process(given(PARTS)))
    assert rows == PARTS
    assert held < 8 * MB + 4 * PART_BYTES


def test_what_a_call_is_given_is_read_and_put_elsewhere_in_parts():
    """20 batches of 4 MB, which a stage passes on: two are read at a time, and two are put into one batch."""
    held, sent = [], []

    @stage
    def passes(batch):
        held.append(pa.default_memory_pool().bytes_allocated())
        return batch

    made = runner(passes)
    made.get = lambda number: Batch(pa.table({"id": [str(number)], "source": ["s"], "blob": blobs(), "_unit": pa.array([0], pa.int32())}))
    gc.collect()
    with counted():
        for part in made.run(process([Slice(Ref(n, 1, PART_BYTES), 0, 0, 0, 1) for n in range(20)])):
            sent += [output.ref for output in part.outputs]
            del part
    assert [ref.rows for ref in sent] == [2] * 10
    assert max(ref.nbytes for ref in sent) < 9 * MB
    assert max(held) < 8 * MB + 3 * PART_BYTES, "what was worked on waits to leave, and no more"


@pytest.mark.parametrize("before", [[], [stage(lambda batch: batch)]])
def test_stages_inside_another_are_given_whole_batches(before):
    """Of records with four items of a MB each, of which 8 MB are no batch."""
    asked: list[int] = []

    class Inner(Stage):
        batch_size = 16

        def process(self, batch):
            asked.append(len(batch))
            return batch

    made = runner(*before, Each(payload="frames", as_="pixels", steps=[Inner()], gather={"width": "max"}))
    made.get = lambda number: VideoBatch(pa.table({"id": [str(number)], "source": ["s"], "_unit": pa.array([0], pa.int32())}),
                                         frames=[np.zeros((4, 512, 683, 3), np.uint8)])
    for _ in made.run(process([Slice(Ref(n, 1, 4 * MB), 0, 0, 0, 1) for n in range(7)])):
        pass
    assert asked == [16, 12]


def test_a_source_that_streams_holds_one_part(monkeypatch):
    @dataclass(kw_only=True)
    class Grows(Source):
        def read(self, unit):
            for number in range(PARTS):
                yield Batch(pa.table({"id": [str(number)], "source": ["s"], "blob": blobs()}))

    held, rows = most_held(runner(Grows(), kind="source"), read())
    assert rows == PARTS
    assert held < 8 * MB + 4 * PART_BYTES


def test_a_batch_is_let_go_before_the_source_or_the_stage_makes_the_next(monkeypatch):
    """What was sent on is at the most in the part that is being filled; here each part is one batch."""
    monkeypatch.setattr("curator.worker.runner.CHUNK_BYTES", 1)
    monkeypatch.setattr("curator.worker.steps.BUFFERED_BYTES", 1)
    while_making: list[int] = []

    def made_anew() -> pa.Array:
        while_making.append(pa.default_memory_pool().bytes_allocated())
        return blobs()

    @dataclass(kw_only=True)
    class Grows(Source):
        def read(self, unit):
            for number in range(8):
                yield Batch(pa.table({"id": [str(number)], "source": ["s"], "blob": made_anew()}))

    most_held(runner(Grows(), kind="source"), read())
    assert max(while_making) < PART_BYTES
    while_making.clear()

    @stage(adds={"blob": pa.string()})
    def grows(batch):
        for row in range(len(batch)):
            yield batch.slice(row, row + 1).with_columns({"blob": made_anew()})

    most_held(runner(grows), process(given(8)))
    assert max(while_making[3:]) < PART_BYTES, "the first are kept, so that the call can be repeated"


def test_what_waits_to_leave_is_not_held_twice(monkeypatch):
    """A worker that may not go on, since there is no room, holds nothing of what it sent, whichever step passed it on."""
    monkeypatch.setattr("curator.worker.runner.CHUNK_BYTES", 1)
    monkeypatch.setattr("curator.worker.steps.BUFFERED_BYTES", 1)
    held = []

    @stage(adds={"blob": pa.string()})
    def grows(batch):
        for row in range(len(batch)):
            yield batch.slice(row, row + 1).with_columns({"blob": blobs()})

    @stage
    def passes_on(batch):
        return batch.with_columns({"note": pa.array(["seen"] * len(batch))})

    gc.collect()
    with counted() as pool:
        for part in runner(grows, passes_on).run(process(given(8))):
            del part
            held.append(pool.bytes_allocated())
    assert len(held) == 9
    assert max(held[3:]) < PART_BYTES / 2


@pytest.mark.parametrize(("size", "answered", "sizes"), [
    (1000, 1, [3] * 10), (1000, 2, [2] * 15), (2, 1, [2] * 15), (1000, 5, [3, 2] * 6), (1000, 30, [3] * 10), (None, 1, [1] * 30),
    (None, 30, [2] * 15)])
def test_rows_that_wait_for_a_full_batch_are_bounded_in_bytes(monkeypatch, size, answered, sizes):
    """A step makes 30 rows of 4 MB from little, `answered` at a time, and no call of the next may have more than 12 MB; one
    that leaves its size to the engine gets some 8 MB at a time."""
    seen = []

    @stage(adds={"blob": pa.string()})
    def grows(batch):
        for at in range(0, len(batch), answered):
            some = batch.slice(at, at + answered)
            yield some.with_columns({"blob": pa.array(["x" * PART_BYTES] * len(some), pa.string())})

    @stage(batch_size=size)
    def measures(batch):
        seen.append(len(batch))
        return batch.without(["blob"])

    monkeypatch.setattr(measures, "batch_bytes", 3 * PART_BYTES + MB, raising=False)
    held, rows = most_held(runner(grows, measures), process(given(30)))
    assert rows == 30
    assert seen == sizes
    assert held < (3 + 3 + answered * 2) * PART_BYTES + 8 * MB


def test_rules_over_rows_with_files_in_them_hold_few_of_these():
    """Of 60 files of 4 MB half are dropped, and some 8 MB are asked about at a time, though `drop` takes 256 small rows."""
    @stage(adds={"blob": pa.string(), "n": pa.int64()})
    def grows(batch):
        for row in range(len(batch)):
            yield batch.slice(row, row + 1).with_columns({"blob": blobs(), "n": [row]})

    held, rows = most_held(runner(grows, Drop(conditions={"odd": "n % 2 = 1"})), process(given(PARTS)))
    assert rows == PARTS
    assert held < 8 * MB + 8 * MB + 8 * PART_BYTES


def test_a_sink_joins_few_of_the_rows_of_a_call_at_a_time():
    """It is given 60 batches of 4 MB, and its writer has done with each before the next is made."""
    wrote = []

    @dataclass(kw_only=True)
    class Counts(Sink):
        def open(self, name):
            return SimpleNamespace(write=lambda batch: wrote.append(batch.column("id")), abort=lambda: None)

    blob = pa.array(["x" * PART_BYTES])
    batches = [Batch(pa.table({"id": [str(n)], "source": ["s"], "blob": blob, "_unit": pa.array([0], pa.int32())})) for n in range(PARTS)]
    call = process([Slice(Ref(batch, 1, PART_BYTES), 0, 0, 0, 1) for batch in batches])
    held, _ = most_held(runner(Counts(), kind="sink"), replace(call, infos=read().infos))
    assert [record for some in wrote for record in some] == [str(n) for n in range(PARTS)]
    assert len(wrote) == PARTS / 2
    assert held < 3 * PART_BYTES


def test_small_rows_come_in_batches_of_the_size_that_was_asked_for():
    seen = []

    @stage
    def streams(batch):
        for row in range(len(batch)):
            yield batch.slice(row, row + 1)

    @stage(batch_size=1000)
    def measures(batch):
        seen.append(len(batch))
        return batch

    most_held(runner(streams, measures), process(given(2500)))
    assert seen == [1000, 1000, 500]


def test_a_reduction_that_makes_many_rows_holds_one_part():
    @dataclass(kw_only=True)
    class Makes(Reduce):
        def absorb(self, batch):
            pass

        def finish(self):
            for number in range(PARTS):
                yield Batch(pa.table({"id": [str(number)], "source": ["s"], "blob": blobs()}))

    shard = Shard(parts=(SourceRange(uri="u", size_bytes=1),), first=0, stop=1, shards=1, digest="d")
    made = runner(Makes(), kind="source", reader=SimpleNamespace(rows=lambda *_: iter(())))
    held, rows = most_held(made, Call(1, 0, "read", units=((0, 0),), infos={0: UnitInfo(shard, "u")}))
    assert rows == PARTS
    assert held < 8 * MB + 4 * PART_BYTES


def test_rows_of_several_units_are_copied_once_to_part_them_and_not_to_count_them(monkeypatch):
    """Three steps over 16 MB of rows of several units, in an order that no slice can part."""
    monkeypatch.setattr("curator.worker.runner.CHUNK_BYTES", 64 * MB)

    @stage
    def passes(batch):
        return batch

    size, rows, units = 16 << 10, 1024, 8
    mixed = given(rows, units, blob=lambda n: pa.array(["x" * size] * n))
    whole = Batch.concat([p.ref.data for p in mixed])
    shuffled = whole.take(np.random.default_rng(0).permutation(rows))
    pieces = [Slice(Ref(shuffled, rows, shuffled.nbytes), u, 0, 0, rows if u == 0 else 0) for u in range(units)]
    made = runner(*[passes] * 3)
    with counted() as pool:
        Batch(whole.rows).split(list(range(units)) * (rows // units))
        one_copy = pool.total_bytes_allocated()
    with counted() as pool:
        last = list(made.run(Call(1, 0, "process", tuple(pieces), tuple((u, 0) for u in range(units)))))[-1]
        copied = pool.total_bytes_allocated()
    assert {unit: by_step[2].out for unit, by_step in last.counts.items()} == {u: {"out": rows // units} for u in range(units)}
    assert copied < 1.5 * one_copy


def test_counts_by_unit_are_those_of_the_rows():
    @stage(adds={"n": pa.int64()}, ports=("out", "other"))
    def sorts(batch):
        at = np.arange(len(batch))
        yield Outputs(out=batch.filter(at % 3 == 0).with_columns({"n": at[at % 3 == 0]}),
                      dropped=batch.filter(at % 3 == 1).with_reason("one"))
        yield Outputs(other=batch.filter(at % 3 == 2).with_columns({"n": at[at % 3 == 2]}), absorbed=batch.filter(at % 3 == 2))

    *_, last = runner(sorts).run(process(given(30, 2)))
    for unit, at in ((0, range(15)), (1, range(15, 30))):
        counts = last.counts[unit][0]
        counts.check()
        place = [[p for p in at if p % 3 == k] for k in range(3)]
        assert counts.rows_in == 15
        assert counts.out == {"out": len(place[0]), "other": len(place[2])}
        assert counts.dropped == {"one": len(place[1])}
        assert counts.absorbed == len(place[2])
        assert counts.made == len(place[2])
        assert (counts.columns["n"].least, counts.columns["n"].rows) == (min(place[0] + place[2]), len(place[0] + place[2]))
