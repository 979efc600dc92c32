"""Borders of one colour: letterbox, pillarbox, frames."""

from __future__ import annotations

import numpy as np

from curator_image.views import Views

BORDER_TOLERANCE = 8  # levels of 255 by which a border's pixels may differ from its mean: lossy coding rings
MARK_SHARE = 0.1  # of a border's line that may differ all the same: a credit or a subtitle stands on it
EDGE_SHARE = 0.5  # of the pixels behind a border that must differ from it: a border ends in a straight line
EDGE_LINES = 2  # within which they must: scaling mixes the first with the border


def border_ratio(views: Views) -> dict[str, float]:
    """Share of the picture's area that lies in borders."""
    top, bottom, left, right = find_borders(views.grey)
    height, width = views.grey.shape
    return {"border_ratio": 1 - (bottom - top) * (right - left) / (height * width)}


def find_borders(grey: np.ndarray) -> tuple[int, int, int, int]:
    """The first and the end row, the first and the end column within the borders; 0, 0, 0, 0 where all is one shade."""
    if _depth(grey) == len(grey):
        return 0, 0, 0, 0
    top, left = 0, 0
    bottom, right = grey.shape
    for _ in range(3):  # a mount in a frame; and rows may show their straight edge only when the columns are gone
        before = (top, bottom, left, right)
        top += _cut(grey[top:bottom, left:right])
        bottom -= _cut(grey[top:bottom, left:right][::-1])
        left += _cut(grey[top:bottom, left:right].T)
        right -= _cut(grey[top:bottom, left:right].T[::-1])
        if before == (top, bottom, left, right):
            break
    return top, bottom, left, right


def _cut(lines: np.ndarray) -> int:
    """How many lines to take off; none of what has one shade throughout, which is a picture in its border."""
    depth = _depth(lines)
    return depth if depth < len(lines) else 0


def _depth(lines: np.ndarray) -> int:
    """How many lines from the first one on are a border; all of them if all have one shade."""
    shade = _shade(lines[0])
    for depth, line in enumerate(lines):
        if _differs(line, shade) > MARK_SHARE:
            if depth == 0:
                return 0
            last = _shade(lines[depth - 1])  # a gradient leaves the first shade, but not that of the line before
            steps = [_differs(behind, last) for behind in lines[depth:depth + EDGE_LINES]]
            return depth if max(steps) >= EDGE_SHARE else 0
    return len(lines)


def _shade(line: np.ndarray) -> int:
    middle = len(line) // 2
    return int(np.partition(line, middle)[middle])


def _differs(line: np.ndarray, shade: int) -> float:
    """Share of a line's pixels that do not have the shade."""
    low, high = max(0, shade - BORDER_TOLERANCE), min(255, shade + BORDER_TOLERANCE)
    return np.count_nonzero((line < low) | (line > high)) / len(line)
