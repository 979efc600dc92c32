"""What a worker answers, and that it accounts for every row."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, Timer
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import Batch, Context, Outputs, Resources, Stage, TextBatch, read, stage
from curator.api.errors import StageError
from curator.api.stage import SIDE_OUTPUTS, SourceRange, Unit
from curator.engine.protocol import Call, Done, Emitted, Failed, Reason, Ref, Slice, UnitInfo
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator, Step, Target
from curator.worker.main import TRIM_BYTES, Worker
from curator.worker.runner import Runner
from tests.engine.small_stages import Children, DropWord, FirstOfText, JsonFiles, Lines, Loses, Shout, Trouble, write_lines, written

UNIT = Unit((SourceRange(uri="texts", size_bytes=1),))


def runner(*stages: Stage, kind: str = "map", folder="", chain: str = "out") -> Runner:
    steps = tuple(Step(f"s{i}", s, "key") for i, s in enumerate(stages))
    routes = {(i, port): (Target(9),) for i, s in enumerate(stages) for port in (*s.ports, *SIDE_OUTPUTS)
              if not (i < len(stages) - 1 and port == chain)}
    operator = Operator(0, kind, steps, (chain,) * (len(stages) - 1), routes)
    made = Runner(operator, lambda b: b, lambda b: b, Folder(str(folder)))
    made.setup(Context())
    return made


def texts(*values: str, unit: int = 0) -> Slice:
    rows = pa.table({"id": [f"u{unit}:{i}" for i in range(len(values))], "source": ["texts"] * len(values),
                     "text": pa.array(values, pa.string()), "_unit": pa.array([unit] * len(values), pa.int32())})
    return Slice(Ref(TextBatch(rows), len(values), rows.nbytes), unit, 0, 0, len(values))


class CallFailed(Exception):
    """`failed`: what the worker answered."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error)
        self.failed = failed


def run(made: Runner, call: Call) -> Iterator[Emitted | Done]:
    for part in made.run(call):
        if isinstance(part, Failed):
            raise CallFailed(part)
        yield part


def answer(made: Runner, *pieces: Slice, kind: str = "process") -> tuple[dict, dict]:
    """({(step, port, unit): ids}, counts) of a call."""
    units = tuple({(p.unit, p.attempt): None for p in pieces}) or ((0, 0),)
    call = Call(1, 0, kind, pieces, units, infos={u: UnitInfo(UNIT, f"part-{u}") for u, _ in units})
    got: dict = {}
    for part in run(made, call):
        for output in part.outputs:
            batch = output.ref.data
            assert len(batch) == output.ref.rows
            got.setdefault((output.step, output.port, output.unit), []).extend(batch.column("id"))
    for by_step in part.counts.values():
        for counts in by_step.values():
            counts.check()
    return got, part.counts


def test_steps_of_a_chain_run_one_after_the_other_and_are_counted_one_by_one():
    got, counts = answer(runner(DropWord(), Shout()), texts("good", "bad word", "fine"))
    assert got == {(0, "dropped", 0): ["u0:1"], (1, "out", 0): ["u0:0", "u0:2"]}
    assert counts[0][0].rows_in == 3
    assert counts[0][0].dropped == {"bad_word": 1}
    assert counts[0][1].out == {"out": 2}


def test_rows_of_several_units_share_a_call_and_are_answered_apart():
    got, counts = answer(runner(DropWord()), texts("a", "bad"), texts("bad", "b", unit=7))
    assert got == {(0, "out", 0): ["u0:0"], (0, "out", 7): ["u7:1"], (0, "dropped", 0): ["u0:1"], (0, "dropped", 7): ["u7:0"]}
    assert counts[7][0].rows_in == 2


def test_a_stage_that_loses_a_row_is_named_with_the_ids():
    with pytest.raises(CallFailed, match=r"'s0'.*1 of 3 rows.*u0:2") as failed:
        answer(runner(Loses()), texts("a", "b", "c"))
    assert failed.value.failed.fatal


def test_a_batch_made_from_nothing_is_refused():
    @stage
    def forgetful(batch):
        return TextBatch(pa.table({"id": batch.column("id"), "source": batch.column("source")}))

    with pytest.raises(CallFailed, match="was not made from the one given"):
        answer(runner(forgetful), texts("a"))


