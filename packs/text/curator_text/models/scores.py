"""What classifiers say, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.models.vectors import scattered


@dataclass(frozen=True)
class ScoreColumns:
    """`into` and `<into>_score`: the most probable class and its probability; of a `regression` the second
    alone; with `labels` a column for each class that is named there, and no other."""

    into: str
    regression: bool
    labels: Mapping[str, str] | None

    def __post_init__(self) -> None:
        if self.labels is not None and not self.labels:
            raise ValueError("labels names no class; leave it out to get the most probable one")
        if self.labels and (self.regression or len(set(self.labels.values())) < len(self.labels)):
            raise ValueError("labels names classes, each with a column of its own, and a regression has "
                             f"none: {self.labels}")

    def adds(self) -> dict[str, pa.DataType]:
        if self.labels is not None:
            return dict.fromkeys(self.labels.values(), pa.float32())
        score = {f"{self.into}_score": pa.float32()}
        return score if self.regression else {self.into: pa.string()} | score

    def columns(self, scores: np.ndarray, at: np.ndarray, rows: int,
                names: Sequence[str]) -> dict[str, pa.Array]:
        """`scores`: [len(at), classes], those of the rows `at` of `rows`; the others have null."""
        if self.labels is not None:
            return {column: scattered(scores[:, names.index(label)] if label in names else 0.0, at, rows)
                    for label, column in self.labels.items()}
        told = {f"{self.into}_score": scattered(scores.max(axis=1, initial=-np.inf), at, rows)}
        if not self.regression:
            labels = np.full(rows, None, object)
            labels[at] = [names[k] for k in scores.argmax(axis=1)] if len(at) else []
            told[self.into] = pa.array(labels, pa.string())
        return told
