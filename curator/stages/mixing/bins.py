"""Scores to whole numbers, by percentiles of the corpus or by edges that are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import RecipeError
from curator.api.findings import Finding, Table
from curator.api.stage import Composite, Context, Contract, Reduce, Stage, setting
from curator.stages.mixing.groups import Groups
from curator.stages.sample import chance

FOLDS = ("max", "min", "mean")
Ensemble = Literal["max", "min", "mean"] | dict[str, float] | None


@dataclass(frozen=True)
class Binning:
    """The columns of scores, and what their bins make together."""

    scores: tuple[str, ...]
    ensemble: Ensemble
    column: str

    def adds(self) -> dict[str, pa.DataType | None]:
        names = [f"{score}_bin" for score in self.scores] + ([self.column] if self.ensemble else [])
        return dict.fromkeys(names, pa.int32())

    def values(self, batch: Batch) -> np.ndarray:
        """float64 [scores, rows]; NaN where there is no score."""
        return np.array([batch.array(name, null=np.nan) for name in self.scores],
                        np.float64).reshape(len(self.scores), len(batch))

    def with_bins(self, batch: Batch, bins: np.ndarray) -> Batch:
        """`bins`: int32 [scores, rows], -1 where there is no score."""
        columns = list(bins) + ([self._together(bins)] if self.ensemble else [])
        return batch.with_columns({name: pa.array(values, pa.int32(), mask=values < 0)
                                   for name, values in zip(self.adds(), columns, strict=True)})

    def _together(self, bins: np.ndarray) -> np.ndarray:
        there = bins >= 0
        if self.ensemble == "max":
            return bins.max(axis=0)
        if self.ensemble == "min":
            return np.where(there.any(axis=0), np.where(there, bins, np.iinfo(np.int32).max).min(axis=0),
                            -1).astype(np.int32)
        shares = self.ensemble if isinstance(self.ensemble, dict) else dict.fromkeys(self.scores, 1.0)
        weights = np.array([shares[name] for name in self.scores])[:, None] * there
        total = weights.sum(axis=0)
        mean = (weights * bins).sum(axis=0) / np.where(total, total, 1)
        return np.where(total, np.floor(mean + 0.5), -1).astype(np.int32)


@dataclass(kw_only=True)
class ScoreBins(Composite):
    """Turn scores into whole numbers from 0, the lowest, to `bins` - 1: by percentiles of the corpus, or by
    given edges.

    Adds `<score>_bin` (int32) for each of `scores`, and `column` for all together if there is an `ensemble`.
    Null where there is no score, or it is no number.

    `scores`: a column of numbers, or several. `bins`: how many. Edges are the percentiles 100/`bins`,
    200/`bins`, … of the scores: the first value by which so much of the weight is reached; a score equal to
    an edge counts as above it. So scores that many records share empty the bins below them, and a bin does
    not always hold its share. `weight`: a column of numbers, by which percentiles count (bytes, tokens);
    null, NaN and negative ones count 0. `by`: a column; the records of each of its values have edges of their
    own. `sample`: the most records, of each value of `by`, that edges are found from; chosen by a hash of
    `seed` and id, so that they are the same in each run. `edges`: edges by name of the score instead,
    ascending (`{edu_score: [1.5, 2.5, 3.5]}` makes bins 0 to 3); with them there is no barrier: nothing waits
    for all records. `ensemble`: `max`, `min` or `mean` of a record's bins, or weights of a mean (`{edu_score:
    2, dclm_score: 1}`), rounded half up; over the bins that are not null. `column`: its name.

    Memory: 24 bytes a record of the sample and 8 for each score. Source: Nemotron-CC (Su et al. 2024, arXiv
    2412.02595), section 2.2: 20 bins by percentiles weighted by bytes, and the maximum of three classifiers.
    """

    scores: str | list[str]
    bins: int = 20
    weight: str | None = None
    by: str | None = None
    edges: dict[str, list[float]] = field(default_factory=dict)
    ensemble: Literal["max", "min", "mean"] | dict[str, float] | None = None
    column: str = "bin"
    sample: int = 1_000_000
    seed: int = 0
    shards: int = setting(default=16)

    def __post_init__(self) -> None:
        names = self._names
        if not names or len(set(names)) < len(names):
            raise RecipeError("score_bins wants `scores`: a column of numbers, or several different ones")
        if not 2 <= self.bins <= 1000:
            raise RecipeError(f"score_bins: bins must be from 2 to 1000, got {self.bins}")
        if self.sample < 1 or self.shards < 1:
            raise RecipeError("score_bins: sample and shards must be 1 or more")
        if self.edges and (set(self.edges) != set(names) or self.weight or self.by):
            raise RecipeError(f"score_bins: edges must be given for each of {', '.join(names)} or for none, "
                              "and without weight and by")
        for name, edges in self.edges.items():
            if not edges or sorted(set(edges)) != list(edges):
                raise RecipeError(f"score_bins: the edges of {name} must be ascending numbers, got {edges}")
        if isinstance(self.ensemble, dict):
            if (set(self.ensemble) != set(names) or min(self.ensemble.values()) < 0
                or not sum(self.ensemble.values())):
                raise RecipeError("score_bins: ensemble must have a weight of 0 or more for each of "
                                  f"{', '.join(names)}")
        elif self.ensemble not in (None, *FOLDS):
            raise RecipeError("score_bins: ensemble must be max, min, mean or weights by name of the score, "
                              f"got {self.ensemble!r}")

    @property
    def _names(self) -> list[str]:
        return [self.scores] if isinstance(self.scores, str) else list(self.scores)

    @property
    def _binning(self) -> Binning:
        return Binning(tuple(self._names), self.ensemble, self.column)

    def contract(self) -> Contract:
        others = [name for name in (self.weight, self.by) if name]
        return Contract(needs={*self._names, *others}, adds=self._binning.adds())

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        if self.edges:
            return rows >> BinsByEdges(binning=self._binning, edges=self.edges)
        return rows >> BinsByPercentile(binning=self._binning, bins=self.bins, weight=self.weight,
                                        key=self.by, sample=self.sample, seed=self.seed, shards=self.shards)


class _Binned(Stage):
    """What both ways to bins show: how many records each bin has."""

    binning: Binning

    def __post_init__(self) -> None:
        self.count_by = tuple(self.binning.adds())

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        for column in self.count_by:
            by_bin = {value: sum(ports.values()) for value, ports in counts.by_value.get(column, {}).items()}
            total = sum(by_bin.values())
            rows = [(value, by_bin[value], total) for value in sorted(by_bin, key=lambda v: (len(v), v))]
            if rows:
                yield Table(f"Records by {column}", (column, "records"), rows)


@dataclass(kw_only=True)
class BinsByEdges(_Binned):
    """Bins of scores by edges that are given."""

    binning: Binning
    edges: Mapping[str, Sequence[float]]

    def contract(self) -> Contract:
        return Contract(needs=set(self.binning.scores), adds=self.binning.adds())

    def process(self, batch: Batch) -> Batch:
        values = self.binning.values(batch)
        bins = [_digitize(score, np.asarray(self.edges[name], np.float64))
                for name, score in zip(self.binning.scores, values, strict=True)]
        return self.binning.with_bins(batch, np.array(bins))


@dataclass(kw_only=True)
class BinsByPercentile(_Binned, Reduce):
    """Bins of scores by percentiles of all records with one value of `key`."""

    binning: Binning
    bins: int
    weight: str | None
    key: str | None
    sample: int
    seed: int
    shards: int = setting(default=16)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.columns = (*self.binning.scores, *(name for name in (self.weight, self.key) if name))

    def contract(self) -> Contract:
        return Contract(needs=set(self.columns or ()), adds=self.binning.adds())

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._groups = Groups()
        self._parts: list[np.ndarray] = []  # [3 + scores, rows]: chance, group, weight, scores
        self._rows = self._sorted_out = 0
        self._edges: dict[int, np.ndarray] | None = None  # of each group: [scores, bins - 1]

    def absorb(self, batch: Batch) -> None:
        values = self.binning.values(batch)
        weight = (np.ones(len(batch)) if self.weight is None
                  else np.nan_to_num(batch.array(self.weight, null=np.nan), nan=0.0))
        part = np.vstack([chance(batch.rows.column("id"), self.seed), self._codes(batch),
                          np.maximum(weight, 0.0), values])
        self._parts.append(part[:, ~np.isnan(values).all(axis=0)])
        self._rows += self._parts[-1].shape[1]
        if self._rows > 2 * max(self.sample, self._sorted_out):
            self._sort_out()

    def process(self, batch: Batch) -> Batch:
        if self._edges is None:
            self._edges = self._learned()
        values, codes = self.binning.values(batch), self._codes(batch)
        bins = np.full(values.shape, -1, np.int32)
        for code in np.unique(codes).tolist():
            rows = codes == code
            for score, edges in enumerate(self._edges.get(code, ())):
                bins[score, rows] = _digitize(values[score, rows], edges)
        return self.binning.with_bins(batch, bins)

    def _codes(self, batch: Batch) -> np.ndarray:
        return np.zeros(len(batch),
                        np.int64) if self.key is None else self._groups.codes(batch.rows.column(self.key))

    def _sort_out(self) -> None:
        """Keep of each group the records with the lowest chances, `sample` of them."""
        rows = np.hstack(self._parts) if self._parts else np.empty((3 + len(self.binning.scores), 0))
        rows = rows[:, np.lexsort((rows[0], rows[1]))]
        first = np.searchsorted(rows[1], rows[1])
        rows = rows[:, np.arange(rows.shape[1]) - first < self.sample]
        self._parts, self._rows, self._sorted_out = [rows], rows.shape[1], rows.shape[1]

    def _learned(self) -> dict[int, np.ndarray]:
        self._sort_out()
        rows = self._parts.pop()
        return {int(code): np.array([_edges(scores, rows[2, rows[1] == code], self.bins)
                                     for scores in rows[3:, rows[1] == code]]) for code in np.unique(rows[1])}


def _digitize(scores: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many edges each score has reached; -1 for NaN."""
    return np.where(np.isnan(scores), -1, np.searchsorted(edges, scores, side="right")).astype(np.int32)


def _edges(scores: np.ndarray, weights: np.ndarray, bins: int) -> np.ndarray:
    """The inverted distribution function at 1/bins, 2/bins, …: of each the first score by which so much of
    the weight is reached."""
    there = ~np.isnan(scores)
    scores, weights = scores[there], weights[there]
    if not len(scores):
        return np.empty(0)
    if not weights.any():  # nothing is known of what weighs more
        weights = np.ones(len(scores))
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(weights[order])
    wanted = np.arange(1, bins) * reached[-1] / bins
    return scores[order][np.minimum(np.searchsorted(reached, wanted, side="left"), len(scores) - 1)]
