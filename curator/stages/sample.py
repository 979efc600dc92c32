"""Keep a random share of the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Contract, Outputs, Stage

REASON = "sample"


@dataclass(kw_only=True)
class Sample(Stage):
    """Keep a share of the records, chosen by a hash of `seed` and id; the others are dropped with the reason
    `sample`.

    The choice rests on nothing else, so it is the same in each run and in any order, records with one id stay
    or go together, and a larger fraction keeps what a smaller one kept. The share is met on average, not
    exactly.

    `fraction`: the share, from 0 to 1. `by`: a column, and `fractions`: the shares for some of its values
    (`{en: 0.1, de: 0.5}`), compared as text; records with any other value, or null, are kept by `fraction`.
    `weight`: a column of numbers that multiply the share, so that better records are likelier to stay
    (`{weight: quality}`); what exceeds 1 counts as 1, null and NaN as 0. `seed`: any whole number from 0 to
    2**64 - 1.
    """

    fraction: float = 1.0
    by: str | None = None
    fractions: dict[str, float] = field(default_factory=dict)
    weight: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, {"fraction": self.fraction, **self.fractions}, 1)
        if (self.by is None) != (not self.fractions):
            raise RecipeError("sample wants `by` (a column) and `fractions` (shares for its values) together")
        check_seed(self)

    def contract(self) -> Contract:
        return Contract(needs={name for name in (self.by, self.weight) if name})

    def process(self, batch: Batch) -> Outputs:
        kept = chance(batch.rows.column("id"), self.seed) < self._shares(batch)
        return Outputs(out=batch.filter(kept), dropped=batch.filter(~kept).with_reason(REASON))

    def _shares(self, batch: Batch) -> np.ndarray:
        shares = by_value(batch, self.by, self.fractions, self.fraction)
        if self.weight is None:
            return shares
        return shares * np.nan_to_num(batch.array(self.weight, null=np.nan), nan=0.0)


def by_value(batch: Batch, column: str | None, numbers: Mapping[Any, float], other: float) -> np.ndarray:
    """float64, one a row: the number of its value in a column, compared as text; `other` where there is
    none."""
    if column is None:
        return np.full(len(batch), float(other))
    known = {as_text(value): number for value, number in numbers.items()}
    return np.array([other if value is None else known.get(as_text(value), other)
                     for value in batch.rows.column(column).to_pylist()], np.float64)


def check_numbers(stage: Stage, numbers: Mapping[Any, Any], most: int) -> None:
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= most:
            raise RecipeError(f"{stage.name}: {name} must be a number from 0 to {most}, got {number!r}")


def check_seed(stage: Any) -> None:
    if not 0 <= stage.seed < 2**64:
        raise RecipeError(f"{stage.name}: seed must be from 0 to 2**64 - 1, got {stage.seed}")


def as_text(value: Any) -> str:
    """As YAML writes it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) or value in ("True", "False") else str(value)


def chance(ids: pa.ChunkedArray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each id, as good as random and always the same."""
    # 53 bits, all that a float64 holds: with all 64, rounding could reach 1.0 and lose a record of `fraction:
    # 1`.
    return (digests(ids, seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def digests(ids: pa.ChunkedArray, seed: int) -> np.ndarray:
    """uint64: a hash of each id and the seed."""
    return np.array([xxhash.xxh3_64_intdigest(i, seed) for i in ids.cast(pa.large_binary()).to_pylist()],
                    dtype=np.uint64)
