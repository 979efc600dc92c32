"""How right a classifier is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def of_labels(scores: np.ndarray, truth: np.ndarray, labels: Sequence[str]) -> dict[str, Any]:
    """`scores`: [rows, labels]; `truth`: numbers of labels. `accuracy_without`: what the commonest label
    alone would reach."""
    told = scores.argmax(axis=1)
    each = {}
    for number, label in enumerate(labels):
        there, said = truth == number, told == number
        right = int((there & said).sum())
        each[label] = {"records": int(there.sum()), "precision": _share(right, said.sum()),
                       "recall": _share(right, there.sum()), "f1": _share(2 * right, there.sum() + said.sum()),
                       "average_precision": average_precision(scores[:, number], there)}
    known = [one["f1"] or 0.0 for one in each.values() if one["records"]]
    return {"accuracy": _share((told == truth).sum(), len(truth)),
            "accuracy_without": _share(np.bincount(truth).max(), len(truth)),
            "macro_f1": round(float(np.mean(known)), 4), "labels": each}


def of_numbers(found: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """`rmse_without`: what the mean alone would reach."""
    return {"rmse": round(float(np.sqrt(((found - truth) ** 2).mean())), 4),
            "rmse_without": round(float(truth.std()), 4), "spearman": spearman(found, truth)}


def average_precision(scores: np.ndarray, there: np.ndarray) -> float | None:
    """The mean of the precision at each record that is `there`, from the highest score down; records that
    tie count together. None where there is none."""
    if not there.any():
        return None
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(there[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # of those that tie
    gained = np.diff(hits[last], prepend=0)
    return round(float((gained * hits[last] / (last + 1)).sum() / hits[-1]), 4)


def spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    """The correlation of ranks; None where all are equal."""
    one, other = _ranks(one), _ranks(other)
    if not one.std() or not other.std():
        return None
    return round(float(np.corrcoef(one, other)[0, 1]), 4)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Those that are equal have the mean of their ranks."""
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[number]


def _share(part: int, whole: int) -> float | None:
    return round(float(part / whole), 4) if whole else None
