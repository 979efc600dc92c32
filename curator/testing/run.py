"""Runs a stage over a batch as a worker does, and compares what it answers; beneath `curator.testing`."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import pyarrow as pa

from curator.api.batch import ROW, UNIT, Batch
from curator.api.errors import StageError
from curator.api.stage import Context, Outputs, Reduce, Sink, Source, Stage, Unit
from curator.pipeline.plan import Operator, Step
from curator.worker.account import Account
from curator.worker.answer import Answer
from curator.worker.rows import parts
from curator.worker.steps import WorkingStep

Record = dict[str, Any]
Answers = dict[str, list[tuple[int, Record]]]  # by port: position of the input row, and what became of it
MADE = -1  # in place of the position: a row that `finish` made
IDENTITY = ("id", "source")
AnyStage = TypeVar("AnyStage", bound=Stage)


def fresh(stage: AnyStage, gpus: tuple[int, ...] = ()) -> AnyStage:
    """A copy as a worker gets it, set up. `gpus`: the worker's devices."""
    try:
        working = cloudpickle.loads(cloudpickle.dumps(stage))
    except Exception as error:
        raise AssertionError(f"{named(stage)} cannot be pickled, so no worker can get it: {in_words(error)}. "
                             "Make in `setup` what cannot travel (models, connections, locks), and keep it "
                             "out of the fields") from error
    if not isinstance(working, Sink):
        working.setup_node(Context(gpus=gpus))
        working.setup(Context(gpus=gpus))
    return working


def check_fingerprint(stage: Stage) -> None:
    """The fingerprint is the same in a worker as here."""
    copied = cloudpickle.loads(cloudpickle.dumps(stage))
    assert copied.fingerprint() == stage.fingerprint(), (
        f"{named(stage)} has another fingerprint after a journey to a worker: the description of a parameter "
        "depends on the process. Make it a plain value, or a `setting` if it does not change the answer")


def marked(batch: Batch) -> Batch:
    """With the engine's columns, as a call gets it."""
    marks: dict[str, Any] = {ROW: pa.array(np.arange(len(batch), dtype=np.int32))}
    if UNIT not in batch.rows.column_names:
        marks[UNIT] = pa.array(np.zeros(len(batch), dtype=np.int32))
    return batch.with_columns(marks)


def learn(stage: Stage, batches: Sequence[Batch]) -> Outputs:
    """Pass one of a `Reduce` over a shard of these batches, and what it makes of them; nothing of any other
    stage."""
    if not isinstance(stage, Reduce):
        return Outputs()
    stage.clear()
    wanted = stage.columns
    for batch in batches:
        if len(batch) and isinstance(batch, stage.absorbs):
            stage.absorb(batch if wanted is None
                         else without(batch.select(wanted), set(batch.payloads()) - set(wanted)))
    made: dict[str, list[Batch]] = {}
    for port, rows in _by_port(stage, stage.finish() or ()):
        made.setdefault(port, []).append(rows)
    return _joined(stage, made)


def call(stage: Stage, batch: Batch) -> Outputs:
    """One `process` call over marked rows, with the account that a worker keeps of it. What is absorbed is
    the port `absorbed`."""
    found: dict[str, list[Batch]] = {}
    account = Account(stage.name, stage, batch, None)

    def saw(port: str | None, rows: Batch) -> None:
        try:
            with broken_rules():
                account.saw(port, rows)
        except IndexError as error:
            raise AssertionError(f"{named(stage)}, port {port!r}: {ROW} was changed; columns that begin with "
                                 "_ belong to the engine") from error

    def absorb(rows: Batch) -> None:
        saw(None, rows)
        found.setdefault("absorbed", []).append(rows)

    for port, rows in _by_port(stage, stage.process(batch), absorb):
        saw(port, rows)
        found.setdefault(port, []).append(rows)
    with broken_rules():
        account.close(0.0)
    return _joined(stage, found)


@contextmanager
def broken_rules() -> Iterator[None]:
    """What a worker would stop the run for is a rule that is broken; a StageError that the stage raises
    itself is not."""
    try:
        yield
    except StageError as error:
        raise AssertionError(str(error)) from error


