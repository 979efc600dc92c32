"""What a call gives until its next part leaves: rows by port and unit, counts, first errors, sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from curator.api.batch import UNIT, Batch
from curator.api.counts import Counts, MemoryShort
from curator.api.errors import ERROR_CHARS, FirstError, first_error
from curator.engine.protocol import Output, Ref
from curator.pipeline.plan import Operator
from curator.worker.account import adjacent, count_failed, rows_by_unit
from curator.worker.rows import together

SMALL_BYTES = 16 << 10  # buffers up to this are not measured exactly


class Answer:
    """The answer of one worker to one call after the other. `put` moves a batch out of the process.

    `nbytes`: about what the rows are that have not left yet. `only_unit`: the unit of all rows of this call,
    if it is one. `summarises`: columns that steps add are summarised in their counts.
    """

    summarises = True

    def __init__(self, operator: Operator, put: Callable[[Batch], Any]) -> None:
        self.operator, self.put = operator, put
        self.errors = FirstErrors()
        # changed sizes by step, since a call was last answered: one that fails tells nothing
        self.short: dict[int, MemoryShort] = {}
        self.begin(None)

    def begin(self, only_unit: int | None) -> None:
        """The next call begins."""
        self.only_unit = only_unit
        self.counts: dict[int, dict[int, Counts]] = {}  # by unit and step
        self.rows: dict[tuple[int, str, int], list[Batch]] = {}  # by step, port and unit
        self.nbytes = 0

    # -- what comes -----------------------------------------------------------------------------------------

    def count(self, unit: int, step: int) -> Counts:
        """The counts of a unit in a step, to be added to."""
        return self.counts.setdefault(unit, {}).setdefault(step, Counts())

    def collect(self, step: int, port: str, batch: Batch) -> None:
        """Take in rows that a step sent to a port, if somebody takes that port."""
        if (step, port) not in self.operator.routes or not len(batch):
            return
        batch = self.lightened(step, port, batch)
        for unit, rows in self._by_unit(batch):
            self.rows.setdefault((step, port, unit), []).append(rows)
        # An upper bound (a slice counts all that it is part of), forty times cheaper than the bytes.
        bound = batch.rows.get_total_buffer_size()
        self.nbytes += bound if bound < SMALL_BYTES and not batch.payloads() else batch.nbytes

    def lightened(self, step: int, port: str, batch: Batch) -> Batch:
        """Without the payloads that no later stage wants."""
        wanted = self.operator.payloads.get((step, port))
        gone = () if wanted is None else [name for name in batch.payloads() if name not in wanted]
        return batch.with_payloads(**dict.fromkeys(gone)) if gone else batch

    def failed(self, step: int, batch: Batch, first: FirstError | None) -> None:
        """Count a row that failed for good before its stage answered it; `first`, as `FirstErrors` has it."""
        unit = self.only_unit if self.only_unit is not None else batch.rows.column(UNIT)[0].as_py()
        of = self.operator.steps[step]
        count_failed(self.count(unit, step), batch.rows, of.stage.count_by, of.amounts)
        self.errors.saw(of.name, batch, first)

    def refit(self, step: int, ran_out: int, rows_max: int | None) -> None:
        """A step's size changed: `ran_out` rows were too many, or 0 and it has grown."""
        short = MemoryShort(int(ran_out > 0), ran_out, rows_max, time.time())
        self.short[step] = self.short[step] + short if step in self.short else short

    def _by_unit(self, batch: Batch) -> Iterator[tuple[int, Batch]]:
        if self.only_unit is not None:
            yield self.only_unit, batch
            return
        for unit, at in rows_by_unit(batch).items():
            yield unit, batch.slice(int(at[0]), int(at[-1]) + 1) if adjacent(at) else batch.take(at)

    # -- what leaves ----------------------------------------------------------------------------------------

    def take_rows(self) -> tuple[Output, ...]:
        outputs: list[Output] = []
        while self.rows:  # one after the other: what was put elsewhere is not kept here until all is
            (step, port, unit), batches = self.rows.popitem()
            # not one large one, all of which its reader would have to hold
            outputs[:0] = [Output(step, port, unit, Ref(self.put(batch), len(batch), batch.nbytes))
                           for batch in together(batches)]
        self.nbytes = 0
        return tuple(outputs)

    def take_counts(self) -> dict[int, dict[int, Counts]]:
        counts, self.counts = self.counts, {}
        return counts

    def take_refitted(self, unit: int) -> dict[int, MemoryShort]:
        """Changed sizes, which are counted with a unit of the call."""
        found, self.short = self.short, {}
        for step, short in found.items():
            self.count(unit, step).add(Counts(memory=short))
        return found


class FirstErrors:
    """The first row that failed in each stage, to be told once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._untold: list[FirstError] = []

    def first(self, stage: str, error: BaseException) -> FirstError | None:
        """What an error tells, if none of its stage is known yet."""
        return None if stage in self._known else first_error(stage, error)

    def saw(self, stage: str, failed: Batch, first: FirstError | None = None) -> None:
        """Rows have failed for good. `first`: what was raised over them."""
        if stage in self._known or not len(failed):
            return
        self._known.add(stage)
        names = {"id", "error", "traceback"} & set(failed.rows.column_names)
        row = {name: failed.rows.column(name)[0].as_py() for name in names}
        first = first or FirstError(stage, str(row["error"])[:ERROR_CHARS], str(row.get("traceback") or ""))
        self._untold.append(replace(first, record=str(row["id"])))

    def take(self) -> tuple[FirstError, ...]:
        untold, self._untold = tuple(self._untold), []
        return untold
