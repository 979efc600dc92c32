"""The conformance kit catches what it is there to catch: one deliberately broken stage, source or sink for each rule."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator.api.stage import (
    Contract,
    Outputs,
    Reduce,
    Sink,
    Snapshot,
    Source,
    SourceRange,
    Stage,
    Stateful,
    Unit,
    Writer,
    WrittenFile,
    setting,
    stage,
)
from curator.api.tasks import ImageBatch, TextBatch
from curator.io.files.folder import Folder
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import ToParquet
from curator.testing import CHECKS, check_sink, check_source, check_stage, run_stage

TEXTS = TextBatch(pa.table({"id": ["a", "b", "c", "d"], "source": ["s"] * 4, "text": ["one", "", None, "four words or so"],
                            "other": [1, 2, 3, 4]}))


def images():
    pixels = [np.full((2, 2, 3), n, np.uint8) for n in range(4)]
    return ImageBatch(TEXTS.rows, encoded=[b"1", b"2", b"3", b"4"], pixels=pixels)


@dataclass(kw_only=True)
class Length(Stage):
    """A stage without a fault, from which the broken ones are made."""

    column: str = "text"

    def contract(self):
        return Contract(needs={self.column}, adds={"length": pa.int64()})

    def length(self, text):
        return len(text or "")

    def scored(self, batch):
        lengths = [self.length(text) for text in batch.column(self.column)]
        return batch.with_columns({"length": pa.array(lengths, pa.int64())})

    def process(self, batch):
        scored = self.scored(batch)
        long = np.array([length > 3 for length in scored.column("length")], dtype=bool)
        return Outputs(out=scored.filter(~long), dropped=scored.filter(long).with_reason("long"))


def broken(**methods):
    """A `Length` with other methods."""
    return dataclass(kw_only=True)(type("Broken", (Length,), methods))()


def test_a_stage_without_a_fault_passes():
    check_stage(Length(), TEXTS)
    check_stage(Length(), TextBatch(pa.concat_tables([TEXTS.rows.slice(0, 1), TEXTS.rows.slice(1)])))


@stage(needs={"text"}, adds={"shout": pa.string()})
def shouting(batch, mark: str = "!"):
    """The text, louder."""
    return batch.with_columns({"shout": pa.array([(t or "") + mark for t in batch.column("text")], pa.string())})


@stage(needs={"pixels"}, adds={"pixels": None, "mean": pa.float64()}, ports=("out",))
def brighter(batch):
    """Payloads may be replaced, and rows answered in parts."""
    for at in range(0, len(batch), 3):
        part = batch.slice(at, at + 3)
        pixels = [None if p is None else p + 1 for p in part.pixels]
        means = [None if p is None else float(p.mean()) for p in pixels]
        yield part.with_payloads(pixels=pixels).with_columns({"mean": pa.array(means, pa.float64())})


@stage(needs={"text"}, adds={"parent": pa.string(), "text": pa.string()})
def words(batch):
    """Each record becomes one for each of its words."""
    parts = [(text or "").split() for text in batch.column("text")]
    some = np.array([bool(p) for p in parts], dtype=bool)
    children = batch.filter(some).explode([len(p) for p in parts if p])
    flat = pa.array([word for p in parts for word in p], pa.string())
    return Outputs(out=children.with_columns({"text": flat}), dropped=batch.filter(~some).with_reason("empty"))


def test_functions_payloads_iterators_and_children_pass():
    check_stage(shouting, TEXTS)
    check_stage(shouting(mark="?"), TEXTS)
    check_stage(brighter, images())
    check_stage(words, TEXTS)


# -- broken stages ------------------------------------------------------------------------------------------------


def loses_a_row(self, batch):
    return self.scored(batch).filter([text != "" for text in batch.column("text")])


def drops_the_marks(self, batch):
    return TextBatch(self.scored(batch).visible())


def renumbers(self, batch):
    return self.scored(batch).with_columns({"_row": pa.array([9] * len(batch), pa.int32())})


def from_state(self, batch):
    self.calls = getattr(self, "calls", 0) + 1
    return batch.with_columns({"length": pa.array([self.calls + self.length(t) for t in batch.column("text")], pa.int64())})


def from_the_batch(self, batch):
    longest = max((self.length(t) for t in batch.column("text")), default=0)
    return batch.with_columns({"length": pa.array([longest] * len(batch), pa.int64())})


def by_place(self, batch):
    lengths = [at * self.length(text) for at, text in enumerate(batch.column("text"))]
    return batch.with_columns({"length": pa.array(lengths, pa.int64())})


def by_chance(self, batch):
    return batch.with_columns({"length": pa.array(np.frombuffer(os.urandom(8 * len(batch)), np.int64))})


def only_if_it_can(self, batch):
    return self.scored(batch) if len(batch) else batch.take([0])


def reads_another(self, batch):
    lengths = [n if t else 0 for n, t in zip(batch.column("other"), batch.column("text"), strict=True)]
    return batch.with_columns({"length": pa.array(lengths, pa.int64())})


def reads_another_if_it_is_there(self, batch):
    if "other" in batch.columns:
        return reads_another(self, batch)
    return self.scored(batch)


def changes_the_text(self, batch):
    return self.scored(batch).with_columns({"text": pa.array(["x"] * len(batch), pa.string())})


def narrow(self, batch):
    return batch.with_columns({"length": pa.array([self.length(t) for t in batch.column("text")], pa.int16())})


def with_more(self, batch):
    return self.scored(batch).with_columns({"more": pa.nulls(len(batch), pa.string())})


def without_a_type(self, batch):
    for at in range(len(batch)):
        value = None if at % 2 else ["a"] if at else 5
        yield batch.slice(at, at + 1).with_columns({"length": [value]})


BROKEN = {
    "raises": (broken(process=lambda self, batch: 1 / 0), r"raises ZeroDivisionError .* for the batch given"),
    "gives nothing": (broken(process=lambda self, batch: None), "answered NoneType on port 'out'; a batch is wanted"),
    "gives a list of tables": (broken(process=lambda self, batch: [batch.rows]), "answered Table on port 'out'; a batch is wanted"),
    "an unknown port": (broken(process=lambda self, batch: Outputs(rest=batch)),
                        r"port 'rest', which is none of its ports \(out\): name it in `ports`"),
    "no batch on a port": (broken(process=lambda self, batch: Outputs(out=batch.rows)), "answered Table on port 'out'; a batch is wanted"),
    "loses a row": (broken(process=loses_a_row),
                    r"1 of 4 rows are on no port; .* on `dropped` if need be, .*\(records b\)"),
    "drops the engine's columns": (broken(process=drops_the_marks), r"was not made from the one given \(take, filter, "),
    "renumbers rows": (broken(process=renumbers), "_row was changed; columns that begin with _ belong"),
    "a number as id": (broken(process=lambda self, batch: self.scored(batch).with_columns({"id": [1] * len(batch)})),
                       "id is int64; make it a string"),
    "an id that is null": (broken(process=lambda self, batch: self.scored(batch).with_columns(
        {"id": pa.nulls(len(batch), pa.string())})), "id is null in some rows"),
    "a duplicate of nothing": (broken(process=lambda self, batch: Outputs(duplicate=batch)), "need the column 'duplicate_of'"),
    "types that do not join": (broken(process=without_a_type), "cannot be joined: .*Field length has incompatible types: "),
    "cannot travel": (broken(__post_init__=lambda self: setattr(self, "lock", threading.Lock())),
                      "cannot be pickled.*Make in `setup`"),
    "another fingerprint there": (broken(fingerprint=lambda self: f"{id(self)}"), "has another fingerprint after a journey"),
    "no answer to no rows": (broken(process=lambda self, batch: self.scored(batch).take([0, *range(1, len(batch))])),
                             "raises .* for a batch without rows"),
    "rows out of nothing": (broken(process=lambda self, batch: self.scored(batch) if len(batch) else Outputs(
        out=TextBatch(TEXTS.rows.append_column("_row", pa.nulls(4, pa.int32())).append_column("_unit", pa.nulls(4))))),
        "_row was changed|makes rows"),
    "an undeclared column": (broken(process=with_more), "port 'out': more is new, and the contract's `adds` does not name it"),
    "a missing column": (broken(process=lambda self, batch: batch), "length should be there and is not"),
    "a removed column": (broken(process=lambda self, batch: self.scored(batch).without(["other"])), "other should be there"),
    "another type": (broken(process=narrow), "column 'length' is int16, and the contract says int64"),
    "a changed column": (broken(process=changes_the_text), r"changes 'text' \(record 'a': 'one' becomes 'x'\)"),
    "reads what it does not name": (broken(process=reads_another), "raises KeyError.* without other, which its contract"),
    "reads more if it is there": (broken(process=reads_another_if_it_is_there), "answers differently without other"),
    "needs what it does not read": (broken(contract=lambda self: Contract(needs={"text", "other"}, adds={"length": pa.int64()})),
                                    "does as well without 'other': take it out"),
    "needs what is not there": (broken(contract=lambda self: Contract(needs={"txt"})), "needs txt, which the batch given"),
    "needs a text": (broken(contract=lambda self: Contract(needs="text")), r"needs is a collection.*write \{'text'\}"),
    "adds a list": (broken(contract=lambda self: Contract(adds=["length"])), "adds is a mapping"),
    "adds the engine's": (broken(contract=lambda self: Contract(adds={"_x": None})), "_x: names that begin with _"),
    "no contract": (broken(contract=lambda self: {"needs": "text"}), "contract gave dict; give a Contract"),
    "minds a null": (broken(length=lambda self, text: len(text)), "raises TypeError"),
    "minds the order": (broken(process=by_place), "differently when rows come in another order"),
    "minds the batch": (broken(process=from_the_batch), "differently when rows come one by one: record 'a' on port 'out' has "
                        "length = 3 instead of 16"),
    "keeps state": (broken(process=from_state), "differently when rows come one by one"),
    "minds to be alone": (broken(process=lambda self, batch: self.scored(batch) if len(batch) != 1 else 1 / 0),
                          "raises ZeroDivisionError .* for a single record, when there is no other"),
    "chance": (broken(process=by_chance), "answers differently"),
    "finds what is not counted": (broken(process=lambda self, batch: self.scored(batch), findings=lambda self, step, counts: [
        counts.extra["tokens"]]), "raises KeyError .* in `findings` of a run that has counted nothing"),
    "finds words": (broken(process=lambda self, batch: self.scored(batch), findings=lambda self, step, counts: ["words"]),
                    "`findings` gives str; give Line, Alarm or Table"),
    "shows by magic": (broken(process=lambda self, batch: self.scored(batch), example_columns=lambda self: {"length": "magic"}),
                       "columns are shown as image, audio, video, text, number"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_stage_is_caught_and_told_what_to_do(fault):
    made, problem = BROKEN[fault]
    with pytest.raises(AssertionError, match=f"(?s){problem}"):
        check_stage(made, TEXTS)


def test_a_worker_that_begins_in_the_middle_answers_as_the_one_before():
    with pytest.raises(AssertionError, match=r"when a new worker goes on in the middle: .*length = 1 instead of 2.*no state"):
        check_stage(broken(process=from_state), TEXTS, skip={"batch_size"})


def test_a_null_is_minded_also_when_the_batch_has_none():
    given = TEXTS.filter([True, True, False, True]).with_columns({"text": ["x", "y", "z"]})
    with pytest.raises(AssertionError, match=r"raises TypeError .* when 'text' holds a null: send such rows to `dropped`"):
        check_stage(broken(length=lambda self, text: len(text)), given)


@stage(needs={"pixels"}, adds={"mean": pa.float64()})
def writes_into_its_input(batch):
    for pixels in batch.pixels:
        if pixels is not None:
            pixels += 1
    means = [None if p is None else float(p.mean()) for p in batch.pixels]
    return batch.with_columns({"mean": pa.array(means, pa.float64())})


def test_writing_into_the_given_arrays_is_caught():
    with pytest.raises(AssertionError, match=r"changes 'pixels'|changes the batch that it is given|answers differently"):
        check_stage(writes_into_its_input, images())
    others = set(CHECKS) - {"input"}
    with pytest.raises(AssertionError, match=r"changes the batch that it is given.*copy an array"):
        check_stage(writes_into_its_input, images(), skip=others)


@stage(needs={"pixels"}, adds={"mean": pa.float64()})
def writes_the_same_again(batch):
    for pixels in batch.pixels:
        if pixels is not None:
            pixels[pixels < 3] = 0
    means = [None if p is None else float(p.mean()) for p in batch.pixels]
    return batch.with_columns({"mean": pa.array(means, pa.float64())})


def test_writing_what_a_second_call_would_not_change_is_caught():
    with pytest.raises(AssertionError, match="changes the batch that it is given"):
        check_stage(writes_the_same_again, images(), skip=set(CHECKS) - {"input"})
    with pytest.raises(AssertionError):
        check_stage(writes_the_same_again, images())


@stage(needs={"pixels"}, adds={"mean": pa.float64()})
def minds_missing_pixels(batch):
    return batch.with_columns({"mean": pa.array([float(p.mean()) for p in batch.pixels], pa.float64())})


def test_a_payload_may_be_missing_in_some_rows():
    with pytest.raises(AssertionError, match=r"raises AttributeError .* when 'pixels' holds a null"):
        check_stage(minds_missing_pixels, images())


@dataclass(kw_only=True)
class Nearly(Length):
    """Answers a little differently in each batch size, as a GPU does."""

    def process(self, batch):
        return batch.with_columns({"length": pa.array(
            [float(self.length(t)) * (1 + 1e-9 * len(batch)) for t in batch.column("text")], pa.float64())})

    def contract(self):
        return Contract(needs={"text"}, adds={"length": pa.float64()})


def test_numbers_may_differ_a_little_when_asked():
    check_stage(Nearly(), TEXTS, tolerance=1e-6)
    with pytest.raises(AssertionError, match="one by one"):
        check_stage(Nearly(), TEXTS)
    check_stage(Nearly(), TEXTS, skip={"batch_size"})


@dataclass(kw_only=True)
class Forgetful(Stateful):
    """Lets each text through once; its snapshots can be broken."""

    snapshots: bool = True
    passing: bool = True

    def contract(self):
        return Contract(needs={"text"})

    def setup(self, ctx):
        self.seen = {}

    def process(self, batch):
        places = list(zip(batch.column("id"), batch.column("text"), strict=True))
        passes = np.array([self.seen.setdefault(t, i) == i and self.passing for i, t in places], dtype=bool)
        copies = batch.filter(~passes)
        of = pa.array([self.seen[t] for t in copies.column("text")], pa.string())
        return Outputs(out=batch.filter(passes), duplicate=copies.with_columns({"duplicate_of": of}))

    def snapshot(self, unit):
        rows = self.seen if self.snapshots else {}
        return Snapshot(pa.table({"text": pa.array(list(rows), pa.string()), "id": pa.array(list(rows.values()), pa.string())}))

    def restore(self, unit, memory):
        self.seen |= dict(zip(memory["text"].to_pylist(), memory["id"].to_pylist(), strict=True))


class Counting(Forgetful):
    """Takes a record that is shown again for a new one."""

    def process(self, batch):
        passes = np.array([t not in self.seen for t in batch.column("text")], dtype=bool)
        self.seen |= dict(zip(batch.column("text"), batch.column("id"), strict=True))
        return Outputs(out=batch.filter(passes), dropped=batch.filter(~passes))


def test_a_stateful_stage_remembers_and_knows_a_record_again():
    check_stage(Forgetful(), TEXTS)
    with pytest.raises(AssertionError, match=r"differently after snapshot and restore: .*Keep in the snapshot"):
        check_stage(Forgetful(snapshots=False), TEXTS)
    with pytest.raises(AssertionError, match="differently when a unit is shown again after a failure"):
        check_stage(Counting(), TEXTS)


@pytest.mark.parametrize(("batch", "problem"), [
    (TEXTS.slice(0, 2), "wants 3 records or more"), (TEXTS.without(["source"]), "columns `id` and `source`"),
    (TEXTS.take([0, 1, 1]), "different ids")])
def test_a_batch_that_proves_nothing_is_refused(batch, problem):
    with pytest.raises(AssertionError, match=problem):
        check_stage(Length(), batch)


def test_wrong_calls_are_refused():
    with pytest.raises(ValueError, match="no check is called nulls_; there are pickling"):
        check_stage(Length(), TEXTS, skip={"nulls_"})
    with pytest.raises(TypeError, match="check_source or check_sink"):
        check_stage(Jsonl(path="x"), TEXTS)


def test_run_stage_answers_several_batches_in_turn():
    outputs = run_stage(Length(), TEXTS, TEXTS)
    assert outputs["out"].column("id") == ["a", "b", "c", "a", "b", "c"]
    assert outputs["dropped"].column("reason") == ["long", "long"]


# -- sources ------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Numbers(Source):
    """Two units of three records each."""

    faults: set[str] = field(default_factory=set)
    calls: list[int] = field(default_factory=list)

    def contract(self):
        return Contract(adds={"n": pa.int64()})

    def units(self) -> list[Unit]:
        self.calls.append(1)
        version = str(len(self.calls)) if "lists anew" in self.faults else ""
        parts = [SourceRange(uri=f"u{n}", size_bytes=3, version=version) for n in (0, 0 if "one key" in self.faults else 1)]
        return [] if "nothing" in self.faults else [Unit((part,)) for part in parts]

    def read(self, unit: Unit) -> Iterator:
        if "raises" in self.faults:
            raise OSError("gone")
        uri, faults = unit.parts[0].uri, self.faults
        ids = [os.urandom(4).hex() if "chance" in faults else str(n) if "same ids" in faults else f"{uri}:{n}" for n in range(3)]
        if "counts" in faults:
            self.calls.append(1)
            ids = [f"{i}-{len(self.calls)}" for i in ids]
        if "goes on" in faults:  # where a reading that was given up ended
            self.begun = getattr(self, "begun", 0) + 1
            ids = ids if self.begun == 1 else ids[::-1]
        columns = {"id": list(range(3)) if "ids are numbers" in faults else ids, "source": [uri] * 3,
                   "n": [1.5] * 3 if "type" in faults else [1, 2, 3], "_x": [1] * 3}
        left_out = {"source" if "no source" in faults else "", "n" if "no column" in faults else "",
                    "" if "hidden" in faults else "_x"}
        batch = TextBatch(pa.table({name: values for name, values in columns.items() if name not in left_out}))
        yield Outputs(rest=batch) if "port" in faults else batch.rows if "table" in faults else batch.slice(0, 2)
        self.begun = 0
        yield Outputs(out=batch.slice(2, 3), failed=batch.slice(0, 1).with_error("bad"))


def test_a_source_without_a_fault_passes(tmp_path):
    check_source(Numbers())
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"text": \n{"text": "y"}\n')
    check_source(Jsonl(path=str(tmp_path)))


@pytest.mark.parametrize(("fault", "problem"), [
    ("nothing", "lists no unit"), ("one key", "two units have one key"), ("lists anew", "lists other units the second time"),
    ("raises", r"raises OSError \(gone\) while reading u0: what cannot be read is a row on `failed`"),
    ("counts", "reads u1 differently the second time: .*whatever was read before it"),
    ("goes on", "reads u1 differently the second time: .*whatever was read before it"),
    ("chance", "reads u1 differently the second time"), ("same ids", r"gives several records one id \(0, 1, 2\)"),
    ("ids are numbers", "id is int64; make it a string"), ("no source", "rows lack the column 'source'"),
    ("no column", "'n' is missing, which `columns` or the contract names"), ("type", "column 'n' is double, and .* says int64"),
    ("hidden", "_x: names that begin with _"), ("port", "port 'rest', which is none of its"), ("table", "answered Table on")])
def test_a_broken_source_is_caught(fault, problem):
    with pytest.raises(AssertionError, match=problem):
        check_source(Numbers(faults={fault}))


def test_ids_of_the_input_may_repeat_when_that_is_known():
    check_source(Numbers(faults={"same ids"}), unique_ids=False)


# -- sinks --------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Tables(Sink):
    """One Parquet file a unit."""

    path: str
    faults: set[str] = field(default_factory=set)

    def open(self, name: str) -> Writer:
        return TableWriter(self, name)


class TableWriter(Writer):
    def __init__(self, sink, name):
        self.faults, self.folder = sink.faults, Path(sink.path)
        self.folder.mkdir(exist_ok=True)
        self.file = self.folder / ("x" if "name" in self.faults else f"{name}.parquet")
        self.tables = vars(sink).setdefault("tables", []) if "one for all" in self.faults else []
        if "begins early" in self.faults:
            self.file.write_bytes(b"")
        if "begins elsewhere" in self.faults:
            (self.folder / "begun").write_bytes(b"")

    def write(self, batch):
        self.tables.append(batch.rows if "hidden" in self.faults else batch.visible())

    def close(self):
        (self.folder / "begun").unlink(missing_ok=True)
        if not self.tables:
            return []
        table = pa.concat_tables(self.tables)
        table = table.slice(1) if "loses a row" in self.faults else table
        if "order" in self.faults:
            table = table.take(list(range(table.num_rows))[::-1])
        pq.write_table(table, self.file)
        if "leaves a file" in self.faults:
            self.file.with_suffix(".tmp").write_bytes(b"")
        size = 1 if "size" in self.faults else self.file.stat().st_size
        told = self.folder / "gone.parquet" if "path" in self.faults else self.file
        return [WrittenFile(str(told), sum(t.num_rows for t in self.tables) if "loses a row" in self.faults else
                            table.num_rows + ("rows" in self.faults), size)]

    def abort(self):
        if "abort" not in self.faults:
            self.file.unlink(missing_ok=True)


def test_a_sink_without_a_fault_passes(tmp_path):
    check_sink(Tables(path=str(tmp_path / "a")), TEXTS, read=pq.read_table)
    check_sink(ToParquet(path=str(tmp_path / "b")), TEXTS, read=pq.read_table)
    check_sink(ToParquet(path="memory://kit/c"), TEXTS)


@pytest.mark.parametrize(("faults", "problem"), [
    ({"name"}, "does not begin with 'part-check-a-0'"), ({"rows"}, "reports 5 rows and was given 4"),
    ({"loses a row"}, "3 rows are in the files, and 4 were given"), ({"size"}, "reports 1 bytes of"),
    ({"order"}, "a row comes back as"), ({"hidden"}, r"writes _row, _unit, the engine's columns: write `batch.visible\(\)`"),
    ({"leaves a file"}, "left part-check-a-0.tmp behind"), ({"begins early", "abort"}, "leaves .* behind after `abort`"),
    ({"path"}, "does not begin with|which is not there"), ({"one for all"}, "reports 9 rows and was given 4"),
    ({"begins elsewhere"}, "begins the file begun, whose name does not begin with the name given to `open`: it would stay")])
def test_a_broken_sink_is_caught(tmp_path, faults, problem):
    with pytest.raises(AssertionError, match=problem):
        check_sink(Tables(path=str(tmp_path / "out"), faults=faults), TEXTS, read=pq.read_table)


def test_a_sink_has_a_path():
    with pytest.raises(AssertionError, match=r"'nowhere' .* has no field `path`: every sink has one"):
        check_sink(dataclass(kw_only=True)(type("Nowhere", (Sink,), {}))(), TEXTS)


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    Folder.open(str(tmp_path)).write("old.parquet", b"x")
    with pytest.raises(AssertionError, match=r"wants an empty folder; in .* there is old\.parquet"):
        check_sink(Tables(path=str(tmp_path)), TEXTS)


# -- reductions -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Share(Reduce):
    """Adds how much of all text a record is."""

    columns = ("text",)
    breaks: str = ""

    def contract(self):
        return Contract(needs={"text"}, adds={"share": pa.float64()})

    def setup(self, ctx):
        self.total, self.first = 0, None

    def clear(self):
        if self.breaks != "clear":
            self.total, self.first = 0, None

    def absorb(self, batch):
        sizes = [len(t or "") for t in batch.column("text")]
        self.first = sizes[0] if self.first is None else self.first
        self.total += self.first * len(sizes) if self.breaks == "order" else sum(sizes)

    def finish(self):
        if self.breaks == "finish":
            yield TextBatch(pa.table({"id": ["made"]}))

    def process(self, batch):
        shares = pa.array([len(t or "") / max(1, self.total) for t in batch.column("text")], pa.float64())
        return batch.slice(1, len(batch)) if self.breaks == "lose" else batch.with_columns({"share": shares})


def some_texts():
    return TextBatch(pa.table({"id": ["a", "b", "c", "d"], "source": ["s"] * 4, "text": ["1", "22", "333", "4444"]}))


def test_a_good_reduction_passes_and_sees_all_of_a_shard_first():
    check_stage(Share(), some_texts())
    answer = run_stage(Share(), some_texts().slice(0, 2), some_texts().slice(2, 4))
    assert answer["out"].column("share") == [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize(("breaks", "told"), [
    ("clear", "Forget in `clear`"), ("order", "in another order"), ("lose", "1 of 4 rows are on no port"),
    ("finish", "port 'out': rows lack the column 'source'")])
def test_a_reduction_that_breaks_a_rule_is_told_so(breaks, told):
    with pytest.raises(AssertionError, match=told):
        check_stage(Share(breaks=breaks), some_texts())


@dataclass(kw_only=True)
class Model(Length):
    """Notes each time that it is set up, as each loads a model."""

    notes: str = setting()

    def setup(self, ctx):
        with open(self.notes, "a") as file:
            file.write("x")


def test_a_stage_is_set_up_no_more_often_than_its_checks_need(tmp_path):
    check_stage(Model(notes=str(tmp_path / "notes")), TEXTS)
    # the whole batch twice, without other columns, backwards, one by one, in halves, and the second half alone
    assert (tmp_path / "notes").read_text() == "x" * 7
