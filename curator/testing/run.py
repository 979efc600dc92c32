"""Runs a stage over a batch as a worker does, and compares what it answers; beneath `curator.testing`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import pyarrow as pa

from curator.api.batch import HIDDEN, ROW, UNIT, Batch
from curator.api.stage import SIDE_OUTPUTS, Context, Outputs, Reduce, Sink, Source, Stage, Unit

Record = dict[str, Any]
Answers = dict[str, list[tuple[int, Record]]]  # by port: position of the input row, and what became of it
MADE = -1  # in place of the position: a row that `finish` made
IDENTITY = ("id", "source")
AnyStage = TypeVar("AnyStage", bound=Stage)


# -- as in a worker -----------------------------------------------------------------------------------------------


def fresh(stage: AnyStage) -> AnyStage:
    """A copy as a worker gets it, set up."""
    try:
        working = cloudpickle.loads(cloudpickle.dumps(stage))
    except Exception as error:
        raise AssertionError(f"{named(stage)} cannot be pickled, so no worker can get it: {in_words(error)}. Make in `setup` "
                             "what cannot travel (models, connections, locks), and keep it out of the fields") from error
    if not isinstance(working, Sink):
        working.setup_node(Context())
        working.setup(Context())
    return working


def check_fingerprint(stage: Stage) -> None:
    """The fingerprint is the same in a worker as here."""
    copied = cloudpickle.loads(cloudpickle.dumps(stage))
    assert copied.fingerprint() == stage.fingerprint(), (
        f"{named(stage)} has another fingerprint after a journey to a worker: the description of a parameter depends on the "
        "process. Make it a plain value, or a `setting` if it does not change the answer")


def marked(batch: Batch) -> Batch:
    """With the engine's columns, as a call gets it."""
    marks: dict[str, Any] = {ROW: pa.array(np.arange(len(batch), dtype=np.int32))}
    if UNIT not in batch.rows.column_names:
        marks[UNIT] = pa.array(np.zeros(len(batch), dtype=np.int32))
    return batch.with_columns(marks)


def learn(stage: Stage, batches: Sequence[Batch]) -> Outputs:
    """Pass one of a `Reduce` over a shard of these batches, and what it makes of them; nothing of any other stage."""
    if not isinstance(stage, Reduce):
        return Outputs()
    stage.clear()
    wanted = stage.columns
    for batch in batches:
        if len(batch) and isinstance(batch, stage.absorbs):
            stage.absorb(batch if wanted is None else without(batch.select(wanted), set(batch.payloads()) - set(wanted)))
    made: dict[str, list[Batch]] = {}
    for outputs in _parts(stage, "finish", stage.finish() or ()):
        for port, rows in outputs.items():
            check_rows(f"{named(stage)}: finish", port, rows, stage.ports)
            made.setdefault(port, []).append(rows)
    return _joined(stage, made)


def call(stage: Stage, batch: Batch) -> Outputs:
    """One `process` call over marked rows, checked as the engine checks it. What is absorbed is the port `absorbed`."""
    found: dict[str, list[Batch]] = {}
    seen = [np.empty(0, dtype=np.int32)]
    for outputs in _parts(stage, "process", stage.process(batch)):
        absorbed = [] if outputs.absorbed is None else [("absorbed", outputs.absorbed)]
        for port, answer in [*outputs.items(), *absorbed]:
            who = f"{named(stage)}, port {port!r}"
            gone = [] if not isinstance(answer, Batch) else [n for n in HIDDEN if n not in answer.rows.column_names]
            assert not gone, (f"{who}: {', '.join(gone)} got lost, so that nobody knows which row became which. Make batches "
                              "from the given one: take, filter, split, explode, with_columns, select")
            check_rows(named(stage), port, answer, (*stage.ports, "absorbed"))
            places = answer.rows.column(ROW).to_numpy()
            assert not len(places) or (places.min() >= 0 and places.max() < len(batch)), (
                f"{who}: {ROW} was changed; columns that begin with _ belong to the engine")
            seen.append(places)
            found.setdefault(port, []).append(answer)
    lost = np.setdiff1d(np.arange(len(batch)), np.concatenate(seen))
    ids = ", ".join(batch.rows.column("id").take(pa.array(lost[:5])).to_pylist())
    assert not len(lost), (f"{named(stage)} loses {len(lost)} of {len(batch)} rows (records {ids}): send each row on, to "
                           "`dropped` (with_reason) if need be, or name it as absorbed")
    return _joined(stage, found)


def answers(stage: Stage, batch: Batch, groups: Sequence[np.ndarray] | None = None,
            working: Stage | None = None) -> Answers:
    """What became of each row of the batch, given in these groups; in the order of the input, after what a `Reduce` made."""
    worker = fresh(stage) if working is None else working
    found: Answers = {}
    groups = [np.arange(len(batch))] if groups is None else groups
    for port, made in learn(worker, [batch.take(group) for group in groups]).items():
        found[port] = sorted(((MADE, record) for record in records(made)), key=lambda row: row[1]["id"])
    for group in groups:
        for port, answer in call(worker, marked(batch.take(group))).items():
            places = group[answer.rows.column(ROW).to_numpy()]
            found.setdefault(port, []).extend(zip(places.tolist(), records(answer), strict=True))
    if working is None:
        worker.close()
    return {port: sorted(rows, key=lambda row: row[0]) for port, rows in found.items()}


