"""Borders of one colour: letterbox, pillarbox, frames."""

from __future__ import annotations

import numpy as np

from curator_image.views import Views

# levels of 255 by which a border may differ from its shade: JPEG at quality 40 rings by more than 8
BORDER_TOLERANCE = 12
MARK_SHARE = 0.1  # of a border's line that may differ all the same: a credit or a subtitle stands on it
# of the pixels behind a border that must differ from it: a border ends in a straight line, things seldom do
EDGE_SHARE = 0.7
# levels within which the outermost line is: a border is drawn, a wall behind a thing has shadows
FLAT_STEP = 3
EDGE_STEP = 4  # levels by which they must
EDGE_LINES = 3  # within which they must: scaling and ringing blur the edge


def border_ratio(views: Views) -> dict[str, float]:
    """Share of the picture's area that lies in borders."""
    top, bottom, left, right = find_borders(views.grey)
    height, width = views.grey.shape
    return {"border_ratio": 1 - (bottom - top) * (right - left) / (height * width)}


def find_borders(grey: np.ndarray) -> tuple[int, int, int, int]:
    """The first and the end row, the first and the end column within the borders; 0, 0, 0, 0 where all is one
    shade."""
    if _depth(grey) == len(grey):
        return 0, 0, 0, 0
    top, left = 0, 0
    bottom, right = grey.shape
    for _ in range(3):  # a mount in a frame
        depths = _frame(grey[top:bottom, left:right])
        if not any(depths):
            break
        top, bottom, left, right = top + depths[0], bottom - depths[1], left + depths[2], right - depths[3]
    return top, bottom, left, right


def _frame(picture: np.ndarray) -> list[int]:
    """How many lines to take off at the top, the bottom, the left and the right."""
    sides = [picture, picture[::-1], picture.T, picture.T[::-1]]  # lines from each side inwards
    depths = [_depth(lines) for lines in sides]
    if depths[0] + depths[1] >= len(picture) or depths[2] + depths[3] >= len(picture.T):
        return [0, 0, 0, 0]  # one shade or two, and no picture between them
    while True:
        rows, columns = slice(depths[0],
                              len(picture) - depths[1]), slice(depths[2], len(picture.T) - depths[3])
        spans = [columns, columns, rows, rows]
        straight = [_edge(lines, depth, span) >= EDGE_SHARE
                    for lines, depth, span in zip(sides, depths, spans, strict=True)]
        if all(straight):
            return depths
        depths = [depth if good else 0 for depth, good in zip(depths, straight, strict=True)]


def _depth(lines: np.ndarray) -> int:
    """How many lines from the first one on have its shade."""
    shade = _shade(lines[0])
    if _differs(lines[0], shade, FLAT_STEP) > MARK_SHARE:
        return 0
    return next((depth for depth, line in enumerate(lines)
                 if _differs(line, shade, BORDER_TOLERANCE) > MARK_SHARE), len(lines))


def _edge(lines: np.ndarray, depth: int, span: slice) -> float:
    """How much of the span differs behind these lines from the last of them: in a gradient, little does."""
    if depth == 0:
        return 1.0
    last = _shade(lines[depth - 1])
    return max(_differs(line[span], last, EDGE_STEP) for line in lines[depth:depth + EDGE_LINES])


def _shade(line: np.ndarray) -> int:
    middle = len(line) // 2
    return int(np.partition(line, middle)[middle])


def _differs(line: np.ndarray, shade: int, tolerance: int) -> float:
    """Share of a line's pixels that are further from a shade."""
    low, high = max(0, shade - tolerance), min(255, shade + tolerance)
    return np.count_nonzero((line < low) | (line > high)) / len(line)
