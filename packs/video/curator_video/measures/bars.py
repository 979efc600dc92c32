"""Black bars that a clip has in all its frames: letterbox, pillarbox."""

from __future__ import annotations

import numpy as np

LINE_SHARE = 0.98  # of all pixels of a line, over all frames, that are black in a bar
EDGE_SHARE = 0.3   # of the pixels behind a bar that are ever brighter: a bar ends in a straight line, a dark scene does not
EDGE_LINES = 3     # within which they must be
EDGE_STEP = 12     # levels over the highest of a bar by which they must be: a scene that fades into the dark has no edge
COVERED = 0.75     # of the pixels of a bar that are black at least where a logo or subtitles lie over it, if the opposite one is clear
LEAST = 0.2        # of a side that is left between bars: less is a dark scene with one light in it


def find_bars(grey: np.ndarray, black: int) -> tuple[int, int, int, int] | None:
    """The first and the end row, the first and the end column between the bars; None if all is black.

    `grey`: uint8 [n, height, width]. `black`: the highest level of a bar.
    """
    below = grey <= black
    if np.count_nonzero(below) >= LINE_SHARE * below.size:
        return None
    top, bottom = 0, below.shape[1]
    left, right = 0, below.shape[2]
    lines = below[:, 0], below[:, -1], below[:, :, 0], below[:, :, -1]
    if all(np.count_nonzero(line) < LINE_SHARE * line.size for line in lines):
        return top, bottom, left, right  # most clips have none
    dark = below.mean(axis=0)  # for each pixel the share of frames
    brightest = grey.max(axis=0)
    for _ in range(2):  # a pillar's corners count as rows only when the rows of the letterbox are gone
        top, bottom = _between(dark[:, left:right], brightest[:, left:right], black)
        left, right = (0, dark.shape[1]) if bottom <= top else _between(dark[top:bottom].T, brightest[top:bottom].T, black)
    return top, bottom, left, right


def _between(dark: np.ndarray, brightest: np.ndarray, black: int) -> tuple[int, int]:
    """The first line of the picture and the one behind its last."""
    lines = np.flatnonzero(dark.mean(axis=1) < LINE_SHARE)
    count = len(dark)
    if not len(lines):
        return 0, count
    first, end = int(lines[0]), int(lines[-1]) + 1
    if end - first < LEAST * count:
        return 0, count
    bright = brightest > black + EDGE_STEP
    depths = first, count - end
    if first and bright[first:first + EDGE_LINES].mean(axis=1).max() < EDGE_SHARE:
        first = 0
    if end < count and bright[end - EDGE_LINES:end].mean(axis=1).max() < EDGE_SHARE:
        end = count
    if first and end == count:
        end = count - _opposite(first, depths[1], dark[::-1], bright[::-1])
    elif end < count and not first:
        first = _opposite(count - end, depths[0], dark, bright)
    return first, end


def _opposite(depth: int, black_lines: int, dark: np.ndarray, bright: np.ndarray) -> int:
    """Lines of the bar opposite to one of `depth` lines, which was not found: there is none, all is dark behind it, or something lies
    over it. From the outside in."""
    if black_lines >= depth - 1:
        return min(depth, black_lines)
    if len(dark) - 2 * depth < LEAST * len(dark):
        return 0
    edge = bright[depth:depth + EDGE_LINES].mean(axis=1).max() >= EDGE_SHARE
    return depth if edge and dark[:depth].mean() >= COVERED else 0
