"""The conformance kit for stages; see `curator.testing`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa

from curator.api.batch import UNIT, Batch
from curator.api.counts import Counts
from curator.api.findings import Finding, Shown
from curator.api.stage import Contract, Outputs, Reduce, Sink, Source, Stage, Stateful
from curator.machine.detect import visible_devices
from curator.testing import run
from curator.testing.run import IDENTITY, MADE, Answers, fresh, named, raising, short
from curator.testing.whole import as_one

GPU_TOLERANCE = 0.05  # what float16 makes of a small random model's numbers, at most


def check_stage(stage: Stage, batch: Batch, *, tolerance: float = 0.0, skip: Collection[str] = ()) -> None:
    """Check that a stage keeps its contract and loses, changes and mixes up nothing.

    `batch`: records that the stage can work on, with all that its contract needs. `tolerance`: by how much,
    relatively, numbers may differ between two runs over the same records in other batches (models on a GPU).
    `skip`: checks to leave out, by name: see `CHECKS`. A `Stateful` stage may mind the order; what it learned
    must survive a snapshot instead. A `Reduce` is given the batch as one shard, and so is a `Composite`.

    Raises:
        AssertionError: what is wrong, and what to do.
    """
    unknown = set(skip) - set(CHECKS)
    if unknown:
        raise ValueError(f"no check is called {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    if isinstance(stage, (Source, Sink)):
        raise TypeError(f"{named(stage)} is a source or a sink: call check_source or check_sink")
    stage = as_one(stage)
    _check_given(stage, batch)
    with raising(named(stage), "for the batch given to check_stage"):
        working = fresh(stage)
        answered = run.answers(stage, copy.deepcopy(batch), working=working)  # it may write into it
    subject = Subject(stage, batch, answered, tolerance, working)
    for name, check in CHECKS.items():
        if name not in skip:
            check(subject)
    working.close()


class Again(NamedTuple):
    """The batch before and after a worker was given it; what that learned, and answered."""

    before: Batch
    given: Batch
    learned: Outputs
    answered: Outputs


@dataclass
class Subject:
    """A stage under test, and what it answers to the whole batch, with which every other way to ask is
    compared. To set up a stage may take long (a model), so checks share workers where that hides nothing.

    `first`: the worker that answered.
    """

    stage: Stage
    batch: Batch
    answers: Answers
    tolerance: float
    first: Stage

    @cached_property
    def learns(self) -> bool:
        """Whether it learns from what it is asked, so that each way to ask wants a new worker."""
        return isinstance(self.stage, (Stateful, Reduce))

    @property
    def working(self) -> Stage | None:
        """One that is set up already, for checks that blame no difference; None where a stage learns."""
        return None if self.learns else self.first

    @cached_property
    def again(self) -> Again:
        """A new worker is given the batch too."""
        given = run.marked(copy.deepcopy(self.batch))
        before, worker = copy.deepcopy(given), fresh(self.stage)
        found = Again(before, given, run.learn(worker, [given]), run.call(worker, given))
        worker.close()
        return found

    @cached_property
    def halves(self) -> Answers:
        """What a new worker answers to one half of the batch after the other."""
        return run.answers(self.stage, self.batch, np.array_split(np.arange(len(self.batch)), 2))

    @property
    def who(self) -> str:
        return named(self.stage)

    @property
    def needs(self) -> set[str]:
        """What it reads: for a `Reduce` also what `absorb` is given."""
        absorbs = (self.stage.columns or ()) if isinstance(self.stage, Reduce) else ()
        return {*self.stage.contract().needs, *absorbs} - set(IDENTITY)

    def expect(self, expected: Answers, got: Answers, when: str, remedy: str) -> None:
        different = run.difference(expected, got, self.tolerance)
        assert different is None, f"{self.who} answers differently {when}: {different}. {remedy}"

    def answer(self, batch: Batch, when: str) -> Answers:
        """What a stage that was asked already answers to another batch, which it must not raise for."""
        with raising(self.who, when):
            return run.answers(self.stage, batch, working=self.working)


# -- the checks ----------------------------------------------------------------------------------------------


def _check_given(stage: Stage, batch: Batch) -> None:
    """The contract is one, and the author's batch is fit for the checks."""
    contract, who = stage.contract(), f"{named(stage)}: contract"
    assert isinstance(contract, Contract), f"{who} gave {type(contract).__name__}; give a Contract"
    for part, names in (("needs", contract.needs), ("removes", contract.removes)):
        assert not isinstance(names, str), (
            f"{who}: {part} is a collection of names; for one name write {{{names!r}}}")
    assert isinstance(contract.adds, Mapping), (
        f"{who}: adds is a mapping from names to types, None for payloads")
    hidden = [n for n in (*contract.adds, *contract.removes) if n.startswith("_")]
    assert not hidden, f"{who}: {', '.join(hidden)}: names that begin with _ belong to the engine"
    there = {*batch.columns, *batch.payloads()}
    missing = ", ".join(sorted(set(contract.needs) - there))
    assert len(batch) >= 3, (
        f"check_stage wants 3 records or more, to divide them in several ways; got {len(batch)}")
    assert there.issuperset(IDENTITY), (
        "check_stage wants a batch with the columns `id` and `source`, as every batch has")
    assert not missing, (
        f"{who} needs {missing}, which the batch given to check_stage lacks: put it in, or take it out of "
        "the contract")
    assert len(set(batch.rows.column("id").to_pylist())) == len(batch), (
        "check_stage wants records with different ids")


