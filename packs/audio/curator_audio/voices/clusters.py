"""Voices put together: average linkage over cosine distances."""

from __future__ import annotations

import numpy as np

EXACT = 2000  # vectors that are clustered; of more, so many are, and the others go to the nearest cluster


def clusters(vectors: np.ndarray, distance: float) -> np.ndarray:
    """The cluster of each vector, 0 for the one that comes first, int64 [n].

    Two clusters are one as long as the mean cosine distance between their members is at most `distance`. `vectors`: float [n, d],
    each of length 1. Memory: n^2 float32, of at most `EXACT` vectors.

    Source: Sokal and Michener 1958 (average linkage); Müllner 2011 (arXiv:1109.2378), nearest-neighbour chain.
    """
    if len(vectors) > EXACT:
        some = np.linspace(0, len(vectors) - 1, EXACT).astype(int)
        of_some = clusters(vectors[some], distance)
        centres = np.stack([vectors[some][of_some == k].mean(axis=0) for k in range(of_some.max() + 1)])
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
        return in_order((vectors @ centres.T).argmax(axis=1))
    return in_order(_linked(1 - vectors @ vectors.T, distance)) if len(vectors) else np.zeros(0, np.int64)


def in_order(labels: np.ndarray) -> np.ndarray:
    """The same clusters, numbered as they first come."""
    _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]


def _linked(apart: np.ndarray, distance: float) -> np.ndarray:
    """A label for each row of a matrix of distances, which is changed."""
    apart = apart.astype(np.float32)
    np.fill_diagonal(apart, np.inf)
    sizes = np.ones(len(apart))
    labels = np.arange(len(apart))
    alive = np.ones(len(apart), bool)
    chain: list[int] = []
    settled = np.zeros(len(apart), bool)  # clusters that are too far from all others: average linkage brings nothing nearer
    while (alive & ~settled).any():
        if not chain:
            chain = [int(np.flatnonzero(alive & ~settled)[0])]
        last = chain[-1]
        nearest = int(apart[last].argmin())
        if len(chain) > 1 and apart[last, chain[-2]] <= apart[last, nearest]:
            nearest = chain[-2]
        if apart[last, nearest] > distance:
            settled[last] = True
            chain = []
        elif len(chain) > 1 and nearest == chain[-2]:
            chain = chain[:-2]
            _join(apart, sizes, nearest, last)
            alive[last] = False
            labels[labels == last] = nearest
        else:
            chain.append(nearest)
    return labels


def _join(apart: np.ndarray, sizes: np.ndarray, into: int, gone: int) -> None:
    """One cluster of two: its distances are the means, by size."""
    whole = sizes[into] + sizes[gone]
    row = (sizes[into] * apart[into] + sizes[gone] * apart[gone]) / whole
    row[[into, gone]] = np.inf
    apart[into], apart[:, into] = row, row
    apart[gone], apart[:, gone] = np.inf, np.inf
    sizes[into] = whole
