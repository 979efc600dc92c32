"""What travels through Ray Data: a row is a few units with all their rows on the way, and never splits.

So every actor takes one row and gives one row. Who repeats a lost task gets the whole of its units again, and
a unit has come through when its row has: nobody counts rows to know that.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.engine import units
from curator.engine.events import Commit, Stop
from curator.engine.protocol import Flushed, UnitInfo
from curator.pipeline.plan import Operator, Target
from curator.worker.pickling import dumps
from curator.worker.store import Store

ROW_BYTES = 16 << 20  # of what is read for one row: small units share one, so that each costs less
ROW_UNITS = 64


@dataclass(slots=True)
class Parcel:
    """Rows of a unit on their way to a step. `batch`: outside an actor its place in the row's batches."""

    to: Target
    batch: Any


@dataclass(slots=True)
class Work:
    """A unit on its way. `source`: the operator that reads it; `need`: the steps to run, None for all.

    `counts`: by operator and step; `flushed`: what was kept of it, by operator; `seconds`: of calls, by
    operator and actor. `stop`: why the run cannot go on; what failed until then is still written. `unread`:
    it is not read, as nobody wants more.
    """

    unit: int
    source: int
    need: frozenset[Target] | None
    info: UnitInfo
    parcels: list[Parcel] = field(default_factory=list)
    counts: dict[tuple[int, int], Counts] = field(default_factory=dict)
    flushed: dict[int, Flushed] = field(default_factory=dict)
    seconds: dict[tuple[int, str], float] = field(default_factory=dict)
    errors: list[FirstError] = field(default_factory=list)
    stop: Stop | None = None
    unread: bool = False

    def wants(self, target: Target) -> bool:
        return self.need is None or target in self.need

    def take(self, operator: int) -> list[Parcel]:
        """The rows for an operator, off the list."""
        found = [p for p in self.parcels if p.to.operator == operator]
        self.parcels = [p for p in self.parcels if p.to.operator != operator]
        return found

    def count(self, operator: int, step: int, counts: Counts) -> None:
        self.counts.setdefault((operator, step), Counts()).add(counts)


# -- as a row ------------------------------------------------------------------------------------------------


def to_row(works: Sequence[Work]) -> pa.Table:
    """Units as a table of one row."""
    parcels = [parcel for work in works for parcel in work.parcels]
    data = [Store.encode(parcel.batch) for parcel in parcels]
    for place, parcel in enumerate(parcels):
        parcel.batch = place
    ends = pa.array([0, len(data)], pa.int64())
    batches = pa.array([memoryview(one) for one in data], pa.large_binary())
    return pa.table({"units": pa.array([[work.unit for work in works]], pa.list_(pa.int64())),
                     "state": pa.array([dumps(list(works))], pa.large_binary()),
                     "batches": pa.LargeListArray.from_arrays(ends, batches)})


def from_rows(table: pa.Table) -> Iterator[list[Work]]:
    """The units of each row. Their batches are not copied: they lie where the table lies."""
    for state, batches in zip(table.column("state"), table.column("batches"), strict=True):
        works: list[Work] = pickle.loads(state.as_buffer())
        data = batches.values
        for parcel in (parcel for work in works for parcel in work.parcels):
            parcel.batch = Store.decode(data[parcel.batch].as_buffer())
        yield works


def shared_out(works: Sequence[Work], workers: int) -> Iterator[list[Work]]:
    """Units by row: small ones share one, but there should be four rows for each worker."""
    most = max(1, min(ROW_UNITS, len(works) // (4 * workers)))
    row: list[Work] = []
    nbytes = 0
    for work in works:
        if row and (len(row) >= most or nbytes + work.info.size_bytes > ROW_BYTES):
            yield row
            row, nbytes = [], 0
        row.append(work)
        nbytes += work.info.size_bytes
    if row:
        yield row


# -- what is made of it --------------------------------------------------------------------------------------


def grouped(operators: Sequence[Operator]) -> list[tuple[Operator, ...]]:
    """Neighbours with the same resources work in the same actors, one after the other, and rows between them
    stay there. A stateful one is alone: one actor sees all rows."""
    groups: list[list[Operator]] = []
    for operator in operators:
        last = groups[-1][-1] if groups else None
        if (last is not None and last.resources == operator.resources
                and "stateful" not in (last.kind, operator.kind)):
            groups[-1].append(operator)
        else:
            groups.append([operator])
    return [tuple(group) for group in groups]


def commit_of(work: Work, operators: Sequence[Operator]) -> Commit:
    """What the ledger is told of a unit that has come through."""
    reached = {work.source}
    for operator in operators:
        if operator.index in reached:
            reached |= operator.consumers
    return units.commit_of(operators, work.unit, 0, work.counts, work.flushed.items(), reached, work.wants)
