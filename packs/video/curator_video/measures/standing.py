"""What stands still in a picture that moves: texts, logos, marks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce

import cv2
import numpy as np

from curator_video.read.sampling import spaced

STILL = 12             # levels that a pixel that stands still varies by at most
EDGE = 24.0            # levels a pixel: letters and marks have sharp edges
WINDOW = 3             # pictures that a text stands for at least
MOST_WINDOWS = 16      # that are looked at
SPACED_S = 0.5         # seconds between pictures of a window, about, or more
CLOSE = (13, 5)        # pixels across and down, within which edges belong together
LEAST_EDGES = 40       # pixels of edges that an overlay has
LEAST_FILL = 0.12      # of its box that they have
AROUND = 8             # pixels beside a box where the picture must move
MOVES_AROUND = 0.2     # of these pixels, on each side
MOVES = 0.05           # of the picture, without which nothing can be told
LARGE = 0.25           # of the picture: what is larger is the scene
SAME_BOX = 0.5         # of what two boxes cover, that they have in common if they are one
STAYS = 0.7            # of its edges that an overlay still has where it is there

Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels
Found = tuple[tuple[float, float, float, float], float]  # a box in shares of width and height; the share of the clip in which it is there


def overlays(grey: Callable[[int], np.ndarray], times: np.ndarray) -> list[Found] | None:
    """The overlays of a clip; None where too little moves to tell.

    `grey(k)`: picture k, uint8 [height, width], for which `times` has its seconds. They are looked for in the clip as a whole, and in
    windows of a second, in two of which they must be found.
    """
    chosen = spaced(times, SPACED_S)
    if len(chosen) < WINDOW:
        return None
    starts = _starts(len(chosen))
    made = {k: grey(chosen[k]) for k in np.unique(starts[:, None] + np.arange(WINDOW)).tolist()}
    spread = Still([made[k] for k in list(made)[::max(1, len(made) // MOST_WINDOWS)]])
    if not spread.tells:
        return None
    always = spread.boxes()
    windows: list[Still] = []
    passing: list[tuple[Box, list[np.ndarray]]] = []  # a box, and its edges in the windows in which it is found
    for start in starts.tolist():
        if not passing and start == starts[-1]:
            break  # nothing can be found in a second one
        windows.append(window := Still([made[k] for k in range(start, start + WINDOW)]))
        for box in window.boxes() if window.tells else ():
            group = next((one for one in passing if _alike(one[0], box) >= SAME_BOX), None)
            if group is None:
                passing.append(group := (box, []))
            group[1].append(window.within(group[0]))
    shares = dict.fromkeys(always, 1.0)
    for box, masks in passing:
        if len(masks) > 1 and not any(_alike(box, other) > 0 for other in shares):
            edges = np.mean(masks, axis=0) > 0.5
            there = [np.count_nonzero(window.within(box) & edges) >= STAYS * np.count_nonzero(edges) for window in windows]
            shares[box] = float(np.mean(there))
    height, width = spread.still.shape
    return [((box[0] / width, box[1] / height, box[2] / width, box[3] / height), share) for box, share in shares.items()]


def _starts(count: int) -> np.ndarray:
    """The first pictures of windows: all, or neighbours in pairs, so that what stands for two seconds is in two of them."""
    last = count - WINDOW
    if last < MOST_WINDOWS:
        return np.arange(last + 1)
    first = np.linspace(0, last - 1, MOST_WINDOWS // 2).round().astype(int)
    return np.unique(np.concatenate([first, first + 1]))


class Still:
    """What stands still in some pictures. `tells`: enough else moves."""

    def __init__(self, pictures: list[np.ndarray]) -> None:
        self.pictures = pictures
        self.still = cv2.subtract(reduce(cv2.max, pictures), reduce(cv2.min, pictures)) <= STILL
        self.pixels = np.count_nonzero(self.still)
        self.tells = self.still.size - self.pixels >= MOVES * self.still.size

    @cached_property
    def edges(self) -> np.ndarray:
        """Sharp edges that stand still, bool."""
        total = self.pictures[0].astype(np.float32)
        for picture in self.pictures[1:]:
            cv2.accumulate(picture, total)
        across, down = cv2.Sobel(total, cv2.CV_32F, 1, 0), cv2.Sobel(total, cv2.CV_32F, 0, 1)  # 4 for a level a pixel, of each picture
        return (cv2.magnitude(across, down, across) > 4 * len(self.pictures) * EDGE) & self.still

    def within(self, box: Box) -> np.ndarray:
        """The edges in a box, bool."""
        return self.edges[box[1]:box[3], box[0]:box[2]]

    def boxes(self) -> list[Box]:
        """Boxes around sharp edges that do not move, beside which the picture does."""
        if self.pixels < LEAST_EDGES:
            return []
        places = np.flatnonzero(self.edges)
        if len(places) < LEAST_EDGES:
            return []
        joined = cv2.morphologyEx(self.edges.view(np.uint8), cv2.MORPH_CLOSE, np.ones(CLOSE[::-1], np.uint8))
        # 16 bits are enough: 384 x 384 pixels have 36,864 parts at most.
        _, labels = cv2.connectedComponents(joined, connectivity=8, ltype=cv2.CV_16U)
        part = labels.ravel()[places]
        held = np.bincount(part)
        boxes = []
        for label in np.flatnonzero(held >= LEAST_EDGES):
            down, across = np.divmod(places[part == label], self.edges.shape[1])
            left, top, width, height = cv2.boundingRect(np.stack([across, down], axis=1).astype(np.int32))
            box = left, top, left + width, top + height
            if LEAST_FILL * width * height <= held[label] and width * height <= LARGE * self.edges.size and _framed(box, self.still):
                boxes.append(box)
        return boxes


def _framed(box: Box, still: np.ndarray) -> bool:
    """Whether the picture moves on all sides of a box that lie in it."""
    left, top, right, bottom = box
    sides = (still[max(0, top - AROUND):top, left:right], still[bottom:bottom + AROUND, left:right],
             still[top:bottom, max(0, left - AROUND):left], still[top:bottom, right:right + AROUND])
    shares = [one.mean() for one in sides if min(one.shape) >= AROUND // 2]
    return len(shares) >= 2 and max(shares) <= 1 - MOVES_AROUND


def _alike(a: Box, b: Box) -> float:
    """What two boxes have in common, as a share of what they cover together."""
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(0, across) * max(0, down)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)
