"""Products of many vectors with many vectors, by numpy or by torch on a GPU: the one place of this pack that
uses torch.

Vectors on the grid (`on_grid`) have products that are exact in float32, in whatever order they are summed and
in whatever blocks: so what is chosen by them is the same for a row alone and in a batch, with one thread and
with many, by numpy and by torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# steps for 1. Components then have at most 11 bits, which TF32 holds too, and products of two vectors less
# than 2^24
GRID = 2048
BLOCK_BYTES = 64 << 20  # of products at a time


def on_grid(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1, or near it, as whole numbers, float32: components rounded to 1/2048 and multiplied
    by that.

    A product changes by about 1e-4 (2048 ** -1 / sqrt(6) for random vectors, whatever their width).
    """
    steps = np.multiply(vectors, np.float32(GRID), dtype=np.float32)
    return np.rint(steps, out=steps)


def nearest(vectors: np.ndarray, centers: np.ndarray, count: int = 1,
            device: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Of `centers` [k, d] the `count` with the highest product with each of `vectors` [n, d], both on the
    grid: their numbers, int64 [n, c], best first, and the products, float32 [n, c]; c = min(count, k). Of
    equal ones the first wins.

    `device`: where torch is to work ("cuda"); None for numpy.
    """
    count = min(count, len(centers))
    numbers = np.empty((len(vectors), count), dtype=np.int64)
    products = np.empty((len(vectors), count), dtype=np.float32)
    others = _on(centers, device).T
    for rows in _blocks(len(vectors), len(centers)):
        block = _on(vectors[rows], device) @ others
        at = np.arange(block.shape[0])
        for place in range(count):
            best = block.argmax(1)  # the first of equals, in numpy and in torch
            numbers[rows, place], products[rows, place] = _back(best), _back(block[at, best])
            if place + 1 < count:
                block[at, best] = -np.inf
    return numbers, products


def pairs_over(a: np.ndarray, b: np.ndarray, least: float,
               device: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows i of `a` [n, d] and j of `b` [m, d], both float32, whose product is at least `least`, int64; in
    order of i, then j.

    Rounding is that of the device: to be sure of a pair, ask for less and compute it again.
    """
    found_i, found_j = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    others = _on(b, device).T
    for rows in _blocks(len(a), len(b)):
        over = ((_on(a[rows], device) @ others) >= least).ravel()
        i, j = np.divmod(np.flatnonzero(over) if device is None else _back(over.nonzero()).ravel(),
                         max(1, len(b)))
        found_i.append(i + rows.start)
        found_j.append(j)
    return np.concatenate(found_i), np.concatenate(found_j)


def torch_device(gpus: tuple[int, ...]) -> str | None:
    """Where a worker that was given these GPUs works: torch's first device, None (numpy) without any."""
    return "cuda" if gpus else None


def _blocks(rows: int, others: int) -> list[slice]:
    size = max(1, BLOCK_BYTES // (4 * max(1, others)))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def _on(vectors: np.ndarray, device: str | None) -> Any:
    if device is None:
        return vectors
    import torch

    return torch.from_numpy(np.ascontiguousarray(vectors)).to(device)


def _back(values: Any) -> np.ndarray:
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()