def _check_pickling(subject: Subject) -> None:
    """The fingerprint is the same in a worker as here."""
    run.check_fingerprint(subject.stage)


def _check_empty(subject: Subject) -> None:
    """A batch without rows is answered by none."""
    got = subject.answer(subject.batch.slice(0, 0), "for a batch without rows; give it back empty")
    answered = [place for rows in got.values() for place, _ in rows if place != MADE]
    assert not answered, f"{subject.who} makes rows out of a batch that has none"


def _check_contract(subject: Subject) -> None:
    """Columns and payloads after the stage are those that it says, with the types that it says."""
    stage, batch = subject.stage, subject.batch
    expected = stage.columns_after(_columns(batch))
    answered = {**subject.again.learned, **subject.again.answered}
    for port in (p for p in stage.ports if p in answered):
        who, actual = f"{subject.who}, port {port!r}", _columns(answered[port])
        missing, extra = sorted(expected.keys() - actual.keys()), sorted(actual.keys() - expected.keys())
        assert not missing, (f"{who}: {', '.join(missing)} should be there and is not; give it to every row, "
                             "null where there is nothing to say, or name it in the contract's `removes`")
        assert not extra, (
            f"{who}: {', '.join(extra)} is new, and the contract's `adds` does not name it; name it there")
        for name, kind in expected.items():
            there = actual[name]
            assert kind is None or there is None or there.equals(kind), (
                f"{who}: column {name!r} is {there}, and the contract says {kind}; make it with "
                "pa.array(values, type)")
        _check_untouched(subject, port, set(actual) - set(stage.contract().adds))


def _check_untouched(subject: Subject, port: str, names: set[str]) -> None:
    """What the contract does not name is passed on as it was. (The id of a child or of a copy is its own.)"""
    given = run.records(subject.batch)
    for place, record in subject.answers.get(port, []):
        before = given[place] if place != MADE else {}
        own = {"id"} if "parent" in record or record.get("copy_of") else set()
        for name in sorted(names & before.keys() - own):
            assert run.same(record[name], before[name]), (
                f"{subject.who} changes {name!r} (record {before['id']!r}: {short(before[name])} becomes "
                f"{short(record[name])}), and the contract's `adds` does not name it; name it there")


