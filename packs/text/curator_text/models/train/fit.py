"""Linear models: logistic regression for labels, ridge regression for numbers.

Both by one minimiser, L-BFGS, in numpy: the loss is convex, so there is one answer, and no chance in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from curator.models.heads import softmax
from curator_text.models.train.rows import Rows

L2 = (1e-3, 1e-4, 1e-5, 1e-6)  # that are tried, the strongest first
STEPS_MAX = 100
_MEMORY = 6  # steps that a direction is made of
_TOLERANCE = 1e-4  # of the gradient, as a share of the first one
_HALVINGS = 20


@dataclass(frozen=True)
class Linear:
    """`weight`: [outputs, width], `bias`: [outputs], float32."""

    weight: np.ndarray
    bias: np.ndarray

    def outputs(self, rows: Rows) -> np.ndarray:
        """float64 [rows, outputs], before a softmax."""
        return rows.dot(self.weight.T) + self.bias


Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]


def fit(rows: Rows, targets: np.ndarray, l2: float, start: Linear | None = None) -> Linear:
    """`targets`: float64 [rows, outputs], shares of 0 to 1 of classes that add up to 1, or one number a row.
    `l2`: half the weight of the sum of all squared weights beside the mean loss. `start`: where to begin."""
    classes = targets.shape[1] > 1
    mean, scale = 0.0, 1.0
    if not classes:
        mean, scale = targets.mean(), targets.std() or 1.0
    width = rows.width
    rows, there = rows.narrowed()
    wanted, shape = (targets - mean) / scale, (rows.width, targets.shape[1])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights, bias = flat[:-shape[1]].reshape(shape), flat[-shape[1]:]
        found = rows.dot(weights) + bias
        if classes:
            told = softmax(found)
            value = -(wanted * np.log(np.maximum(told, 1e-300))).sum() / len(rows)
            slope = (told - wanted) / len(rows)
        else:
            slope = (found - wanted) / len(rows)
            value = 0.5 * len(rows) * (slope * slope).sum()
        return (value + 0.5 * l2 * (weights * weights).sum(),
                np.concatenate([(rows.transposed_dot(slope) + l2 * weights).ravel(), slope.sum(axis=0)]))

    first = np.zeros(shape[0] * shape[1] + shape[1])
    if start is not None:
        first = np.concatenate([start.weight[:, there].T.ravel() / scale, (start.bias - mean) / scale])
    found = minimum(loss, first)
    weight = np.zeros((shape[1], width), np.float32)
    weight[:, there] = found[:-shape[1]].reshape(shape).T * scale
    return Linear(weight, (found[-shape[1]:] * scale + mean).astype(np.float32))


def chosen(rows: Rows, targets: np.ndarray, apart: np.ndarray) -> float:
    """The `l2` of `L2` with the least loss on the rows that `apart` (bool) names, after training on the
    others; `L2[1]` where either are too few to tell."""
    if apart.sum() < 5 or (~apart).sum() < 5:
        return L2[1]
    others, made, best = rows.take(np.flatnonzero(~apart)), None, (np.inf, L2[1])
    held = rows.take(np.flatnonzero(apart))
    for l2 in L2:
        made = fit(others, targets[~apart], l2, made)
        best = min(best, (mean_loss(made.outputs(held), targets[apart]), l2), key=lambda pair: pair[0])
    return best[1]


def mean_loss(outputs: np.ndarray, targets: np.ndarray) -> float:
    if targets.shape[1] == 1:
        return float(((outputs - targets) ** 2).mean())
    return float(-(targets * np.log(np.maximum(softmax(outputs), 1e-300))).sum(axis=1).mean())


def minimum(loss: Loss, at: np.ndarray) -> np.ndarray:
    """Where a convex function is least. Source: Nocedal & Wright 2006, algorithms 7.4, 7.5 and 3.1."""
    value, slope = loss(at)
    enough = _TOLERANCE * np.maximum(np.linalg.norm(slope), 1e-12)
    pairs: list[tuple[np.ndarray, np.ndarray, float]] = []
    for _ in range(STEPS_MAX):
        if np.linalg.norm(slope) <= enough:
            break
        direction = -_newton(slope, pairs)
        size = 1.0 if pairs else 1 / np.maximum(1.0, np.linalg.norm(slope))
        for _ in range(_HALVINGS):
            there = at + size * direction
            value_there, slope_there = loss(there)
            if value_there <= value + 1e-4 * size * (slope @ direction):
                break
            size /= 2
        else:
            break
        step, change = there - at, slope_there - slope
        if (product := step @ change) > 1e-12 * (change @ change):
            pairs = [*pairs[1 - _MEMORY:], (step, change, 1 / product)]
        at, value, slope = there, value_there, slope_there
    return at


def _newton(slope: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    found, shares = slope.copy(), []
    for step, change, inverse in reversed(pairs):
        shares.append(inverse * (step @ found))
        found -= shares[-1] * change
    if pairs:
        step, change, inverse = pairs[-1]
        found *= 1 / (inverse * (change @ change))
    for (step, change, inverse), share in zip(pairs, reversed(shares), strict=True):
        found += step * (share - inverse * (change @ found))
    return found
