"""K-means over directions: groups of vectors whose cosine with the middle of their group is high."""

from __future__ import annotations

import numpy as np

from curator_dedup.near.products import nearest, on_grid

ROUNDS_MAX = 20  # of Lloyd's algorithm; what moves later are few rows, and groups need not be perfect


def fit(vectors: np.ndarray, clusters: int, *, seed: int = 1, device: str | None = None) -> np.ndarray:
    """Centers for `vectors`, both on the grid (see `on_grid`), float32: [k, d] for [n, d]. k is `clusters`,
    or less where there are not so many different vectors.

    All sums are exact, so the answer is the same with and without a GPU and with any number of threads; it
    depends on the order of the vectors. Source: Dhillon & Modha 2001 (spherical k-means: Lloyd's algorithm
    with sums brought back to length 1); first centers: `first`.
    """
    centers = first(vectors, clusters, seed=seed, device=device)
    labels = np.full(len(vectors), -1)
    for _ in range(ROUNDS_MAX):
        before, labels = labels, nearest(vectors, centers, device=device)[0][:, 0]
        if (labels == before).all():
            break
        centers = _middles(vectors, labels, centers)
    return centers


def first(vectors: np.ndarray, clusters: int, *, seed: int = 1, device: str | None = None) -> np.ndarray:
    """Vectors to begin with, all different: drawn in rounds, a quarter more in each, with a chance that grows
    with the square of the distance to the nearest one drawn before.

    Source: k-means++ (Arthur & Vassilvitskii 2007), which draws one a round; many a round as in k-means|| (Bahmani et al.
    2012), so that all rounds together cost one round of Lloyd's algorithm. Drawn without replacement by the least of
    exponential times (Efraimidis & Spirakis 2006).
    """
    random = np.random.default_rng(seed)
    # with itself: no product with a vector of the same length is higher
    own = np.einsum("ij,ij->i", vectors, vectors)
    best = np.zeros(len(vectors), dtype=np.float32)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < clusters:
        far = np.maximum(own - best, 0)  # half the square of the distance
        times = random.exponential(size=len(vectors)) / np.where(far > 0, far, np.nan)
        order = np.argsort(times, kind="stable")[:min(max(1, len(drawn) // 4), clusters - len(drawn))]
        fresh = order[far[order] > 0]  # not a number is sorted last
        fresh = fresh[np.sort(np.unique(vectors[fresh], axis=0, return_index=True)[1])]
        if not len(fresh):
            break
        drawn = np.concatenate([drawn, fresh])
        best = np.maximum(best, nearest(vectors, vectors[fresh], device=device)[1][:, 0])
    return vectors[drawn]


def _middles(vectors: np.ndarray, labels: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The direction of the sum of each group; a group without one (nobody is in it, or they cancel out) stays
    where it was."""
    order = np.argsort(labels, kind="stable")
    there, starts = np.unique(labels[order], return_index=True)
    sums = np.add.reduceat(vectors[order].astype(np.int32), starts, axis=0, dtype=np.int64).astype(np.float64)
    length = np.sqrt((sums * sums).sum(axis=1))
    moved = centers.copy()
    moved[there[length > 0]] = on_grid(sums[length > 0] / length[length > 0, None])
    return moved
