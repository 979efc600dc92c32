"""What several measures of one clip look at, made once and only if asked for. Nothing that is given is written to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import cv2
import numpy as np

from curator_video.measures.bars import find_bars

BLACK, WHITE = 16, 235    # luma of the thumbnails
MOST_FRAMES = 32          # that are looked at for colour, sharpness and bars
LONG_SIDE = 384           # pixels: so that scores do not depend on the size of the film
COLOUR_SIDE = 90          # of the longer side that are sampled for colours: of 384 not each fourth, as codecs work in fours
BLACK_THUMB = 32          # levels that a bar has at most


class Thumbs:
    """Every frame of a clip, small: luma, uint8 [n, height, width], n at least 1, with ascending times in seconds."""

    def __init__(self, thumbs: np.ndarray, times: np.ndarray) -> None:
        self.thumbs, self.times = thumbs, times
        self._made: dict[Callable[[Thumbs], np.ndarray], np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.thumbs)

    @cached_property
    def shown(self) -> np.ndarray:
        """Seconds for which each frame is shown; the last as long as is usual. All are the same if there are no times."""
        if len(self) < 2:
            return np.ones(1)
        steps = np.diff(self.times)
        return np.append(steps, np.median(steps)) if np.all(steps > 0) else np.ones(len(self))

    def share(self, which: np.ndarray) -> float:
        """The share of the time that these frames (bool, one a frame) have."""
        return float(self.shown[which].sum() / self.shown.sum())

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each frame in levels, float64."""
        total, squares = sums(self.thumbs)
        mean = total / self.thumbs[0].size
        return mean, np.sqrt(np.maximum(squares / self.thumbs[0].size - mean**2, 0))

    @property
    def luma(self) -> np.ndarray:
        """Mean of each frame, 0 black to 1 white."""
        return (self.moments[0] - BLACK) / (WHITE - BLACK)

    @cached_property
    def bars(self) -> tuple[int, int, int, int]:
        """The first and the end row, the first and the end column between black bars; of all where there is nothing but black."""
        return find_bars(self.thumbs, BLACK_THUMB) or (0, self.thumbs.shape[1], 0, self.thumbs.shape[2])

    @property
    def content(self) -> np.ndarray:
        """The thumbnails without black bars."""
        top, bottom, left, right = self.bars
        return self.thumbs[:, top:bottom, left:right]

    @cached_property
    def change(self) -> np.ndarray:
        """Mean difference of each frame from the one before, in levels; one fewer than frames."""
        if len(self) < 2:
            return np.zeros(0)
        return sums(cv2.absdiff(self.thumbs[1:], self.thumbs[:-1]))[0] / self.thumbs[0].size

    def once(self, function: Callable[[Thumbs], np.ndarray]) -> np.ndarray:
        """What a function makes of this clip, made when it is first asked for."""
        if function not in self._made:
            self._made[function] = function(self)
        return self._made[function]


class Pictures:
    """Sampled frames of a clip: RGB, uint8 [n, height, width, 3], n at least 1; at most 32 of them are looked at.

    `grey`: their luma, full range, uint8 [n, height, width]. `sampled`: single pixels of them, for colours, uint8 [n, rows, columns, 3].
    """

    def __init__(self, frames: np.ndarray) -> None:
        chosen = np.unique(np.linspace(0, len(frames) - 1, min(len(frames), MOST_FRAMES)).round().astype(int))
        grey, sampled = [], []
        for frame in (smaller(frames[k]) for k in chosen):  # both while the processor has the frame at hand
            grey.append(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))
            sampled.append(smaller(frame, COLOUR_SIDE, cv2.INTER_NEAREST_EXACT))
        self.grey, self.sampled = np.stack(grey), np.stack(sampled)


def rows(pictures: np.ndarray) -> np.ndarray:
    """Each as one row: as `cv2.reduce` sums them, in a tenth of the time that NumPy takes for bytes."""
    return pictures.reshape(len(pictures), -1)


def sums(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each picture, uint8 of up to 33,000 pixels, the sum of its levels and that of their squares, float64."""
    total, squares = (cv2.reduce(rows(pictures), 1, way, dtype=cv2.CV_32S)[:, 0] for way in (cv2.REDUCE_SUM, cv2.REDUCE_SUM2))
    return total.astype(float), squares.astype(float)


def smaller(picture: np.ndarray, longest: int = LONG_SIDE, way: int = cv2.INTER_AREA) -> np.ndarray:
    """At most so many pixels of the longer side."""
    height, width = picture.shape[:2]
    scale = longest / max(height, width)
    if scale >= 1:
        return picture
    return cv2.resize(picture, (max(1, round(width * scale)), max(1, round(height * scale))), interpolation=way)