def _check_needs(subject: Subject) -> None:
    """The stage reads what it says, all of it and nothing else."""
    stage, batch = subject.stage, subject.batch
    others = {*batch.columns, *batch.payloads()} - subject.needs - set(IDENTITY)
    if others:
        words, remedy = f"without {', '.join(sorted(others))}", "Name what it reads in the contract's `needs`"
        with raising(subject.who, f"{words}, which its contract does not need. {remedy}"):
            got = run.answers(stage, run.without(batch, others))
        subject.expect(_but(subject.answers, others - set(stage.contract().adds)), got, words, remedy)
    sharded = {stage.key} if isinstance(stage, Reduce) else set()  # by the engine, whether it reads it or not
    for name in sorted(subject.needs - sharded):
        try:
            bare: run.Answers | None = run.answers(stage, run.without(batch, {name}), working=subject.working)
        except AssertionError:
            raise
        except Exception:
            bare = None  # as it should be: it cannot do without
        needless = bare is not None and run.difference(_but(subject.answers, {name}), bare) is None
        assert not needless, (
            f"{subject.who} does as well without {name!r}: take it out of the contract's `needs`")


def _check_nulls(subject: Subject) -> None:
    """A null in what the stage reads is bad data, never an exception."""
    batch = subject.batch
    for name in sorted(subject.needs):
        tries = {"a null": _with_nulls(batch, name, [0]),
                 "only nulls": _with_nulls(batch, name, range(len(batch)))}
        if name in batch.columns:
            untyped = batch.with_columns({name: pa.nulls(len(batch))})
            tries["only nulls, and has the type null (a reader saw no value)"] = untyped
        for words, tried in tries.items():
            subject.answer(tried, f"when {name!r} holds {words}: send such rows to `dropped` or `failed`, or "
                                  "answer null (a text that is null counts as empty)")


def _check_alone(subject: Subject) -> None:
    """One record is a batch, and may be all there is."""
    subject.answer(subject.batch.slice(0, 1), "for a single record, when there is no other")


def _check_order(subject: Subject) -> None:
    """A row is answered the same wherever it stands."""
    if not isinstance(subject.stage, Stateful):
        backwards = [np.arange(len(subject.batch))[::-1]]
        subject.expect(subject.answers, run.answers(subject.stage, subject.batch, backwards),
                       "when rows come in another order",
                       "Let each row's answer rest on that row alone; what must see several is a Stateful "
                       "stage")


def _check_batch_size(subject: Subject) -> None:
    """A row is answered the same whatever comes with it."""
    singly = np.array_split(np.arange(len(subject.batch)), len(subject.batch))
    for answers, words in ((run.answers(subject.stage, subject.batch, singly), "one by one"),
                           (subject.halves, "in two halves")):
        subject.expect(subject.answers, answers, f"when rows come {words}",
                       "Let each row's answer rest on that row alone, and keep no state between calls")


def _check_resume(subject: Subject) -> None:
    """A worker that begins in the middle answers as the one before it would have."""
    if subject.learns:
        return  # see `snapshot` and `shards`
    _, second = np.array_split(np.arange(len(subject.batch)), 2)
    expected = {port: rest for port, rows in subject.halves.items()
                if (rest := [row for row in rows if row[0] >= second[0]])}
    subject.expect(expected, run.answers(subject.stage, subject.batch, [second]),
                   "when a new worker goes on in the middle",
                   "An interrupted run goes on with new workers: keep no state between calls")


def _check_determinism(subject: Subject) -> None:
    """The same batch is answered the same."""
    again = subject.again
    rows = np.arange(len(subject.batch))
    subject.expect(subject.answers, run.told(again.learned, [(rows, again.answered)]), "the second time",
                   "A resumed run must decide as before: take randomness from a parameter `seed` and the id")


def _check_gpu(subject: Subject) -> None:
    """On a GPU, in 16 bits, a row is answered as on a core; where there is one, and the stage asks for it."""
    if subject.stage.resources.gpus and visible_devices():
        working = fresh(subject.stage, gpus=(0,))
        with raising(subject.who, "on a GPU"):
            got = run.answers(subject.stage, subject.batch, working=working)
        working.close()
        replace(subject, tolerance=max(subject.tolerance, GPU_TOLERANCE)).expect(
            subject.answers, got, "on a GPU", "Compute there what a core computes")


