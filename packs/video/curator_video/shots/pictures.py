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

    def distances(self, *, to_first: bool = False) -> np.ndarray:
        """1 - correlation of each picture and the next, or of the first and each of the others, float64 from 0 to 2, with the shift
        that makes it smallest; [N - 1].

        Two flat pictures are alike (0), a flat one and another are not (1).
        """
        first: slice | list[int] = [0] * (len(self._flat) - 1) if to_first else slice(-1)
        squares, norms, flat = self._squares, self._norms, self.std < FLAT
        apart = _sums(_between(self._flat, first), squares=True)
        one, other = flat[first], flat[1:]
        none = one | other
        common = (squares[1:] + squares[first] - apart) / 2 - self._sums[1:] * self.mean[first]
        found = np.where(none, one != other, 1 - common / np.where(none, 1, norms[first] * norms[1:]))
        pairs = [(0 if to_first else at, at + 1) for at in np.flatnonzero((found >= _ALIKE) & ~none).tolist()]
        waves = {at: wave(self._pictures[at] - np.float32(self.mean[at])) for at in {at for pair in pairs for at in pair}}
        for before, after in pairs:
            down, right = shift(waves[before], waves[after])
            if down or right:
                found[after - 1] = min(found[after - 1], _shifted(self._pictures[before], self._pictures[after], down, right))
        return found


def changes(pictures: np.ndarray) -> np.ndarray:
    """By how many levels each picture, uint8 [N, ...], differs from the one before, in the mean; [N - 1]."""
    flat = pictures.reshape(len(pictures), -1)
    return _sums(_between(flat)) / flat.shape[1]


def _between(flat: np.ndarray, first: slice | list[int] = slice(-1)) -> np.ndarray:
    """By how much each byte of a row differs from that of the row before, or of another one."""
    import cv2  # not where stages are only listed

    return cv2.absdiff(flat[1:], flat[first])


def _sums(flat: np.ndarray, squares: bool = False) -> np.ndarray:
    """Of each row, float64; of a thumbnail's squares 31 bits are enough."""
    import cv2

    way = cv2.REDUCE_SUM2 if squares else cv2.REDUCE_SUM
    return cv2.reduce(flat, 1, way, dtype=cv2.CV_32S)[:, 0].astype(np.float64)


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Of one pair, uint8 [H, W] each."""
    return float(Row(np.stack([first, second])).distances()[0])


def wave(picture: np.ndarray) -> np.ndarray:
    """The frequencies of a picture, float32 [H, W], as OpenCV packs them."""
    import cv2

    return cv2.dft(picture * _window(*picture.shape))


def shift(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Rows down and columns right that the content of a picture moved by until another, by phase correlation of their waves."""
    import cv2

    height, width = first.shape
    product = cv2.mulSpectrums(second, first, 0, conjB=True)
    # Real and imaginary part lie side by side, in the first column, and the last of an even number, one below the other.
    power = product * product
    edges = power[:, ::width - 1 + width % 2].T
    for part in (power, edges):
        part[:, 1:-1:2] += part[:, 2::2]
        part[:, 2::2] = part[:, 1:-1:2]
    down, right = divmod(int(cv2.idft(product / (np.sqrt(power) + 1e-6)).argmax()), width)
    return down - height * (down > height // 2), right - width * (right > width // 2)


@functools.lru_cache(maxsize=8)
def _window(height: int, width: int) -> np.ndarray:
    return np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1]).astype(np.float32)


def _shifted(first: np.ndarray, second: np.ndarray, down: int, right: int) -> float:
    import cv2

    height, width = first.shape
    if abs(down) > height * (1 - _OVERLAP) or abs(right) > width * (1 - _OVERLAP):
        return 2.0
    one = first[max(0, -down):height - max(0, down), max(0, -right):width - max(0, right)]
    two = second[max(0, down):height - max(0, -down), max(0, right):width - max(0, -right)]
    mean, other = cv2.mean(one)[0], cv2.mean(two)[0]
    squares, others = cv2.norm(one, cv2.NORM_L2SQR), cv2.norm(two, cv2.NORM_L2SQR)
    common = (squares + others - cv2.norm(one, two, cv2.NORM_L2SQR)) / 2 - one.size * mean * other
    a, b = squares - one.size * mean**2, others - one.size * other**2
    least = FLAT**2 * one.size
    return 2.0 if a < least or b < least else 1 - common / (a * b) ** 0.5


class Bars:
    """Black bars, by the pictures of the last `WINDOW` blocks: rows and columns at the sides that stay dark.

    Not by all that was seen: what is found at a place of a film is to rest on what is near it.
    """

    WINDOW = 32

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, int, np.ndarray]] = deque()
        self._seen = 0
        self._dark: Any = 0  # of all blocks together: of how many pictures a row, and behind these a column is dark
        self._inside = slice(None), slice(None)

    def add(self, pictures: np.ndarray, block: int) -> None:
        """Look at pictures, uint8 [N, H, W], of the block with this number. Those that are black all over say nothing."""
        while self._blocks and self._blocks[0][0] <= block - self.WINDOW:
            _, count, dark = self._blocks.popleft()
            self._seen, self._dark = self._seen - count, self._dark - dark
        import cv2

        rows = cv2.reduce(pictures.reshape(-1, pictures.shape[2]), 1, cv2.REDUCE_MAX).reshape(pictures.shape[:2])
        bright = rows.max(axis=1) > 2 * _BAR_LEVEL
        count = int(np.count_nonzero(bright))
        if count:
            dark = (np.concatenate([rows, pictures.max(axis=1)], axis=1)[bright] <= _BAR_LEVEL).sum(axis=0)
            self._blocks.append((block, count, dark))
            self._seen, self._dark = self._seen + count, self._dark + dark
        self._inside = self._found(pictures.shape[1])

    def inside(self) -> tuple[slice, slice]:
        """Rows and columns of the picture without its bars."""
        return self._inside

    def _found(self, height: int) -> tuple[slice, slice]:
        if not self._seen:
            return slice(None), slice(None)
        lit, kept = self._dark < _BAR_SHARE * self._seen, []
        for side, least in zip((lit[:height], lit[height:]), _LEFT, strict=True):
            inside = np.flatnonzero(side)
            kept.append(slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) >= least else slice(None))
        return kept[0], kept[1]
