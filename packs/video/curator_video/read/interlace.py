"""Films whose pictures are two fields woven together: whether they are, and pictures made of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import av
import cv2
import numpy as np

from curator_video.read.pixels import planes_of

STEP = 100          # squared levels by which a line must differ from those above and below
FEW = 0.002         # of the pixels: far from what makes a film woven
COLUMNS = 160       # in the middle of a picture, that are looked at
HIGHEST = 4         # of so many pictures one is taken, that with the most: only where it moves a woven film is combed


class Combing:
    """Looks at a picture now and then, and tells how many of its pixels are combed."""

    def __init__(self, every_s: float = 1.0) -> None:
        self._every, self._due = every_s, -1.0
        self._found: list[float] = []

    def add(self, time: float, frame: Any) -> None:
        if time >= self._due:
            self._due = time + self._every
            share = combed(frame)
            if share is not None:
                self._found.append(share)

    @property
    def ratio(self) -> float | None:
        return most_combed(self._found)


def most_combed(found: list[float]) -> float | None:
    """The mean of the quarter of the pictures that have the most; None where none could be looked at."""
    most = sorted(found, reverse=True)[:-(-len(found) // HIGHEST)]
    return sum(most) / len(most) if most else None


def combed(frame: Any) -> float | None:
    """The share of the pixels of a decoded frame whose line differs from both neighbours, while these and the lines after next agree;
    less, if they are not few, the share for which this is so of columns: grain and fine patterns have as many of them."""
    planes = planes_of(frame, 1)
    if not planes or min(planes[0].shape) < 5:
        return None
    plane = planes[0]
    left = max(0, (plane.shape[1] - COLUMNS) // 2)
    lines = plane[:, left:left + COLUMNS]
    if plane.dtype != np.uint8:
        lines = lines >> max(0, frame.format.components[0].bits - 8)
    lines = lines.astype(np.int16)
    across = _striped(lines)
    return max(0.0, across - _striped(np.ascontiguousarray(lines.T))) if across > FEW else across


def _striped(lines: np.ndarray) -> float:
    """Of int16, and in the order in which they are looked at: a tenth of the time. Few differ from both neighbours, and only these are
    asked the rest."""
    here, width = lines[2:-2], lines.shape[1]
    found = np.flatnonzero(cv2.multiply(cv2.subtract(here, lines[1:-3]), cv2.subtract(here, lines[3:-1])) > STEP)  # it saturates
    pixels = lines.ravel()
    top, above, level, below, bottom = (pixels[found + rows * width] for rows in range(5))
    half = np.abs(2 * level - above - below) >> 1
    return np.count_nonzero((np.abs(above - below) < half) & (np.abs(level - top) < half) & (np.abs(level - bottom) < half)) / here.size


def deinterlaced(pictures: Iterable[tuple[float, Any]]) -> Iterator[tuple[float, Any]]:
    """One whole picture of each woven one, at its time: the first field, and between its lines what FFmpeg's bwdif makes of
    these and of the pictures before and after."""
    graph: Any = None
    shape = None
    waiting: deque[tuple[float, Any, Any, int]] = deque()
    for time, frame in pictures:
        if (frame.width, frame.height, frame.format.name) != shape:
            yield from _out(graph, waiting, last=True)
            graph = _graph(frame, "bwdif", "mode=send_frame:parity=auto:deint=all")
            shape = (frame.width, frame.height, frame.format.name)
        waiting.append((time, frame.pts, frame.time_base, frame.duration))
        graph.push(frame)
        yield from _out(graph, waiting)
    yield from _out(graph, waiting, last=True)


def unmarked(pictures: Iterable[tuple[float, Any]]) -> Iterator[tuple[float, Any]]:
    """The same pictures, none marked as interlaced: of one that is, libswscale scales one field after the other, which fits only
    what is woven. Whether it is, `Combing` finds."""
    graph: Any = None
    shape = None
    for time, frame in pictures:
        if frame.interlaced_frame:
            if (frame.width, frame.height, frame.format.name) != shape:
                graph, shape = _graph(frame, "setfield", "mode=prog"), (frame.width, frame.height, frame.format.name)
            graph.push(frame)
            colours = frame.colorspace, frame.color_range  # of RGB a graph names its own
            frame = graph.pull()
            frame.colorspace, frame.color_range = colours
        yield time, frame


def _graph(frame: Any, name: str, options: str) -> Any:
    graph = av.filter.Graph()
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base)
    filter_, sink = graph.add(name, options), graph.add("buffersink")
    source.link_to(filter_)
    filter_.link_to(sink)
    graph.configure()
    return graph


def _out(graph: Any, waiting: deque[tuple[float, Any, Any, int]], last: bool = False) -> Iterator[tuple[float, Any]]:
    if graph is None:
        return
    if last:
        graph.push(None)
    while waiting:
        try:
            frame = graph.pull()
        except (BlockingIOError, EOFError):
            return
        time, frame.pts, frame.time_base, duration = waiting.popleft()
        frame.duration = duration
        yield time, frame