def test_an_unknown_port_is_refused():
    @stage
    def lost(batch):
        return Outputs(elsewhere=batch)

    with pytest.raises(CallFailed, match="'elsewhere'"):
        answer(runner(lost), texts("a"))


def test_absorbed_rows_count_as_such():
    @stage
    def absorbs(batch):
        return Outputs(out=batch.slice(0, 1), absorbed=batch.slice(1, len(batch)))

    _, counts = answer(runner(absorbs), texts("a", "b", "c"))
    assert (counts[0][0].absorbed, counts[0][0].out) == (2, {"out": 1})


@given(st.lists(st.sampled_from(["fine", "raise"]), min_size=1, max_size=40), st.sampled_from([None, 1, 7]))
def test_rows_that_raise_fail_alone_and_the_others_go_on(values, size):
    stages = Trouble().with_(batch_size=size), Shout()
    got, counts = answer(runner(*stages), texts(*values))
    bad = [f"u0:{i}" for i, v in enumerate(values) if v == "raise"]
    assert sorted(got.get((0, "failed", 0), [])) == sorted(bad)
    assert len(got.get((1, "out", 0), [])) == len(values) - len(bad)
    assert counts[0][0].failed == len(bad)


def test_a_failed_row_carries_error_and_traceback():
    made = runner(Trouble())
    *_, last = made.run(Call(1, 0, "process", (texts("raise"),), ((0, 0),)))
    row = last.outputs[0].ref.data.rows.to_pylist()[0]
    assert row["error"] == "ValueError: cannot stand u0:0"
    assert "small_stages.py" in row["traceback"]


def test_a_passing_trouble_is_tried_again(tmp_path):
    got, counts = answer(runner(Trouble(marks=str(tmp_path))), texts("a", "once", "b"))
    assert got == {(0, "out", 0): ["u0:0", "u0:1", "u0:2"]}
    assert counts[0][0].failed == 0



def test_batches_have_the_size_a_stage_asks_for_at_each_step():
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def sized(name, size):
        @stage(batch_size=size)
        def measure(batch):
            seen[name].append(len(batch))
            return batch

        return measure

    answer(runner(sized("a", 4), sized("b", 6)), texts(*"abcdefghijk"), texts("x"))
    assert seen == {"a": [4, 4, 4], "b": [6, 6]}


def test_children_are_made_and_each_parent_counts_as_covered():
    got, counts = answer(runner(Children()), texts("a", "b"))
    assert got == {(0, "out", 0): ["u0:0#0", "u0:0#1", "u0:1#0", "u0:1#1"]}
    assert counts[0][0].made == 2


def test_much_output_leaves_in_parts_before_the_call_ends(monkeypatch):
    monkeypatch.setattr("curator.worker.runner.CHUNK_BYTES", 10_000)
    made = runner(Shout().with_(batch_size=1))
    parts = list(made.run(Call(1, 0, "process", (texts(*["x" * 6000] * 5),), ((0, 0),))))
    assert len(parts) >= 3
    assert isinstance(parts[-1], Done)
    assert sum(output.ref.rows for p in parts for output in p.outputs) == 5


@pytest.mark.parametrize(("wait_s", "rows"), [(0.0, [1] * 12), (0.0005, [1] * 12), (1.0, [1, 4, 4, 3])])
def test_a_slow_source_sends_each_record_at_once_and_several_to_a_busy_driver(monkeypatch, tmp_path, wait_s, rows):
    write_lines(tmp_path, a=[str(i) for i in range(12)])
    now = 0.0
    monkeypatch.setattr("curator.worker.runner.perf_counter", lambda: now)

    class Slow(Lines):
        def read(self, unit):
            nonlocal now
            for batch in super().read(unit):
                now += 1 / 16
                yield batch

    source = Slow(path=str(tmp_path), batch=1)
    unit, = source.units()
    sent = []
    for part in runner(source, kind="source").run(Call(1, 0, "read", units=((0, 0),), infos={0: UnitInfo(unit, "p")})):
        sent.append(sum(output.ref.rows for output in part.outputs))
        now += wait_s
    assert [n for n in sent if n] == rows


