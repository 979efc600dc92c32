"""Keep the best records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch, concat_tables
from curator.api.errors import RecipeError
from curator.api.stage import Context, Contract, Outputs, Reduce, setting

PRUNE_ROWS = 1 << 18  # candidates are sorted out when so many have come since the last time


@dataclass(kw_only=True)
class Top(Reduce):
    """Keep the `n` records with the highest `by`; the others are dropped with the reason `reason`.

    `by`: a column of numbers, texts or dates. `order`: `desc` keeps the highest, `asc` the lowest. `key`: a
    column; then `n` records of each of its values are kept (`{by: quality, n: 1000, key: language}`), those
    without a value being one group. Records that tie are taken in order of their id, so the choice is the
    same in each run. A record whose `by` is null or no number (NaN) is never kept. `shards`: into how many
    parts the keys are divided, each worked on alone.
    """

    by: str
    n: int
    order: Literal["desc", "asc"] = "desc"
    key: str | None = None
    reason: str = "top"
    shards: int = setting(default=16)

    def __post_init__(self) -> None:
        self.at_least(0, "n")
        self.at_least(1, "shards")
        if self.order not in ("desc", "asc"):
            raise RecipeError(f"top: order must be desc or asc, got {self.order!r}")
        self.columns = (self.by,) if self.key is None else (self.by, self.key)

    def contract(self) -> Contract:
        return Contract(needs=set(self.columns or ()))

    def reasons(self) -> tuple[str, ...]:
        return (self.reason,)

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._candidates: list[pa.Table] = []
        self._kept = self._fresh = 0  # candidates that passed the last sorting, and that came after it
        self._passes: Counter | None = None  # in pass two: how often each (id, value) may still pass

    def absorb(self, batch: Batch) -> None:
        candidates = pa.table({"id": batch.rows.column("id").cast(pa.large_string()),
                               "by": _plain(batch.rows.column(self.by)),
                               "group": pa.nulls(len(batch)) if self.key is None
                               else _plain(batch.rows.column(self.key))})
        candidates = candidates.filter(_ranked(candidates.column("by")))
        if len(candidates):
            self._candidates.append(candidates)
        self._fresh += len(candidates)
        if self._fresh > max(PRUNE_ROWS, self._kept):
            self._prune()

    def _prune(self) -> None:
        """Keep the `n` best candidates of each group."""
        if not self._candidates:
            return
        table = concat_tables(self._candidates).combine_chunks()
        codes = _codes(table.column("group"))
        direction = "descending" if self.order == "desc" else "ascending"
        order = pc.sort_indices(table.select(["by", "id"]).append_column("code", codes),
                                sort_keys=[("code", "ascending"), ("by", direction),
                                           ("id", "ascending")]).to_numpy()
        sorted_codes = codes.to_numpy()[order]
        first = np.searchsorted(sorted_codes, sorted_codes)  # where each row's group begins
        table = table.take(pa.array(order[np.arange(len(order)) - first < self.n]))
        self._candidates, self._kept, self._fresh = [table], len(table), 0

    def process(self, batch: Batch) -> Outputs:
        if self._passes is None:
            self._prune()
            self._passes = Counter(place for t in self._candidates
                                   for place in _places(t.column("id"), t.column("by")))
            self._candidates = []
        used: Counter = Counter()
        kept = np.zeros(len(batch), dtype=bool)
        for row, place in enumerate(_places(batch.rows.column("id"), _plain(batch.rows.column(self.by)))):
            if used[place] < self._passes.get(place, 0):
                used[place] += 1
                kept[row] = True
        self._passes.subtract(used)
        return Outputs(out=batch.filter(kept), dropped=batch.filter(~kept).with_reason(self.reason))


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Not as a dictionary, which cannot be sorted; texts as large as they may be."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return values.cast(pa.large_string() if pa.types.is_string(kind) else kind)


def _codes(groups: pa.ChunkedArray) -> pa.Array:
    """A number for each group, null among them."""
    if pa.types.is_null(groups.type):
        return pa.array(np.zeros(len(groups), dtype=np.int32))
    coded = pc.dictionary_encode(groups, null_encoding="encode").combine_chunks()
    return (coded if isinstance(coded, pa.DictionaryArray) else coded.chunk(0)).indices


def _ranked(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each value has a rank."""
    return pc.is_valid(pc.if_else(pc.is_nan(values), None, values)
                       if pa.types.is_floating(values.type) else values)


def _places(ids: pa.ChunkedArray, values: pa.ChunkedArray) -> list[tuple[str, Any]]:
    return list(zip(ids.to_pylist(), values.to_pylist(), strict=True))
