"""Where the rows of one call went, counted as its answers come, so that no answer is kept for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import ROW, UNIT, Batch
from curator.api.counts import ERRORS_MAX, Counts
from curator.api.errors import StageError
from curator.api.stage import SIDE_OUTPUTS, Outputs, Stage
from curator.api.summary import ColumnSummary

COUNTED_CHARS = 160  # of an error, where errors are counted


class Account:
    """The account of one `process` call of `stage`, a step called `name`. It keeps which rows were seen and
    counts by unit, never a batch. `only_unit`: the unit of all rows, if it is one. `adds`, `amounts`: columns
    that are summed up."""

    def __init__(self, name: str, stage: Stage, batch: Batch, only_unit: int | None,
                 adds: Collection[str] = (), amounts: Collection[str] = ()) -> None:
        self.name, self.stage, self.only_unit = name, stage, only_unit
        self.adds, self.amounts = adds, amounts
        self._ids = batch.rows.column("id")
        self._lost = np.ones(len(batch), dtype=bool)  # which rows did not come out
        sizes = ({only_unit: len(batch)} if only_unit is not None
                 else {unit: len(at) for unit, at in rows_by_unit(batch).items()})
        self.counts = {unit: Counts(rows_in=rows, made=-rows) for unit, rows in sizes.items()}
        for unit, rows in self._tables(batch) if amounts else ():
            count_amounts(self.counts[unit], "in", rows, amounts)

    def saw(self, port: str | None, answer: Batch) -> None:
        """Take in rows that the stage sent to a port; None: that it absorbed.

        Raises:
            StageError: nothing tells which rows they were, or some have no id any more.
        """
        schema = answer.rows.schema
        if schema.get_field_index(ROW) < 0 or schema.get_field_index(UNIT) < 0:
            raise StageError(self.name, "answered a batch that was not made from the one given (take, "
                                        "filter, split, explode, with_columns, select): the engine cannot "
                                        "tell which row became which")
        self._lost[answer.rows.column(ROW).to_numpy()] = False
        if (at := schema.get_field_index("id")) >= 0 and answer.rows.column(at).null_count:
            of = answer.rows.column(ROW).filter(pc.is_null(answer.rows.column(at)))
            raise StageError(self.name, f"answered {len(of)} of {len(answer)} rows with the id null: leave "
                                        "the ids as they come, and give records that are made "
                                        "ids of their own (explode does)",
                             tuple(self._ids.take(of).to_pylist()))
        for unit, rows in self._tables(answer):
            counts = self.counts.setdefault(unit, Counts())
            counts.made += rows.num_rows
            if port is None:
                counts.absorbed += rows.num_rows
            else:
                count_answer(counts, port, rows, self.adds, self.stage.count_by, self.amounts)

    def extra(self, outputs: Outputs) -> None:
        """Take in numbers that the stage gave beside its rows."""
        if outputs.counts or outputs.inner:
            next(iter(self.counts.values())).add(Counts(extra=dict(outputs.counts or {}),
                                                        inner=dict(outputs.inner or {})))

    def close(self, busy_s: float) -> dict[int, Counts]:
        """The counts by unit; `busy_s` of work is shared out by rows.

        Raises:
            StageError: rows are nowhere; it names their ids.
        """
        rows = len(self._lost)
        if self._lost.any():
            ids = tuple(self._ids.filter(pa.array(self._lost)).to_pylist())
            raise StageError(self.name, f"{len(ids)} of {rows} rows are on no port; a stage sends on every "
                                        "row it is given, on `dropped` if need be, or names it as absorbed",
                             ids)
        for counts in self.counts.values():
            counts.busy_s += busy_s * counts.rows_in / rows
        return self.counts

    def _tables(self, batch: Batch) -> Iterator[tuple[int, pa.Table]]:
        """The columns that are counted by value, for each unit; text and media are not copied for it."""
        if self.only_unit is not None:
            yield self.only_unit, batch.rows
            return
        # a table without columns has no rows
        wanted = {UNIT, "reason", "error", *self.stage.count_by, *self.amounts, *self.adds}
        rows = batch.rows.select([name for name in batch.rows.column_names if name in wanted])
        for unit, at in rows_by_unit(batch).items():
            yield unit, rows.slice(int(at[0]), len(at)) if adjacent(at) else rows.take(pa.array(at))


def rows_by_unit(batch: Batch) -> dict[int, np.ndarray]:
    """For each unit the positions of its rows, in their order."""
    units = batch.rows.column(UNIT).to_numpy()
    order = np.argsort(units, kind="stable")
    ends = np.flatnonzero(np.diff(units[order])) + 1
    return {int(units[at[0]]): at for at in np.split(order, ends) if len(at)}


def adjacent(at: np.ndarray) -> bool:
    """Whether positions follow one another, so that a slice gives these rows without a copy."""
    return bool(at[-1] - at[0] == len(at) - 1)


def _count_port(counts: Counts, port: str, rows: pa.Table) -> None:
    if port == "dropped":
        found = pc.value_counts(rows.column("reason"))
        counts.add(Counts(dropped={str(r["values"]): r["counts"] for r in found.to_pylist()}))
    elif port == "failed":
        found = pc.value_counts(pc.utf8_slice_codeunits(rows.column("error"), 0, COUNTED_CHARS))
        errors = {str(r["values"]): r["counts"] for r in found.to_pylist()[:ERRORS_MAX]}
        counts.add(Counts(failed=rows.num_rows, errors=errors))
    elif port == "duplicate":
        counts.duplicate += rows.num_rows
    else:
        counts.out[port] = counts.out.get(port, 0) + rows.num_rows


def count_amounts(counts: Counts, way: str, rows: pa.Table, names: Iterable[str]) -> None:
    """Add up columns of rows that came `in` or left on a port, those that are there and have numbers."""
    for name in names:
        at = rows.schema.get_field_index(name)
        if at < 0 or not (pa.types.is_floating(kind := rows.schema.field(at).type)
                          or pa.types.is_integer(kind)):
            continue
        if way == "dropped":
            sums = rows.select([name, "reason"]).group_by("reason").aggregate([(name, "sum")])
            for reason, amount in zip(*(sums.column(n).to_pylist() for n in ("reason", f"{name}_sum")),
                                      strict=True):
                counts.saw_amount(name, way, str(reason), float(amount or 0))
        else:
            port = "" if way == "in" or way in SIDE_OUTPUTS else way
            counts.saw_amount(name, "out" if port else way, port, float(pc.sum(rows.column(at)).as_py() or 0))


def count_answer(counts: Counts, port: str, rows: pa.Table, adds: Iterable[str] = (),
                 count_by: Iterable[str] = (), amounts: Iterable[str] = ()) -> None:
    """Count rows that leave on a port: also what the columns that the stage `adds` hold, by the values of
    those in `count_by`, and the sums of `amounts`."""
    _count_port(counts, port, rows)
    count_amounts(counts, port, rows, amounts)
    if port not in SIDE_OUTPUTS:
        for name in adds:
            if name in rows.column_names:
                counts.columns.setdefault(name, ColumnSummary()).add(rows.column(name))
    for name in count_by:
        if name in rows.column_names and not pa.types.is_nested(rows.schema.field(name).type):
            for found in pc.value_counts(rows.column(name)).to_pylist():
                if found["values"] is not None:
                    counts.saw_value(name, str(found["values"]), port, found["counts"])


def count_failed(counts: Counts, rows: pa.Table, count_by: Iterable[str], amounts: Iterable[str]) -> None:
    """Count rows that came into a stage and failed for good before it answered them."""
    counts.rows_in += rows.num_rows
    count_amounts(counts, "in", rows, amounts)
    count_answer(counts, "failed", rows, (), count_by, amounts)