def test_a_unit_is_read_in_batches_and_what_cannot_be_read_is_one_failed_record(tmp_path):
    write_lines(tmp_path, a=["one", "two"])
    source = Lines(path=str(tmp_path), batch=1)
    unit, = source.units()

    def read(best_effort):
        call = Call(1, 0, "read", units=((0, 0),), best_effort=best_effort, infos={0: UnitInfo(unit, "p")})
        return list(run(runner(source, kind="source"), call))

    parts = read(False)  # more than one on a machine that is busy
    assert sum(output.ref.rows for part in parts for output in part.outputs) == 2
    (tmp_path / "a.txt").unlink()
    with pytest.raises(CallFailed, match="FileNotFoundError"):
        read(False)
    last = read(True)[-1]
    assert last.counts[0][0].failed == 1
    assert last.outputs[0].ref.data.column("id") == [unit.label]


def test_a_sink_writes_a_unit_apart_and_names_its_files_at_the_flush(tmp_path):
    made = runner(JsonFiles(path=str(tmp_path)), kind="sink")
    answer(made, texts("a", "b"), texts("c", unit=3))
    assert not written(tmp_path)
    *_, last = made.run(Call(2, 0, "flush", units=((3, 0),), infos={3: UnitInfo(UNIT, "part-3")}))
    assert last.flushed.files[0][0].rows == 1
    assert [row["text"] for row in written(tmp_path)] == ["c"]
    made.discard(0, 0, replay=True)
    *_, last = made.run(Call(3, 0, "flush", units=((0, 0),), infos={0: UnitInfo(UNIT, "part-0")}))
    assert last.flushed.files == {}


def test_rows_the_engine_blames_reach_the_sink_with_the_reason(tmp_path):
    made = runner(JsonFiles(path=str(tmp_path)), kind="sink")
    reason = Reason("the worker died: killed by SIGSEGV")
    piece = texts("a")
    answer(made, Slice(piece.ref, 0, 0, 0, 1, 0, reason), Slice(None, 0, 0, 0, 0, 0, reason))
    list(made.run(Call(2, 0, "flush", units=((0, 0),), infos={0: UnitInfo(UNIT, "part-0")})))
    assert {(r["id"], r["error"]) for r in written(tmp_path)} == {("u0:0", reason.error), ("texts", reason.error)}


def test_what_a_unit_taught_a_stateful_stage_is_kept_and_recalled(tmp_path):
    first = runner(FirstOfText(), kind="stateful", folder=tmp_path)
    answer(first, texts("a", "b", "a"))
    *_, last = first.run(Call(2, 0, "flush", units=((0, 0),), infos={0: UnitInfo(UNIT, "part-x")}))
    second = runner(FirstOfText(), kind="stateful", folder=tmp_path)
    second.setup(Context(), [(0, last.flushed.snapshot, False)])
    got, _ = answer(second, texts("b", "c", unit=1))
    assert got == {(0, "duplicate", 1): ["u1:0"], (0, "out", 1): ["u1:1"]}


def test_setup_that_raises_says_which_stage():
    class Broken(Stage):
        def setup(self, ctx):
            raise RuntimeError("no model")

    with pytest.raises(StageError, match="'s0': setup failed: no model"):
        runner(Broken())


def test_empty_batches_pass_without_a_call():
    calls = []

    @stage
    def counting(batch: Batch):
        calls.append(len(batch))
        return batch

    got, _ = answer(runner(counting), texts())
    assert got == {}
    assert calls == []


@pytest.mark.parametrize(("values", "problem"), [
    ({"n": [1.5]}, "adds 'n' as int64, and its answer has double"),
    ({"m": [1]}, "adds 'n', and its answer has no such column"),
])
def test_an_answer_that_breaks_the_contract_is_told(values, problem):
    @stage(adds={"n": pa.int64()})
    def counts_badly(batch):
        return batch.with_columns({name: v * len(batch) for name, v in values.items()})

    with pytest.raises(CallFailed, match=problem):
        answer(runner(counts_badly), texts("a", "b"))


def test_an_answer_without_an_id_is_told():
    @stage
    def nameless(batch):
        return batch.without(["id"])

    with pytest.raises(CallFailed, match="gave rows without the column 'id'"):
        answer(runner(nameless), texts("a"))