def answers(stage: Stage, batch: Batch, groups: Sequence[np.ndarray] | None = None,
            working: Stage | None = None) -> Answers:
    """What became of each row of the batch, given in these groups; in the order of the input, after what a
    `Reduce` made."""
    worker = fresh(stage) if working is None else working
    groups = [np.arange(len(batch))] if groups is None else groups
    learned = learn(worker, [batch.take(group) for group in groups])
    called = [(group, call(worker, marked(batch.take(group)))) for group in groups]
    if working is None:
        worker.close()
    return told(learned, called)


def told(learned: Outputs, called: Sequence[tuple[np.ndarray, Outputs]]) -> Answers:
    """What became of each row, from what `learn` gave and `call` for each group of rows."""
    found: Answers = {}
    for port, made in learned.items():
        found[port] = sorted(((MADE, record) for record in records(made)), key=lambda row: row[1]["id"])
    for group, answered in called:
        for port, answer in answered.items():
            places = group[answer.rows.column(ROW).to_numpy()]
            found.setdefault(port, []).extend(zip(places.tolist(), records(answer), strict=True))
    return {port: sorted(rows, key=lambda row: row[0]) for port, rows in found.items()}


def read_unit(source: Source, unit: Unit) -> Iterator[tuple[str, Batch]]:
    """What a source reads of a unit: ports and batches."""
    return _by_port(source, source.read(unit))


def _by_port(stage: Stage, result: Any,
             absorb: Callable[[Batch], None] = lambda rows: None) -> Iterator[tuple[str, Batch]]:
    """The rows of an answer as a worker takes them, port by port. All of them have an identity."""
    step = Step(stage.name, stage, "")
    answer = Answer(Operator(0, "map", (step,)), put=id)
    working = WorkingStep(0, step, answer, begins=lambda step: None, lockstep=True)
    for outputs in parts(result):
        with broken_rules():
            ports = list(working.ports(outputs))
        for port, rows in ports:
            who = f"{named(stage)}, port {port!r}"
            for name in IDENTITY:
                assert name in rows.rows.column_names, (
                    f"{who}: rows lack the column {name!r}; every record has one")
                kind = rows.rows.schema.field(name).type
                assert pa.types.is_string(kind) or pa.types.is_large_string(kind), (
                    f"{who}: {name} is {kind}; make it a string")
                assert not rows.rows.column(name).null_count, (
                    f"{who}: {name} is null in some rows; every record has one")
            yield port, rows
        if outputs.absorbed is not None:
            absorb(outputs.absorbed)


def _joined(stage: Stage, found: Mapping[str, list[Batch]]) -> Outputs:
    """One batch a port; ports without rows are left out."""
    return Outputs({port: joined(stage, port, kept) for port, batches in found.items()
                    if (kept := list(filter(len, batches)))})


def joined(stage: Stage, port: str, batches: Sequence[Batch]) -> Batch:
    try:
        return Batch.concat(batches)
    except ValueError as error:
        raise AssertionError(f"{named(stage)} gives batches on port {port!r} that cannot be joined: {error}. "
                             "Give columns "
                             "one type, also where all values are null: pa.array(values, type)") from error


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
    """Whether two values are equal; NaN equals NaN. Numbers may differ by `tolerance`, relatively, or by a
    tenth of it; those of a vector by `tolerance` of its largest."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        inexact = tolerance and np.issubdtype(a.dtype, np.inexact)
        return bool(np.allclose(a, b, rtol=tolerance,
                                equal_nan=True)) if inexact else a.tobytes() == b.tobytes()
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(
            a, b, rel_tol=tolerance, abs_tol=tolerance / 10)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if tolerance and len(a) == len(b) and {type(v) for v in (*a, *b)} == {float}:
            largest = max((abs(value) for value in a if math.isfinite(value)), default=0.0)
            return bool(np.allclose(a, b, rtol=0, atol=tolerance * largest, equal_nan=True))
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def equal(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same, the engine's columns included."""
    return (a.rows.schema.equals(b.rows.schema) and len(a) == len(b)
            and same(a.rows.to_pydict(), b.rows.to_pydict()) and same(a.payloads(), b.payloads()))


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
