"""What came of the items of a call's records, until all of them are through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch, concat_tables
from curator.api.counts import Counts
from curator.api.stage import SIDE_OUTPUTS
from curator.pipeline.plan import Operator
from curator.stages.each.folds import Gathered, folded, type_of
from curator.stages.each.items import ITEM, RECORD
from curator.worker.answer import Answer


class Found(Answer):
    """Takes in what the inner steps of `operator` send on, in any order. `names`: of these steps."""

    summarises = False  # what columns hold is seen where they are gathered

    def __init__(self, operator: Operator, names: Sequence[str], gathered: Sequence[Gathered]) -> None:
        super().__init__(operator, put=lambda batch: None)
        self.names, self.gathered = names, gathered
        self.of(0)

    def of(self, rows: int) -> Self:
        """The items of so many other records come now."""
        self.records = rows
        self._kept: list[pa.Table] = []
        self._ended = {port: np.zeros(rows, np.int64) for port in ("out", *SIDE_OUTPUTS)}
        self._first: dict[int, tuple[int, str, str]] = {}  # of a record the first item, error, traceback
        return self

    def inner(self, counted: Mapping[int, Mapping[int, Counts]]) -> dict[str, Counts]:
        """The counts of the inner steps, by name; the first makes the items, and none are kept of it."""
        return {self.names[step - 1]: one for of in counted.values() for step, one in of.items() if step}

    def collect(self, step: int, port: str, batch: Batch) -> None:
        """Take in rows that a step sent to a port."""
        table = batch.rows
        records = table.column(RECORD).to_numpy()
        self._ended[port] += np.bincount(records, minlength=self.records)
        if port == "out":
            wanted = dict.fromkeys(one.column for one in self.gathered)
            self._kept.append(table.select([RECORD, ITEM, *wanted]))
        elif port == "failed":
            # From the first step come records whose items cannot be told apart: that counts as an item -1.
            items = table.column(ITEM).to_pylist() if step else [-1] * len(records)
            where = f"in {self.names[step - 1]}: " if step else ""
            errors, traces = (table.column(name).to_pylist() for name in ("error", "traceback"))
            for record, item, error, trace in zip(records.tolist(), items, errors, traces, strict=True):
                told = item, f"{where}{error}", trace
                self._first[record] = min(told, self._first.get(record, told))

    def failures(self, share_max: float) -> dict[int, tuple[str, str]]:
        """Of records that fail the error and its traceback."""
        found = {}
        failed, left = self._ended["failed"], self._ended["out"]
        total = failed + left + self._ended["dropped"] + self._ended["duplicate"]
        for record, (item, error, trace) in sorted(self._first.items()):
            if failed[record] > share_max * total[record] or not left[record]:
                many = "" if item < 0 else f"{failed[record]} of {total[record]} items failed, the first "
                found[record] = f"{many}{error}", trace
        return found

    def columns(self, types: Mapping[str, pa.DataType | None]) -> dict[str, pa.Array]:
        """The gathered columns of all records. `types`: of these, None where they are as the values are."""
        if not self._kept:
            none = {one.into: [0 if one.fold == "count" else None] * self.records for one in self.gathered}
            return {name: pa.array(values, types[name] or pa.null()) for name, values in none.items()}
        table, self._kept = concat_tables(self._kept), []  # which hold the batch that was given
        order = np.lexsort((table.column(ITEM).to_numpy(), table.column(RECORD).to_numpy()))
        table = (table if (np.diff(order) == 1).all() else table.take(pa.array(order))).combine_chunks()
        ends = np.searchsorted(table.column(RECORD).to_numpy(), np.arange(self.records + 1)).tolist()
        made = {}
        for one in self.gathered:
            values = table.column(one.column).chunk(0)
            kind = types[one.into] or type_of(one, values.type) or pa.null()
            found = [folded(one.fold, values.slice(a, b - a)) for a, b in pairwise(ends)]
            made[one.into] = pa.array(found, kind)
        return made