@pytest.mark.parametrize("port", ["out", "dropped"])
@pytest.mark.parametrize(("lost", "number"), [("b", 1), ("c", 2)])  # in the first call, and behind it
def test_an_answer_that_takes_the_id_of_a_record_is_told_with_the_record(port, lost, number):
    @stage(batch_size=2)
    def loses_ids(batch):
        ids = [None if text == lost else id for id, text in zip(batch.column("id"), batch.column("text"), strict=True)]
        return Outputs({port: batch.with_columns({"id": pa.array(ids, pa.string())})})

    with pytest.raises(CallFailed, match=rf"stage 's0': answered 1 of 2 rows with the id null: .* \(records u0:{number}\)") as failed:
        answer(runner(loses_ids), texts("a", "b", "c", "d"))
    assert failed.value.failed.fatal


def test_a_source_that_gives_a_record_without_an_id_is_told(tmp_path):
    class Nameless(Lines):
        def read(self, unit):
            for batch in super().read(unit):
                yield batch.with_columns({"id": pa.array(["x", None], pa.string())})

    source = Nameless(path=str(write_lines(tmp_path, a=["one", "two"])))
    unit, = source.units()
    with pytest.raises(CallFailed, match=r"stage 's0': gave 1 of 2 rows the id null") as failed:
        list(run(runner(source, kind="source"), Call(1, 0, "read", units=((0, 0),), infos={0: UnitInfo(unit, "p")})))
    assert failed.value.failed.fatal


@pytest.mark.parametrize("kind", [SystemExit, type("PanicException", (BaseException,), {})])
def test_leaving_the_interpreter_and_a_panic_in_a_library_are_errors_like_any_other(kind):
    @stage
    def leaves(batch):
        if "bad" in batch.column("text"):
            raise kind("enough")
        return batch

    got, _ = answer(runner(leaves), texts("a", "bad", "b"))
    assert got == {(0, "out", 0): ["u0:0", "u0:2"], (0, "failed", 0): ["u0:1"]}


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not GNU's C library")
@pytest.mark.parametrize(("worked", "soon"), [(TRIM_BYTES + 1, False), (1, False), (TRIM_BYTES + 1, True)])
def test_a_worker_that_has_to_wait_gives_back_what_is_free(monkeypatch, worked, soon):
    """At once where it worked on much, else when it has waited for a moment."""
    monkeypatch.setattr("curator.worker.main.IDLE_S", 0.05)
    waiting = SimpleNamespace(worked_bytes=worked, inbox=SimpleQueue())
    blocks = [np.ones(10_000) for _ in range(1000)]  # of 80 kB: below what comes as pages of its own
    held = blocks[::50]
    del blocks
    before = anonymous_kb()
    waiting.inbox.put("a call that came meanwhile")
    assert Worker._next(waiting, soon) == "a call that came meanwhile"
    assert before - anonymous_kb() < 10_000, "who has to do does it at once"
    Timer(0.15, waiting.inbox.put, ["the next"]).start()
    assert Worker._next(waiting, soon) == "the next"
    assert before - anonymous_kb() > 50_000
    assert len(held) == 20
    assert waiting.worked_bytes == 0


def anonymous_kb() -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/smaps_rollup").read_text().splitlines() if line.startswith("Anon"))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not GNU's C library")
@pytest.mark.parametrize("cpus", [1, 2])
def test_threads_of_a_worker_have_one_heap_unless_it_has_several_cores(cpus, cold_start):
    @stage(adds={"elsewhere": pa.int64()}, resources=Resources(cpus=cpus))
    def heaps(batch):
        library, found = ctypes.CDLL(None), []
        library.malloc.restype = ctypes.c_size_t
        threads = [Thread(target=lambda: found.append(library.malloc(100_000))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        heap = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[heap]")]
        low, high = int(heap[0].split("-")[0], 16), int(heap[-1].split("-")[1], 16)
        return batch.with_columns({"elsewhere": pa.array([sum(not low <= at < high for at in found)] * len(batch))})

    made = (read([{"text": "a"}]) >> heaps).collect(workers=2)
    assert (made.column("elsewhere").to_pylist() == [0]) is (cpus == 1)
