"""Batches put together, and made; beneath the `Runner`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf
from typing import Any

import pyarrow as pa

from curator.api.batch import UNIT, Batch
from curator.api.stage import Outputs, Unit

JOIN_ROWS = 256  # small batches are joined to about this, for stages that leave the size to the engine
JOIN_BYTES = 4 << 20  # or to this
PART_BYTES = 8 << 20  # of rows that are worked on, or put elsewhere, at once


class Waiting:
    """Batches that wait until they are enough for a call."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.rows = self.nbytes = 0

    def add(self, batch: Batch, nbytes: int) -> None:
        self.batches.append(batch)
        self.rows += len(batch)
        self.nbytes += nbytes


def parts(result: Any) -> Iterator[Outputs]:
    """What a stage answers, part by part. What is no batch is refused where its type is checked."""
    if isinstance(result, (Batch, dict, str, bytes)) or not hasattr(result, "__iter__"):
        yield by_port(result)
    else:
        yield from map(by_port, result)  # not in a loop, which would hold an item while others work on it


def by_port(item: Any) -> Outputs:
    return item if isinstance(item, Outputs) else Outputs(out=item)


def joined(batches: list[Batch]) -> list[Batch]:
    """As few batches as the types allow: other kinds, and columns that cannot be one, stay apart."""
    if len(batches) <= 1:
        return batches
    groups: dict[type, list[Batch]] = {}
    for batch in batches:
        groups.setdefault(type(batch), []).append(batch)
    found = []
    for group in groups.values():
        try:
            one = Batch.concat(group)
        except ValueError:
            found.extend(group)
            continue
        if one.rows.num_columns and one.rows.column(0).num_chunks > 4:
            one.rows = one.rows.combine_chunks()
        found.append(one)
    return found


def together(batches: Iterable[Batch], most_bytes: int = PART_BYTES,
             most_rows: float = inf) -> Iterator[Batch]:
    """The same rows in the same order, joined to so many bytes or rows: who is done with one lets it go
    before the next comes."""
    waiting = Waiting()
    for batch in batches:
        waiting.add(batch, batch.nbytes)
        del batch
        if waiting.nbytes >= most_bytes or waiting.rows >= most_rows:
            some, waiting = joined(waiting.batches)[::-1], Waiting()
            while some:
                yield some.pop()
    yield from joined(waiting.batches)


def gathered(batches: Iterable[Batch], rows: int | None = None) -> Iterator[Batch]:
    """The same rows in the same order, also where kinds of batches alternate; small batches are joined to
    `rows` (by default as suits the engine)."""
    for _, alike in groupby(batches, type):
        yield from together(alike, JOIN_BYTES, rows or JOIN_ROWS)


def failed_unit(unit: Unit, index: int, error: BaseException | str, trace: str) -> Batch:
    """The one row that stands for a unit that could not be read."""
    rows = pa.table({"id": [unit.label], "source": [unit.parts[0].uri], UNIT: pa.array([index], pa.int32())})
    return Batch(rows).with_error(error, trace)
