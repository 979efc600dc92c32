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


class Row:
    """Some pictures, uint8 [N, H, W]. `mean` and `std`: of each, in levels.

    By sums of bytes, which OpenCV makes in a tenth of the time that numbers with a fraction take: what two pictures have in common
    follows from their squares and those of what is between them.
    """

    def __init__(self, pictures: np.ndarray) -> None:
        self._pictures = pictures
        self._flat = pictures.reshape(len(pictures), -1)
        size = self._flat.shape[1]
        self._sums, self._squares = _sums(self._flat), _sums(self._flat, squares=True)
        self.mean = self._sums / size
        self._norms = np.sqrt(np.maximum(self._squares - self._sums * self.mean, 0))
        self.std = self._norms / size**0.5

    def distances(self) -> np.ndarray:
        """1 - correlation of each picture and the next, float64 from 0 to 2, with the shift that makes it smallest; [N - 1].

        Two flat pictures are alike (0), a flat one and another are not (1).
        """
        squares, norms, flat = self._squares, self._norms, self.std < FLAT
        apart = _sums(_between(self._flat), squares=True)
        one, other = flat[:-1], flat[1:]
        none = one | other
        common = (squares[1:] + squares[:-1] - apart) / 2 - self._sums[1:] * self.mean[:-1]
        found = np.where(none, one != other, 1 - common / np.where(none, 1, norms[:-1] * norms[1:]))
        far = np.flatnonzero((found >= _ALIKE) & ~none)
        if len(far):
            made = self._pictures - self.mean[:, None, None].astype(np.float32)
            for at, (down, right) in zip(far.tolist(), shifts(made, far, far + 1).tolist(), strict=True):
                if down or right:
                    found[at] = min(found[at], _shifted(made[at], made[at + 1], down, right))
        return found


def changes(pictures: np.ndarray) -> np.ndarray:
    """By how many levels each picture, uint8 [N, ...], differs from the one before, in the mean; [N - 1]."""
    flat = pictures.reshape(len(pictures), -1)
    return _sums(_between(flat)) / flat.shape[1]


def _between(flat: np.ndarray) -> np.ndarray:
    """By how much each byte of a row differs from that of the row before."""
    import cv2  # not where stages are only listed

    return cv2.absdiff(flat[1:], flat[:-1])


def _sums(flat: np.ndarray, squares: bool = False) -> np.ndarray:
    """Of each row, float64; of a thumbnail's squares 31 bits are enough."""
    import cv2

    way = cv2.REDUCE_SUM2 if squares else cv2.REDUCE_SUM
    return cv2.reduce(flat, 1, way, dtype=cv2.CV_32S)[:, 0].astype(np.float64)


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Of one pair, uint8 [H, W] each."""
    return float(Row(np.stack([first, second])).distances()[0])


def shifts(pictures: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rows down and columns right that the content of each of the first pictures moved by until the second, [N, 2], by phase correlation.

    `first`, `second`: numbers of pictures, float32 [M, H, W].
    """
    height, width = pictures.shape[1:]
    asked = np.zeros(len(pictures), bool)
    asked[first] = asked[second] = True
    waves, at = np.fft.rfft2(pictures[asked] * _window(height, width)), np.cumsum(asked) - 1
    product = np.conj(waves[at[first]]) * waves[at[second]]
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
        import cv2

        rows = cv2.reduce(pictures.reshape(-1, pictures.shape[2]), 1, cv2.REDUCE_MAX).reshape(pictures.shape[:2])
        bright = rows.max(axis=1) > 2 * _BAR_LEVEL
        if bright.any():
            dark = [(brightest[bright] <= _BAR_LEVEL).sum(axis=0) for brightest in (rows, pictures.max(axis=1))]
            count = int(bright.sum())
            self._blocks.append((block, count, dark))
            self._count(count, dark)
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
            lit = np.flatnonzero(dark < _BAR_SHARE * self._seen) if self._seen else np.zeros(0, int)
            kept.append(slice(int(lit[0]), int(lit[-1]) + 1) if len(lit) >= least else slice(None))
        return kept[0], kept[1]