def read_unit(source: Source, unit: Unit) -> Iterator[tuple[str, Batch]]:
    """What a source reads of a unit: ports and batches."""
    for item in source.read(unit):
        yield from (item if isinstance(item, Outputs) else {"out": item}).items()


def check_rows(who: str, port: str, rows: Any, ports: Collection[str]) -> None:
    """What holds for all rows that come out of a source or stage with these ports."""
    who = f"{who}, port {port!r}"
    assert isinstance(rows, Batch), f"{who}: gave {type(rows).__name__}; give batches"
    assert port in (*ports, *SIDE_OUTPUTS), f"{who}: no such port; name it in `ports`, there are {', '.join(ports) or 'none'}"
    for name in IDENTITY:
        assert name in rows.rows.column_names, f"{who}: rows lack the column {name!r}; every record has one"
        kind = rows.rows.schema.field(name).type
        assert pa.types.is_string(kind) or pa.types.is_large_string(kind), f"{who}: {name} is {kind}; make it a string"
        assert not rows.rows.column(name).null_count, f"{who}: {name} is null in some rows; every record has one"
    if port == "duplicate" and len(rows):
        assert "duplicate_of" in rows.columns, f"{who}: wants the column `duplicate_of`, the id of the record kept"


def _parts(stage: Stage, method: str, result: Any) -> Iterator[Outputs]:
    whole = isinstance(result, (Batch, Outputs)) or not isinstance(result, Iterable)
    for item in [result] if whole else result:
        assert isinstance(item, (Batch, Outputs)), (
            f"{named(stage)}: {method} gave {type(item).__name__}; give a batch, Outputs, or an iterator of these")
        yield item if isinstance(item, Outputs) else Outputs(out=item)


def _joined(stage: Stage, found: Mapping[str, list[Batch]]) -> Outputs:
    """One batch a port; ports without rows are left out."""
    return Outputs({port: joined(stage, port, kept) for port, batches in found.items() if (kept := list(filter(len, batches)))})


def joined(stage: Stage, port: str, batches: Sequence[Batch]) -> Batch:
    try:
        return Batch.concat(batches)
    except ValueError as error:
        raise AssertionError(f"{named(stage)} gives batches on port {port!r} that cannot be joined: {error}. Give columns "
                             "one type, also where all values are null: pa.array(values, type)") from error


# -- comparing ----------------------------------------------------------------------------------------------------


def without(batch: Batch, names: Collection[str]) -> Batch:
    """The batch without these columns and payloads."""
    return replace(batch.without([n for n in names if n in batch.columns]),
                   **{name: None for name in batch.payloads() if name in names})


def records(batch: Batch) -> list[Record]:
    """Each row with its payloads, without the engine's columns."""
    columns = batch.visible().to_pydict() | batch.payloads()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def difference(expected: Answers, got: Answers, tolerance: float = 0.0) -> str | None:
    """The first difference in words, None if there is none."""
    for port in dict.fromkeys([*expected, *got]):
        before, after = expected.get(port, []), got.get(port, [])
        if len(before) != len(after):
            return f"{len(after)} rows on port {port!r} instead of {len(before)}"
        for (place, old), (other, new) in zip(before, after, strict=True):
            if place != other:
                return f"port {port!r} has the record {new['id']!r} in the place of {old['id']!r}"
            for name in dict.fromkeys([*old, *new]):
                if not (name in old and name in new and same(old[name], new[name], tolerance)):
                    was, now = (short(row[name]) if name in row else "nothing" for row in (old, new))
                    return f"record {old['id']!r} on port {port!r} has {name} = {now} instead of {was}"
    return None


def same(a: Any, b: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are equal; numbers may differ by `tolerance`, relatively; NaN equals NaN."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        inexact = tolerance and np.issubdtype(a.dtype, np.inexact)
        return bool(np.allclose(a, b, rtol=tolerance, equal_nan=True)) if inexact else a.tobytes() == b.tobytes()
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=tolerance)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def equal(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same, the engine's columns included."""
    return (a.rows.schema.equals(b.rows.schema) and len(a) == len(b)
            and same(a.rows.to_pydict(), b.rows.to_pydict()) and same(a.payloads(), b.payloads()))


# -- words --------------------------------------------------------------------------------------------------------


@contextmanager
def raising(who: str, when: str) -> Iterator[None]:
    """Whatever is raised is the fault of `who`: `'x' (X) raises ValueError (…) for a batch without rows`."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{who} raises {in_words(error)} {when}") from error


def named(stage: Stage) -> str:
    return f"{stage.name!r} ({type(stage).__name__})"


def in_words(error: BaseException) -> str:
    return f"{type(error).__name__} ({str(error)[:200]})"


def short(value: Any, length: int = 60) -> str:
    text = f"{value.dtype} array {value.shape}" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= length else text[:length - 3] + "..."