def _check_input(subject: Subject) -> None:
    """The batch that was given is as it was."""
    assert run.equal(subject.again.before, subject.again.given), (
        f"{subject.who} changes the batch that it is given, which other stages share: copy an array before "
        "writing into it")


def _check_snapshot(subject: Subject) -> None:
    """A stateful stage that is given back what a unit taught it answers as the one that saw the unit."""
    stage, batch = subject.stage, subject.batch
    if not isinstance(stage, Stateful):
        return
    saw, restored, replayed = fresh(stage), fresh(stage), fresh(stage)
    run.answers(stage, batch, working=saw)
    snapshots = [saw.snapshot(0), saw.snapshot(0)]  # the engine may ask twice
    if snapshots[1] is not None:
        restored.restore(0, snapshots[1].rows)
    ids = pa.array([f"{i}-again" for i in batch.rows.column("id").to_pylist()])
    later = batch.with_columns({UNIT: pa.array(np.ones(len(batch), dtype=np.int32)), "id": ids})
    subject.expect(run.answers(stage, later, working=saw), run.answers(stage, later, working=restored),
                   "after snapshot and restore",
                   "Keep in the snapshot of a unit all that later answers rest on")
    run.answers(stage, batch, working=replayed)
    replayed.replay(0)
    subject.expect(subject.answers, run.answers(stage, batch, working=replayed),
                   "when a unit is shown again after a failure",
                   "Tell a record that comes again from another one like it")


def _check_shards(subject: Subject) -> None:
    """A reduction answers a shard as if it were the first one."""
    if isinstance(subject.stage, Reduce):
        working = fresh(subject.stage)
        run.answers(subject.stage, subject.batch.slice(0, len(subject.batch) // 2), working=working)
        subject.expect(subject.answers, run.answers(subject.stage, subject.batch, working=working),
                       "after another shard", "Forget in `clear` all that was absorbed")


def _check_findings(subject: Subject) -> None:
    """It has findings also in a run that has counted nothing yet; examples are shown in a way that the report
    knows."""
    with raising(subject.who, "in `findings` of a run that has counted nothing"):
        found = list(subject.stage.findings(subject.stage.name, Counts()))
    wrong = [type(one).__name__ for one in found if not isinstance(one, Finding)]
    assert not wrong, (
        f"{subject.who}: `findings` gives {wrong[0]}; give Line, Alarm or Table of curator.api.findings")
    unknown = {c: kind for c, kind in subject.stage.example_columns().items() if kind not in get_args(Shown)}
    assert not unknown, (
        f"{subject.who}: `example_columns` gives {unknown}; columns are shown as "
        f"{', '.join(get_args(Shown))}")


CHECKS: dict[str, Callable[[Subject], None]] = {check.__name__.removeprefix("_check_"): check for check in (
    _check_pickling, _check_empty, _check_contract, _check_needs, _check_nulls, _check_alone, _check_order,
    _check_batch_size, _check_resume, _check_determinism, _check_input, _check_snapshot, _check_shards,
    _check_findings, _check_gpu)}


# -- batches -------------------------------------------------------------------------------------------------


def _columns(batch: Batch) -> dict[str, pa.DataType | None]:
    return {field.name: field.type for field in batch.visible().schema} | dict.fromkeys(batch.payloads())


def _but(answered: Answers, names: set[str]) -> Answers:
    return {port: [(place, {name: value for name, value in record.items() if name not in names})
                   for place, record in rows] for port, rows in answered.items()}


def _with_nulls(batch: Batch, name: str, rows: Iterable[int]) -> Batch:
    is_payload, gone = name in batch.payloads(), set(rows)
    given = batch.payloads()[name] if is_payload else batch.rows.column(name).to_pylist()
    values = [None if at in gone else value for at, value in enumerate(given)]
    if is_payload:
        return batch.with_payloads(**{name: values})
    return batch.with_columns({name: pa.array(values, batch.rows.schema.field(name).type)})
