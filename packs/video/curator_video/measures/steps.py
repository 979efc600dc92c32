"""Measures of what changes from frame to frame."""

from __future__ import annotations

import cv2
import numpy as np

from curator_video.measures.views import Thumbs, rows, sums
from curator_video.shots.pictures import difference

SAME = 0.25            # levels: frames that differ by less show the same
FREEZE_S = 0.5         # a shorter run of the same picture is a repeat
STANDS_OUT = 0.1       # of the change around it that a repeat has at most
AROUND = 5             # steps before and after that are looked at
LEAST_CHANGE = 1.0     # levels that must change there, so that a repeat can be told from a still scene
MOTION_S = 0.5         # seconds of motion without which it has no rate
CUT_DISTANCE = 0.4     # of two frames that do not belong together, 1 - correlation
RETURN_DISTANCE = 0.25
FLASH_S = 0.16         # within which what was before returns, if it is no cut
STANDS_UP = 3.0        # times the usual distance around it, that a cut has
CUT_CHANGE = 4.0       # levels that a cut changes in the mean: titles that come up out of black do not
FLAT = 1.5             # levels of deviation under which there is nothing to correlate
MOST_SHIFT = 0.6       # of a side


def repeats(clip: Thumbs) -> dict[str, float | bool | None]:
    """Freezes, repeated frames, and the rate of those that are new."""
    if len(clip) < 2:
        return dict.fromkeys(("freeze_ratio", "longest_freeze", "duplicate_ratio", "true_fps"))
    frozen, longest = _freezes(clip)
    change = clip.change
    moving = ~frozen[1:]
    around = cv2.dilate(change[None], np.ones((1, 2 * AROUND + 1), np.uint8))[0]
    repeated = moving & (change < SAME) & (change < STANDS_OUT * around) & (around >= LEAST_CHANGE)
    values: dict[str, float | bool | None] = {"freeze_ratio": clip.share(frozen), "longest_freeze": longest,
                                              "duplicate_ratio": None, "true_fps": None}
    seconds = float(np.diff(clip.times)[moving].sum())
    if seconds >= MOTION_S and around[moving].max() >= LEAST_CHANGE:
        values["duplicate_ratio"] = float(repeated[moving].mean())
        values["true_fps"] = float((moving & ~repeated).sum() / seconds)
    return values


def _freezes(clip: Thumbs) -> tuple[np.ndarray, float]:
    """Which frames are in a run that shows the same for half a second, and the seconds of the longest run."""
    frozen, longest = np.zeros(len(clip), bool), 0.0
    ends = np.append(clip.times, clip.times[-1] + clip.shown[-1])
    first = 0
    for k, same in enumerate([*(clip.change < SAME).tolist(), False], 1):
        if same and difference(clip.thumbs[first], clip.thumbs[k]) < SAME:
            continue
        if k - first > 1 and (seconds := float(ends[k] - ends[first])) >= FREEZE_S:
            frozen[first:k] = True
            longest = max(longest, seconds)
        first = k
    return frozen, longest


def flicker(clip: Thumbs) -> dict[str, float | bool | None]:
    """How much the light goes up and down from frame to frame."""
    if len(clip) < 3:
        return {"flicker": None}
    change = clip.change
    new = np.append(True, change >= min(SAME, STANDS_OUT * float(change.max())))  # of repeats only the first counts
    luma, cuts = clip.luma[new], np.append(False, clip.once(find_cuts))
    shot = np.cumsum(cuts)[new]
    within = (shot[2:] == shot[:-2])
    mean = float(luma.mean())
    if not within.any() or mean < 1e-3:
        return {"flicker": 0.0 if mean >= 1e-3 else None}
    bend = luma[1:-1] - (luma[:-2] + luma[2:]) / 2
    return {"flicker": float(np.sqrt(np.mean(bend[within] ** 2))) / mean}


def jumps(clip: Thumbs) -> dict[str, float | bool | None]:
    """Cuts left inside."""
    return {"jump_ratio": float(clip.once(find_cuts).mean()) if len(clip) > 1 else None}


def find_cuts(clip: Thumbs) -> np.ndarray:
    """Whether a new shot begins at each frame but the first: nothing like it was before, and what was before does not return."""
    pictures = _Compared(clip.content)
    distance = pictures.distances(slice(None, -1), slice(1, None))
    found = np.zeros(len(distance), bool)
    for k in np.flatnonzero(distance > CUT_DISTANCE):
        near = np.delete(distance[max(0, k - 8):k + 9], min(int(k), 8))
        if len(near) and distance[k] <= STANDS_UP * np.median(near) + 0.1:
            continue
        if clip.change[k] < CUT_CHANGE or distance[k] < distance[max(0, k - 1):k + 2].max():  # one thing that moves fast is no cut
            continue
        if _shifted(clip.content[k], clip.content[k + 1]) <= CUT_DISTANCE:
            continue
        later = np.flatnonzero(clip.times[k + 1:] <= clip.times[k + 1] + FLASH_S) + k + 1
        earlier = np.flatnonzero(clip.times[:k + 1] >= clip.times[k + 1] - FLASH_S - 1e-6)
        sides = np.repeat([k, k + 1], [len(later), len(earlier)])
        found[k] = pictures.distances(sides, np.concatenate([later, earlier])).min() >= RETURN_DISTANCE
    return found


class _Compared:
    """Pictures whose correlations come of sums of bytes, which are exact and quick."""

    def __init__(self, pictures: np.ndarray) -> None:
        self._rows = rows(pictures)
        self._sums, self._squares = sums(self._rows)
        self._spread = self._squares - self._sums**2 / self._rows.shape[1]
        self._flat = self._spread < FLAT**2 * self._rows.shape[1]

    def distances(self, first: slice | np.ndarray, second: slice | np.ndarray) -> np.ndarray:
        """1 - correlation of these pictures with those, one by one; 0 of two flat pictures, 1 of one."""
        flat, other = self._flat[first], self._flat[second]
        _, apart = sums(cv2.absdiff(self._rows[first], self._rows[second]))
        common = (self._squares[first] + self._squares[second] - apart) / 2 - self._sums[first] * self._sums[second] / self._rows.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(flat | other, flat != other, 1 - common / np.sqrt(self._spread[first] * self._spread[second]))


def _shifted(a: np.ndarray, b: np.ndarray) -> float:
    """The distance of two pictures where they overlap when one is moved over the other as phase correlation says."""
    height, width = a.shape
    if min(a.shape) < 8:
        return 1.0
    first, second = (np.array(one, np.float32) for one in (a, b))  # phaseCorrelate may write into what it is given
    (x, y), _ = cv2.phaseCorrelate(first, second, cv2.createHanningWindow((width, height), cv2.CV_32F))
    x, y = round(x), round(y)
    if abs(x) > MOST_SHIFT * width or abs(y) > MOST_SHIFT * height:
        return 1.0
    over_a = a[max(0, -y):height - max(0, y), max(0, -x):width - max(0, x)]
    over_b = b[max(0, y):height - max(0, -y), max(0, x):width - max(0, -x)]
    return float(_Compared(np.stack([over_a, over_b])).distances(slice(1), slice(1, 2))[0])
