"""Where shots change, found in one pass over thumbnails, with a window of seconds in memory.

Ours: detectors that can be installed miss fades and dissolves, take flashes for cuts, or want a network of 7 million
weights. What each rule compares is `distance`, which neither brightness, contrast nor a moving camera changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from curator_video.shots.boundaries import Boundary
from curator_video.shots.mixing import MIXED, dissolve
from curator_video.shots.pictures import Bars, Picture, difference, distance

RULES = 0.4  # the score at which each rule holds exactly
BLANK = 2.0  # deviation of luma of a picture that shows nothing
_SEEN = 6.0  # and of one whose content can be told from noise
BLOCK_S = 0.64  # pictures looked at together are those between two multiples of it, wherever one begins to look
_BLOCK = 256  # and no more
_MOST = 600  # pictures of the window, whatever their rate
_AROUND = 8  # pictures on each side that say what is usual
_SAME = 0.25  # distance of pictures that show the same
_NEARLY = 0.2  # of the deviation around: the turning point of a fade that does not become blank
_ELEVEN = np.ones((1, 11), np.uint8)  # pictures: one in the middle of a dissolve varies least of those around it
_FLASH = 20.0  # levels of mean luma
_PASS_S, _MOVES = 0.5, 0.05  # what passes before the camera within so long, while each picture is so far from the last
_ALONE = 3.0  # of the usual step between: what comes by more was cut to. 2.5 and 4 say the same of 60 things drawn that pass, and 48 cuts
_CUT, _OVER, _ABOVE = 0.4, 3.0, 0.1  # a cut: distance > _CUT and > _OVER x usual + _ABOVE
_LEVELS, _TIMES, _LEAST = 12.0, 4.0, 0.15  # or: levels > _LEVELS and > _TIMES x usual, and distance > _LEAST


@dataclass
class Found:
    """`start`, `end`: of what was looked at; `boundaries`: in order; `flashes`: how many; `blank_s`: seconds without a picture,
    both of what is counted, which is `counted_s` long."""

    start: float | None = None
    end: float | None = None
    boundaries: list[Boundary] = field(default_factory=list)
    flashes: int = 0
    blank_s: float = 0.0
    counted_s: float = 0.0


@dataclass
class _Run:
    """A run of blank pictures whose end is not known yet."""

    start: float  # the first blank picture
    grown: float  # where the fade to it begins
    hard: bool
    before: Picture | None  # the last picture that is not part of it


class Detector:
    """Takes the pictures of a film one by one; `finish` says what was found.

    `flash_s`: what comes and goes within so many seconds is no shot. `window_s`: how long half a dissolve or a fade may be.
    `floor`: boundaries with a lower score are not told. `counted`: flashes and blank pictures count from the one time to the other.
    """

    def __init__(self, *, flash_s: float = 0.16, window_s: float = 1.2, floor: float = 0.2,
                 counted: tuple[float, float] = (-np.inf, np.inf)) -> None:
        self._flash_s, self._window_s, self._floor, self._counted = flash_s, window_s, floor, counted
        self.found = Found()
        self.likely: list[float] = []  # of the pictures looked at last, those with which a shot may begin
        self._bars = Bars()
        self._new: list[tuple[float, np.ndarray, np.ndarray | None]] = []
        self._hold(np.zeros((5, 0)))
        self._thumbs: list[np.ndarray] = []
        self._latest: tuple[float, np.ndarray, np.ndarray | None] | None = None  # of those that were measured
        self._next = 0  # the first picture of the window that nothing was said of
        self._run: _Run | None = None
        self._quiet = -np.inf  # a flash lasts until then

    def add(self, time: float, thumb: np.ndarray, chroma: np.ndarray | None = None) -> None:
        """The next picture: its time in seconds, luma uint8 [36, 64], and U and V [2, 18, 32], of all pictures or of none."""
        if self._new and (time // BLOCK_S != self._new[0][0] // BLOCK_S or len(self._new) == _BLOCK):
            self._measure()
            self._judge()
        self._new.append((time, thumb, chroma))

    @property
    def measured(self) -> float:
        """The time of the last picture that was looked at; those behind it wait for the next block."""
        return float(self._time[-1]) if len(self._time) else -np.inf

    @property
    def settled(self) -> float:
        """A time: all boundaries that begin before it are known."""
        if not self._next:
            return -np.inf
        known = float(self._time[self._next - 1]) - self._window_s
        return known if self._run is None else min(known, self._run.grown)

    def finish(self, end: float | None = None) -> Found:
        """`end`: when the last picture goes; without it, after as long as the one before stood."""
        if self._new:
            self._measure()
        if not self._thumbs:
            return self.found
        steps = np.diff(self._time)
        self.found.end = end if end is not None else float(self._time[-1] + (steps[-1] if len(steps) else 0.04))
        self._judge(self.found.end)
        self.found.boundaries.sort(key=lambda one: (one.start, one.end))
        return self.found

    # -- numbers of each picture ------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Take the new pictures into the window."""
        new, self._new, first = self._new, [], self._latest is None
        start, before, colour = self._latest or new[0]
        if first:
            self.found.start = start
        self._latest = new[-1]
        thumbs = [thumb for _, thumb, _ in new]
        self._thumbs += thumbs
        self._bars.add(np.concatenate(thumbs).reshape(-1, *before.shape), int(new[0][0] // BLOCK_S))
        inside = self._bars.inside()
        last, numbers = Picture(before[inside]), []
        for time, thumb, chroma in new:
            picture = Picture(thumb[inside])
            levels = difference(last.pixels, picture.pixels)
            if chroma is not None and colour is not None:
                levels = 0.5 * (levels + 2 * difference(colour, chroma))  # of U and of V
            numbers.append((time, picture.std, picture.mean, distance(last, picture), levels))
            last, colour = picture, chroma
        self.likely = [time for time, _, _, far, levels in numbers if far > _CUT or (levels > _LEVELS and far > _LEAST)]
        table = np.array(numbers).T
        if first:
            table[3:, 0] = np.nan  # it is compared to nothing
        self._hold(np.concatenate([self._numbers, table], axis=1))

    def _hold(self, numbers: np.ndarray) -> None:
        """Five of each picture of the window."""
        self._numbers = numbers
        self._time, self._std, self._mean, self._far, self._levels = numbers

    def _picture(self, at: int) -> Picture:
        return Picture(self._thumbs[at][self._bars.inside()])

    def _between(self, one: int, two: int) -> float:
        return distance(self._picture(one), self._picture(two))

    # -- rules ------------------------------------------------------------------------------------------------------

    def _judge(self, end: float | None = None) -> None:
        """Say what there is about pictures whose surroundings are known; then forget those that nothing needs. `end`: of the film, if no
        more come."""
        count, reach = len(self._time), max(self._window_s, self._flash_s, _PASS_S)
        stop = count
        if end is None:
            stop = min(int(np.searchsorted(self._time, self._time[-1] - reach)), count - _AROUND - 1)
            stop = max(stop, count - _MOST, self._next)
            if stop == self._next:
                return
        blank = self._std < BLANK
        times, following = self._time[self._next:stop], self._time[self._next + 1:stop + 1]
        if end is not None:
            following = np.append(following, end)
        counted = (following - times) * ((times >= self._counted[0]) & (times < self._counted[1]))
        self.found.blank_s += float(counted @ blank[self._next:stop])
        self.found.counted_s += float(counted.sum())
        for at in self._striking(blank, stop):
            if blank[at]:
                if self._run is None:
                    self._run = self._run_from(at)
            elif self._run is not None:
                self._run_until(at, self._run)
                self._run = None
            elif at and not blank[at - 1]:
                self._cut_or_flash(at)
        self._dissolves(self._next, stop, blank)
        if end is not None and self._run is not None:
            self.found.boundaries.append(Boundary(self._run.grown, end, "blank" if self._run.hard else "fade", 1.0))
        self._next = stop
        kept = min(int(np.searchsorted(self._time, self._time[stop - 1] - reach)) if stop else 0, stop - _AROUND - 2)
        self._forget(max(kept, stop - _MOST, 0))

    def _striking(self, blank: np.ndarray, stop: int) -> list[int]:
        """The pictures of which something may have to be said: blank ones, those behind them, and those that differ from the last."""
        start, ease = max(self._next, 1), self._floor / RULES
        here, before = slice(start, stop), slice(start - 1, stop - 1)
        far, levels = self._far[here], self._levels[here]
        cut = (far > _CUT * ease) | ((levels > _LEVELS * ease) & (far > _LEAST * ease))
        flash = np.abs(self._mean[here] - self._mean[before]) > _FLASH
        return [*range(self._next, start), *(np.flatnonzero(blank[here] | blank[before] | cut | flash) + start).tolist()]

    def _forget(self, count: int) -> None:
        del self._thumbs[:count]
        self._hold(self._numbers[:, count:])
        self._next -= count

    def _usual(self, values: np.ndarray, at: int) -> float:
        around = values[max(0, at - _AROUND):at + 1 + _AROUND].tolist()
        del around[min(at, _AROUND)]
        known = sorted(one for one in around if one == one)  # the first picture has none: NaN
        return (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else 0.0

    def _cut_or_flash(self, at: int) -> None:
        time = float(self._time[at])
        if time <= self._quiet:
            return
        far, levels = float(self._far[at]), float(self._levels[at])
        ease = self._floor / RULES
        if far > _CUT * ease or (levels > _LEVELS * ease and far > _LEAST * ease):
            score = RULES * min(levels / _LEVELS, levels / max(_TIMES * self._usual(self._levels, at), 1e-9), far / _LEAST)
            if far > score:
                score = max(score, min(far, RULES * far / (_OVER * self._usual(self._far, at) + _ABOVE)))
            score = min(score, 1.0)
            if score > self._floor:
                if not (self._flashes(at, score) or self._passes(at)):
                    self.found.boundaries.append(Boundary(time, time, "cut", score))
                return
        jump = float(self._mean[at] - self._mean[at - 1])
        if abs(jump) > _FLASH:
            self._flashes(at, 0.0, jump)

    def _flashes(self, at: int, score: float, jump: float = 0.0) -> bool:
        """Whether what comes here goes again at once."""
        stop = int(np.searchsorted(self._time, self._time[at] + self._flash_s, side="right"))
        before = self._picture(at - 1)
        for back in range(at + 1, stop):
            if jump and abs(self._mean[back] - self._mean[at - 1]) > 0.35 * abs(jump):
                continue
            if distance(before, self._picture(back)) < _SAME:
                self._quiet = float(self._time[back])
                self._flash(at, score > RULES or bool(jump))
                return True
        return False

    def _passes(self, at: int) -> bool:
        """Whether something passes before the camera: for a while no picture is as the last, and then all is as it was before.

        What comes and goes by greater steps than are between, or than are usual there, is a shot, or several.
        """
        calm = np.flatnonzero(self._far <= _MOVES)
        behind = int(np.searchsorted(calm, at))
        if not 0 < behind < len(calm):
            return False
        before, after = int(calm[behind - 1]), int(calm[behind]) - 1
        steps = self._far[before + 1:after + 1]
        if len(steps) < 3 or self._time[after] - self._time[before] > _PASS_S:
            return False
        if min(steps[0], steps[-1]) > min(steps[1:-1].max(), _ALONE * np.median(steps[1:-1])):
            return False
        if self._between(before, after) >= _SAME:
            return False
        self._quiet = float(self._time[after])
        return True

    def _flash(self, at: int, certain: bool) -> None:
        self.found.flashes += certain and self._counted[0] <= self._time[at] < self._counted[1]

    # -- blank pictures and the fades around them -------------------------------------------------------------------

    def _run_from(self, at: int) -> _Run:
        start = float(self._time[at])
        if not at:
            return _Run(start, start, True, None)
        low = self._shoulder(at, -1)
        std = self._std[low:at]
        hard = bool(std[-1] > _SEEN and std[-1] > 0.6 * std[-4:].max())
        edge = at - 1 - (0 if hard else _risen(std[::-1]))
        return _Run(start, float(self._time[edge + 1]), hard, self._picture(edge))

    def _run_until(self, at: int, run: _Run) -> None:
        """The run ends before the picture `at`."""
        std = self._std[at:self._shoulder(at, 1) + 1]
        hard = bool(std[0] > _SEEN and std[0] > 0.6 * std[:4].max())
        edge = at + (0 if hard else _risen(std))
        end = float(self._time[edge])
        if hard and run.hard and run.before is not None and self._time[at] - run.start <= self._flash_s + 1e-6:
            after = self._picture(at)
            far = distance(run.before, after) if run.before.pixels.shape == after.pixels.shape else 1.0
            if far < _SAME:
                self._flash(at, True)
            else:
                self.found.boundaries.append(Boundary(run.grown, end, "cut", min(far, 1.0)))
            return
        self.found.boundaries.append(Boundary(run.grown, end, "blank" if hard and run.hard else "fade", 1.0))

    def _shoulder(self, at: int, step: int) -> int:
        """The picture furthest from a blank run that may still be part of a fade: none behind a cut, or another run."""
        edge = at - 1 if step < 0 else at
        while 0 <= edge + step < len(self._time) and abs(self._time[edge + step] - self._time[at]) <= self._window_s:
            behind = edge if step < 0 else edge + 1
            if self._std[edge + step] < BLANK or (self._far[behind] > _CUT and min(self._std[edge], self._std[edge + step]) > _SEEN):
                break
            edge += step
        return edge

    # -- dissolves --------------------------------------------------------------------------------------------------

    def _dissolves(self, start: int, stop: int, blank: np.ndarray) -> None:
        import cv2

        variance = self._std**2
        first, last = max(start, 1), min(stop, len(variance) - 1)
        lowest = cv2.erode(variance[None], _ELEVEN)[0]
        for at in (np.flatnonzero((variance[first:last] <= lowest[first:last]) & ~blank[first:last]) + first).tolist():
            low = int(np.searchsorted(self._time, self._time[at] - self._window_s))
            high = int(np.searchsorted(self._time, self._time[at] + self._window_s, side="right"))
            if variance[at] > MIXED * variance[low:high].max():  # neither of the rules below can hold, whatever lies between
                continue
            seen = np.minimum(self._std[low:high - 1], self._std[low + 1:high]) > _SEEN
            walls = np.flatnonzero((self._far[low + 1:high] > _CUT) & seen | blank[low + 1:high]) + low + 1
            low = max([low, *walls[walls <= at].tolist()])
            high = min([high, *walls[walls > at].tolist()])
            if low >= at or high <= at + 1:
                continue
            left, right = variance[low:at], variance[at + 1:high]
            if self._std[at] < _NEARLY * min(self._std[low:at].max(), self._std[at + 1:high].max()):
                self._nearly(at, low, high)
                continue
            if variance[at] > MIXED * 0.5 * (left.max() + right.max()):
                continue
            one = low + int(np.flatnonzero(left >= 0.9 * left.max())[-1])
            two = at + 1 + int(np.flatnonzero(right >= 0.9 * right.max())[0])
            made = dissolve([self._picture(k) for k in range(one, two + 1)], self._time[one:two + 1], at - one,
                            ratio=float(variance[at] / (0.5 * (variance[one] + variance[two]))), floor=self._floor / RULES)
            if made is not None and made[2] * RULES > self._floor:
                self.found.boundaries.append(Boundary(made[0], made[1], "dissolve", min(made[2] * RULES, 1.0)))

    def _nearly(self, at: int, low: int, high: int) -> None:
        """A fade at whose turning point, `at`, something is still to be seen."""
        one, two = at - 1 - _risen(self._std[low:at][::-1]), at + 1 + _risen(self._std[at + 1:high])
        far = self._between(one, two)
        if far >= _SAME and min(at - one, two - at) > 2:
            self.found.boundaries.append(Boundary(float(self._time[one + 1]), float(self._time[two]), "fade", min(far, 1.0)))


def _risen(std: np.ndarray) -> int:
    """How many pictures a fade takes, by their deviations: until they are near the greatest, or rise no more as they did."""
    top = std.max()
    full = int(np.flatnonzero(std >= 0.95 * top)[0])
    rising = np.diff(std[:full + 1])
    usual = np.median(rising[(std[1:full + 1] < 0.85 * top)]) if full > 2 and (std[1:full + 1] < 0.85 * top).any() else 0.0
    slow = np.flatnonzero((rising < 0.35 * usual) & (std[:full] > 0.7 * top))
    return int(slow[0]) if len(slow) else full
