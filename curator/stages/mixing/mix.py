"""Several sources to given shares of a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import RecipeError
from curator.api.findings import Alarm, Finding, Table
from curator.api.stage import Context, Contract, Outputs, Reduce
from curator.stages.mixing.groups import Groups
from curator.stages.mixing.repeat import repeated, whole_copies
from curator.stages.sample import as_text, chance, check_seed

REASON = "mix"
# of chances, in which weights are added up: a share is met to a 65,536th of its group, or to one record
BUCKETS = 1 << 16


@dataclass(kw_only=True)
class Mix(Reduce):
    """Let as much of each group of records through as its share of the whole asks for; the others are dropped
    (reason `mix`).

    Adds `copy_of` (string; see `repeat`), null but for copies.

    `by`: the column that says which group a record is of. `shares`: value to share (`{web: 0.6, code: 0.3,
    books: 0.1}`), compared as text; they need not sum to 1. Records with another value are dropped. `weight`:
    a column of numbers that shares are shares of (tokens, bytes; null, NaN and negative ones count 0);
    without it, records are counted. `total`: how much the whole is to be; null: as much as the scarcest group
    allows. `repeats`: how often a record may go through at most, 1 or more: 4 lets a scarce group count
    fourfold. Where a `total` asks for more than there is, the whole gets smaller, shares stay, and an alarm
    says so.

    Which records of a group go through is chosen by a hash of `seed` and id: the same in each run, and those
    of a smaller `total` are among those of a larger one. A share is met to about one record. Memory: 0.5 MB
    for each group.
    """

    by: str
    shares: dict[str, float]
    weight: str | None = None
    total: float | None = None
    repeats: float = 1.0
    seed: int = 0

    key = None
    sparse = ("copy_of",)

    def __post_init__(self) -> None:
        if not self.shares:
            raise RecipeError("mix wants `shares`: a share for each value of the column `by` ({web: 0.7, "
                              "code: 0.3})")
        for name, share in self.shares.items():
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < float("inf"):
                raise RecipeError(f"mix: the share of {name} must be a number above 0, got {share!r}")
        if self.total is not None and self.total <= 0:
            raise RecipeError(f"mix: total must be above 0, got {self.total}")
        if not 1 <= self.repeats <= 1000:
            raise RecipeError(f"mix: repeats must be from 1 to 1000, got {self.repeats}")
        check_seed(self)
        self.columns = (self.by,) if self.weight is None else (self.by, self.weight)

    def contract(self) -> Contract:
        return Contract(needs=set(self.columns or ()), adds={"copy_of": pa.string()})

    def reasons(self) -> tuple[str, ...]:
        return (REASON,)

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        planned = sum(counts.extra.values())
        of = self.weight or "records"
        if planned:
            yield Table(f"Mixture by {self.by}", (self.by, of),
                        [(name, amount, planned) for name, amount in counts.extra.items()])
        if counts.absorbed + counts.rows_in == 0 or (not counts.out and not counts.dropped):
            return
        if empty := [as_text(name) for name in self.shares if not counts.extra.get(as_text(name))]:
            yield Alarm("warning", f"Stage {step} found no record of {', '.join(empty)} in column {self.by}; "
                                   "the others have their shares "
                        "to each other. Look at the column's values, and at what is dropped before.")
        if self.total is not None and planned < 0.999 * self.total:
            yield Alarm("warning", f"Stage {step} was to make a whole of {self.total:,.0f} {of}, and there "
                                   f"is enough for {planned:,} at "
                        "these shares. Give it more input, a smaller total, or more repeats.")

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._groups = Groups()
        self._weights: list[np.ndarray] = []  # of each group: weight by bucket of chance
        self._times: np.ndarray | None = None  # of each group: how often a record goes through

    def absorb(self, batch: Batch) -> None:
        codes, chances, weights = self._measured(batch)
        buckets = (chances * BUCKETS).astype(np.int64)
        for code in np.unique(codes).tolist():
            rows = codes == code
            self._weights[code] += np.bincount(buckets[rows], weights[rows], minlength=BUCKETS)

    def process(self, batch: Batch) -> Outputs:
        codes, chances, _ = self._measured(batch)
        counts = None
        if self._times is None:
            self._times, counts = self._planned()
        copies = whole_copies(self._times[codes], chances)
        gone = copies == 0
        batch = batch.with_columns({"copy_of": pa.nulls(len(batch), pa.string())})
        ports = {"out": repeated(batch, copies)} if not gone.all() else {}
        if gone.any():
            ports["dropped"] = batch.filter(gone).with_reason(REASON)
        return Outputs(ports, counts=counts)

    def _measured(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Group, chance and weight of each row."""
        codes = self._groups.codes(batch.rows.column(self.by))
        while len(self._weights) < len(self._groups):
            self._weights.append(np.zeros(BUCKETS))
        weights = np.ones(len(batch))
        if self.weight is not None:
            weights = np.maximum(np.nan_to_num(batch.array(self.weight, null=np.nan), nan=0.0,
                                               posinf=0.0), 0.0)
        return codes, chance(batch.rows.column("id"), self.seed), weights

    def _planned(self) -> tuple[np.ndarray, dict[str, int]]:
        """How often a record of each group goes through, the rest as the chance below which it does once
        more; and the weight that makes by group."""
        shares = {as_text(name): share for name, share in self.shares.items()}
        names = [None if name is None else as_text(name) for name in self._groups.names()]
        there = [weights.sum() for weights in self._weights]
        wanted = {code: shares[name] for code, name in enumerate(names) if name in shares and there[code] > 0}
        whole = sum(wanted.values())
        total = min((there[code] * self.repeats * whole / share for code, share in wanted.items()),
                    default=0.0)
        total = total if self.total is None else min(total, self.total)
        times = np.zeros(len(names))
        for code, share in wanted.items():
            factor = total * share / whole / there[code]
            times[code] = np.floor(factor) + self._chance_below_which(code, factor - np.floor(factor))
        return times, {name: round(total * wanted[code] / whole) for code, name in enumerate(names)
                       if name is not None and code in wanted}

    def _chance_below_which(self, code: int, share: float) -> float:
        """The chance below which records of this share of the group's weight lie."""
        reached = np.concatenate([[0.0], np.cumsum(self._weights[code])])
        return float(np.interp(share * reached[-1], reached,
                               np.arange(BUCKETS + 1) / BUCKETS)) if share > 0 else 0.0
