"""How far two small pictures are from each other, whatever their brightness, and if the camera moved between them."""

from __future__ import annotations

import functools
from collections import deque
from typing import Any

import numpy as np

FLAT = 1.5  # deviation of luma below which a picture has no structure to compare
_ALIKE = 0.2  # pairs that are nearer need no search for a shift
_OVERLAP = 0.4  # of a side that two shifted pictures must have in common
_BAR_LEVEL = 32  # of luma; the darkest picture has 16
_BAR_SHARE = 0.95  # of the pictures in which a row or column of a bar is that dark
_LEFT = (12, 20)  # rows and columns: with fewer left nothing was a bar


def distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """1 - correlation of each pair, float64 from 0 to 2, with the shift that makes it smallest. [N, H, W] float32 both.

    Two flat pictures are alike (0), a flat one and another are not (1).
    """
    size = first[0].size if len(first) else 1
    one, two = (_centred(pictures) for pictures in (first, second))
    norms = [np.sqrt(np.einsum("ij,ij->i", made, made)) for made in (one, two)]
    flat = [norm < FLAT * size**0.5 for norm in norms]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 1 - np.einsum("ij,ij->i", one, two) / (norms[0] * norms[1])
    found = np.where(flat[0] | flat[1], np.where(flat[0] & flat[1], 0.0, 1.0), found).astype(np.float64)
    far = np.flatnonzero((found >= _ALIKE) & ~flat[0] & ~flat[1])
    if len(far):
        shape = (-1, *first.shape[1:])
        moved = shifts(one.reshape(shape)[far], two.reshape(shape)[far])
        for at, (down, right) in zip(far, moved, strict=True):
            found[at] = min(found[at], _shifted(first[at], second[at], down, right))
    return found


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Of one pair, [H, W] each."""
    return float(distances(first[None].astype(np.float32), second[None].astype(np.float32))[0])


def _centred(pictures: np.ndarray) -> np.ndarray:
    flat = pictures.reshape(len(pictures), -1)
    return flat - flat.mean(axis=1, keepdims=True)


def shifts(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rows down and columns right that the content of the first moved by, [N, 2], by phase correlation."""
    height, width = first.shape[1:]
    window = _window(height, width)
    product = np.conj(np.fft.rfft2(first * window)) * np.fft.rfft2(second * window)
    peaks = np.fft.irfft2(product / (np.abs(product) + 1e-6), s=(height, width)).reshape(len(first), -1).argmax(axis=1)
    moved = np.stack(np.unravel_index(peaks, (height, width)), axis=1)
    return np.where(moved > np.array([height, width]) // 2, moved - [height, width], moved)


@functools.lru_cache(maxsize=8)
def _window(height: int, width: int) -> np.ndarray:
    return np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1]).astype(np.float32)


def _shifted(first: np.ndarray, second: np.ndarray, down: int, right: int) -> float:
    height, width = first.shape
    if abs(down) > height * (1 - _OVERLAP) or abs(right) > width * (1 - _OVERLAP):
        return 2.0
    one = first[max(0, -down):height - max(0, down), max(0, -right):width - max(0, right)].ravel()
    two = second[max(0, down):height - max(0, -down), max(0, right):width - max(0, -right)].ravel()
    one, two = one - one.mean(), two - two.mean()
    a, b = float(one @ one), float(two @ two)
    least = FLAT**2 * one.size
    return 2.0 if a < least or b < least else 1 - float(one @ two) / (a * b) ** 0.5


class Bars:
    """Black bars, by the pictures of the last `WINDOW` blocks: rows and columns at the sides that stay dark.

    Not by all that was seen: what is found at a place of a film is to rest on what is near it.
    """

    WINDOW = 32

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int, list[np.ndarray]]] = deque()
        self._seen: int = 0
        self._dark: list[Any] = [0, 0]  # of all blocks together: of how many pictures a row, a column is dark
        self._inside = slice(None), slice(None)

    def add(self, pictures: np.ndarray, block: int) -> None:
        """Look at pictures, uint8 [N, H, W], of the block with this number. Those that are black all over say nothing."""
        while self._blocks and self._blocks[0][0] <= block - self.WINDOW:
            self._count(*self._blocks.popleft()[1:], sign=-1)
        pictures = pictures[pictures.max(axis=(1, 2)) > 2 * _BAR_LEVEL] if len(pictures) else pictures
        if len(pictures):
            dark = [(pictures.max(axis=axis) <= _BAR_LEVEL).sum(axis=0) for axis in (2, 1)]
            self._blocks.append((block, len(pictures), dark))
            self._count(len(pictures), dark)
        self._inside = self._found()

    def _count(self, count: int, dark: list[np.ndarray], sign: int = 1) -> None:
        self._seen += sign * count
        self._dark = [had + sign * new for had, new in zip(self._dark, dark, strict=True)]

    def inside(self) -> tuple[slice, slice]:
        """Rows and columns of the picture without its bars."""
        return self._inside

    def _found(self) -> tuple[slice, slice]:
        kept = []
        for dark, least in zip(self._dark, _LEFT, strict=True):
            lit = np.flatnonzero(dark < _BAR_SHARE * self._seen) if self._seen else []
            kept.append(slice(int(lit[0]), int(lit[-1]) + 1) if len(lit) >= least else slice(None))
        return kept[0], kept[1]
