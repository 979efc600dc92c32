"""What is held of a film while it streams: of the shots that have not ended thumbnails, and the pictures that clips may want."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_video.read.decode import Taken
from curator_video.read.sampling import EPSILON_S, Choice, Seen, chosen

HOLD_BYTES = 64 << 20  # of decoded pictures that wait until it is known which clip they are in
# Above it go those that no likely clip wants: what a decoder fills anew each time is to stay in a processor's cache. Of films of 360 rows
# that takes an eighth less time than holding all; only clips behind fades and dissolves, whose starts come late, are decoded again.
KEEP_BYTES = 4 << 20
MOST_THUMBS = 60_000  # 140 MB: ten minutes at 100 pictures a second


@dataclass
class Grid:
    """Which pictures a clip wants that begins at `start`: at start + k / `rate` the one that is shown; perhaps a few more."""

    start: float
    rate: float
    k: int = 0

    def wants(self, time: float, following: float) -> bool:
        """Whether it wants the picture at `time`, which the one at `following` follows."""
        if time < self.start - EPSILON_S or following <= self.start + self.k / self.rate + EPSILON_S:
            return False
        self.k = max(self.k + 1, math.floor((following - self.start) * self.rate))
        return True


class Held:
    """Takes the pictures of a film one by one. `array` makes an array of a decoded picture; a decoded one has `frame_bytes`."""

    def __init__(self, array: Callable[[Any], np.ndarray], frame_bytes: int, choice: Choice) -> None:
        self._array, self._bytes, self._choice = array, frame_bytes, choice
        self._times: list[float] = []
        self._thumbs: list[np.ndarray] = []
        self._marks: list[tuple[int, int]] = []  # packets that were damaged, pictures that went back, until then
        self._combs: list[tuple[float, float]] = []
        self._raw: dict[float, Any] = {}     # decoded pictures by their time
        self._made: dict[float, np.ndarray] = {}
        self._grids: list[Grid] = []
        self._wanted: set[float] = set()
        self._looked = -math.inf  # up to here it is known which pictures the grids want
        self._own: Grid | None = None  # of the clip in progress
        self._settled = -math.inf  # up to here it is known that no other begins
        self._gone, self._mark = -math.inf, (0, 0)  # of the last picture that was let go of

    def add(self, time: float, frame: Any, thumb: np.ndarray, mark: tuple[int, int], comb: float | None) -> None:
        """The next picture. `comb`: of what share of its pixels it is combed, if it was asked."""
        self._times.append(time)
        self._thumbs.append(thumb)
        self._marks.append(mark)
        if comb is not None:
            self._combs.append((time, comb))
        if self._choice.pick != "none":
            self._raw[time] = frame

    def expect(self, starts: Iterable[float], measured: float) -> None:
        """Clips may begin at `starts`. What none of those that may begin wants, up to `measured`, can go if it takes too much memory."""
        new = [start for start in starts if all(abs(start - grid.start) > EPSILON_S for grid in self._grids)]
        self._go_through(self._grids, self._looked, measured)
        made = [Grid(start, self._choice.fps) for start in new]
        self._go_through(made, -math.inf, measured)
        self._grids += made
        self._looked = max(self._looked, measured)
        if len(self._raw) * self._bytes > KEEP_BYTES:
            for time in [time for time in self._raw if time < self._looked and time not in self._wanted]:
                del self._raw[time]
        for time in list(self._raw):
            if len(self._raw) * self._bytes <= HOLD_BYTES or time >= self._looked:
                break
            self._made[time] = self._array(self._raw.pop(time))

    def _go_through(self, grids: list[Grid], after: float, until: float) -> None:
        """The grids look at the pictures from `after` until `until`, each with the one that follows it."""
        first = max(0, bisect_left(self._times, after))
        for at in range(first, len(self._times) - 1):
            if self._times[at + 1] > until:
                break
            for grid in grids:
                if grid.wants(self._times[at], self._times[at + 1]):
                    self._wanted.add(self._times[at])

    def forget(self, before: float, start: float | None, settled: float) -> None:
        """Let go of what is before `before`, where the shot in progress begins, whose clip begins at `start`; None: of it nothing is
        to be kept. Up to `settled` no other shot begins."""
        self._grids = [grid for grid in self._grids if grid.start >= settled - EPSILON_S or grid.start == start]
        if start is None:
            before, self._own = settled, None
        elif self._own is None or self._own.start != start:
            self._own, self._settled = Grid(start, self._choice.fps), -math.inf
        gone = max(bisect_left(self._times, before - EPSILON_S), len(self._times) - MOST_THUMBS)
        if gone > 0:
            self._gone, self._mark = self._times[gone - 1], self._marks[gone - 1]
            del self._times[:gone], self._thumbs[:gone], self._marks[:gone]
            self._combs = [one for one in self._combs if one[0] > self._gone]
            self._wanted = {time for time in self._wanted if time > self._gone}
            for kept in (self._raw, self._made):
                for time in [time for time in kept if time <= self._gone]:
                    del kept[time]
        if self._own is not None:
            self._settle(self._own, settled)

    def _settle(self, own: Grid, settled: float) -> None:
        """Pictures up to `settled` are those of the clip in progress: what it wants is made an array, others are let go of."""
        for at in range(bisect_left(self._times, self._settled), len(self._times) - 1):
            time, following = self._times[at], self._times[at + 1]
            if following > settled:
                break
            self._settled = following
            frame = self._raw.pop(time, None)
            if own.wants(time, following) and frame is not None:
                self._made[time] = self._array(frame)

    def take(self, start: float, end: float) -> Taken | None:
        """The pictures with start <= time < end; None where some are not held any more."""
        first, stop = (bisect_left(self._times, at - EPSILON_S) for at in (start, end))
        if first == stop or self._gone >= start - EPSILON_S:
            return None
        times = self._times[first:stop]
        asked = [time for time, _ in chosen(((time, None) for time in times), self._choice, start, end, Seen())]
        for time in asked:
            if time not in self._made and time not in self._raw:
                return None
            if time not in self._made:
                self._made[time] = self._array(self._raw[time])
        mark = self._marks[first - 1] if first else self._mark
        return Taken(times, self._thumbs[first:stop], asked, [self._made[time] for time in asked],
                     self._marks[stop - 1][0] - mark[0], self._marks[stop - 1][1] - mark[1])

    def combs(self, start: float, end: float) -> list[float]:
        """Of the pictures from `start` to `end` that were asked, of what share of its pixels each is combed."""
        return [comb for time, comb in self._combs if start - EPSILON_S <= time < end - EPSILON_S]
