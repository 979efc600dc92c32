"""Records more than once: upsampling."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Contract, Outputs, Stage
from curator.stages.sample import by_value, chance, check_numbers

REASON = "repeat"


@dataclass(kw_only=True)
class Repeat(Stage):
    """Let each record through so often: once as it is, and then as copies with ids of their own.

    Adds `copy_of` (string): the id of the record that a copy was made of, null for the record itself. The
    copies of `p` have the ids `p~2`, `p~3`, …. A record that goes through no time at all is dropped with the
    reason `repeat`.

    `times`: how often, 0 or more; of 2.4 the rest makes one copy more for 40 % of the records, chosen by a
    hash of `seed` and id. `by`: a column, and `factors`: how often for some of its values (`{19: 4, 18:
    2.5}`), compared as text; records with another value, or null, go through `times`. `column`: a column of
    numbers that says how often, instead; null counts as `times`.

    Source: FineWeb2 (Penedo et al. 2025, arXiv 2506.20920), section 5: more copies of what was often found;
    Dolma 3: by quality.
    """

    times: float = 1.0
    by: str | None = None
    factors: dict[str, float] = field(default_factory=dict)
    column: str | None = None
    seed: int = 0
    sparse = ("copy_of",)

    def __post_init__(self) -> None:
        check_numbers(self, {"times": self.times, **self.factors}, 1000)
        if (self.by is None) != (not self.factors):
            raise RecipeError("repeat wants `by` (a column) and `factors` (how often for its values) "
                              "together")
        if self.column is not None and self.by is not None:
            raise RecipeError("repeat wants either `column`, which says how often, or `by` with `factors`")

    def contract(self) -> Contract:
        return Contract(needs={name for name in (self.by, self.column) if name},
                        adds={"copy_of": pa.string()})

    def process(self, batch: Batch) -> Outputs:
        batch = batch.with_columns({"copy_of": pa.nulls(len(batch), pa.string())})
        copies = whole_copies(self._wanted(batch), chance(batch.rows.column("id"), self.seed))
        gone = copies == 0
        answer = Outputs(out=repeated(batch, copies))
        return Outputs(answer, dropped=batch.filter(gone).with_reason(REASON)) if gone.any() else answer

    def _wanted(self, batch: Batch) -> np.ndarray:
        if self.column is not None:
            wanted = batch.array(self.column, null=float(self.times)).astype(np.float64)
            if not ((wanted >= 0) & (wanted <= 1000)).all():
                raise ValueError(f"column {self.column!r} says how often a record goes through, so 0 to "
                                 f"1000; it has {wanted[~((wanted >= 0) & (wanted <= 1000))][0]}")
            return wanted
        return by_value(batch, self.by, self.factors, self.times)


def whole_copies(wanted: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """How often each record goes through: the whole part of what is wanted, and once more where the chance is
    below the rest."""
    whole = np.floor(wanted)
    return (whole + (chances < wanted - whole)).astype(np.int64)


def repeated(batch: Batch, copies: np.ndarray) -> Batch:
    """Each row so often; its second copy is `id~2`, with the record's id in `copy_of`. `batch` has the column
    `copy_of`."""
    rows = np.repeat(np.arange(len(batch)), copies)
    batch = batch.take(rows)
    number = np.arange(len(rows)) - np.searchsorted(rows, rows) + 1
    if not (number > 1).any():
        return batch
    ids = batch.column("id")
    return batch.with_columns({
        "id": pa.array([i if n == 1 else f"{i}~{n}" for i, n in zip(ids, number.tolist(), strict=True)],
                       pa.string()),
        "copy_of": pa.array([None if n == 1 else i for i, n in zip(ids, number.tolist(), strict=True)],
                            pa.string())})
