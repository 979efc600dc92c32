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


class Picture:
    """Pixels, uint8 [H, W], with their `mean` and deviation `std`, in levels. `flat`: there is no structure to compare.

    By sums of bytes, which OpenCV makes in a tenth of the time that numbers with a fraction take.
    """

    def __init__(self, pixels: np.ndarray) -> None:
        import cv2  # not where stages are only listed

        self.pixels = pixels
        self.total, self.squares = cv2.sumElems(pixels)[0], cv2.norm(pixels, cv2.NORM_L2SQR)
        self.mean = self.total / pixels.size
        self.norm = max(self.squares - self.total * self.mean, 0.0) ** 0.5
        self.std = self.norm / pixels.size**0.5
        self.flat = self.std < FLAT

    @functools.cached_property
    def wave(self) -> np.ndarray:
        return wave(self.pixels - np.float32(self.mean))


def distance(first: Picture, second: Picture) -> float:
    """1 - correlation of two pictures, from 0 to 2, with the shift that makes it smallest.

    Two flat pictures are alike (0), a flat one and another are not (1).
    """
    if first.flat or second.flat:
        return float(first.flat != second.flat)
    found = _apart(first, second)
    if found < _ALIKE:
        return found
    height, width = first.pixels.shape
    down, right = shift(first.wave, second.wave)
    if not (down or right) or abs(down) > height * (1 - _OVERLAP) or abs(right) > width * (1 - _OVERLAP):
        return found
    one = Picture(first.pixels[max(0, -down):height - max(0, down), max(0, -right):width - max(0, right)])
    two = Picture(second.pixels[max(0, down):height - max(0, -down), max(0, right):width - max(0, -right)])
    return found if one.flat or two.flat else min(found, _apart(one, two))


def _apart(first: Picture, second: Picture) -> float:
    """1 - correlation, where they are: what they have in common follows from their squares and those of what is between them."""
    import cv2

    between = cv2.norm(first.pixels, second.pixels, cv2.NORM_L2SQR)
    return 1 - ((first.squares + second.squares - between) / 2 - first.total * second.mean) / (first.norm * second.norm)


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """By how many levels two arrays of bytes differ, in the mean."""
    import cv2

    return cv2.norm(first, second, cv2.NORM_L1) / first.size


def wave(picture: np.ndarray) -> np.ndarray:
    """The frequencies of a picture, float32 [H, W], as OpenCV packs them."""
    import cv2

    return cv2.dft(picture * _window(*picture.shape))


def shift(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Rows down and columns right that the content of a picture moved by until another, by phase correlation of their waves."""
    import cv2

    height, width = first.shape
    product = cv2.mulSpectrums(second, first, 0, conjB=True)
    power = cv2.mulSpectrums(product, product, 0, conjB=True)  # squares where real parts lie, 0 where imaginary ones do:
    for part in (power, power[:, ::width - 1 + width % 2].T):  # at their right, in the outer columns below them
        part[:, 2::2] = part[:, 1:-1:2]
    down, right = divmod(int(cv2.idft(product / (np.sqrt(power) + 1e-6)).argmax()), width)
    return down - height * (down > height // 2), right - width * (right > width // 2)


@functools.lru_cache(maxsize=8)
def _window(height: int, width: int) -> np.ndarray:
    return np.outer(np.hanning(height + 2)[1:-1], np.hanning(width + 2)[1:-1]).astype(np.float32)


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
