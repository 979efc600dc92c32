"""Which pictures of a span are taken, while it is decoded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

EARLY_S, EARLY = 0.1, 0.2  # a picture may be early by so much, and by this share of the seconds between, whichever is less
EPSILON_S = 1e-6  # times are compared to it, as they are sums of float64
MODES = ("fps", "uniform", "keyframes", "all", "none")
_USUAL_S = 0.04  # how long a picture is shown if it is the only one


@dataclass
class Seen:
    """What passed by: the time of every picture of a span, and when the last one ends."""

    times: list[float] = field(default_factory=list)

    def add(self, time: float) -> None:
        self.times.append(time)

    @property
    def end(self) -> float:
        """When the last picture ends, if it is shown as long as the one before."""
        if not self.times:
            return 0.0
        return self.times[-1] + (self.times[-1] - self.times[-2] if len(self.times) > 1 else _USUAL_S)


@dataclass(frozen=True)
class Choice:
    """The parameters of a stage that takes pictures: `pick` is one of MODES, `fps` a second or `count` in all."""

    pick: str
    fps: float
    count: int

    def __post_init__(self) -> None:
        if self.pick not in MODES:
            raise ValueError(f"pick is one of {', '.join(MODES)}, got {self.pick!r}")
        if not 0 < self.fps <= 1000:
            raise ValueError(f"fps must be above 0 and at most 1000 pictures a second, got {self.fps}")
        if self.count < 1:
            raise ValueError(f"count must be 1 or more, got {self.count}")


def chosen(pictures: Iterable[tuple[float, Any]], choice: Choice, begin: float, end: float | None,
           seen: Seen, *, once: bool = False) -> Iterator[tuple[float, Any]]:
    """Those of the pictures of a span that are wanted; all are gone through, and noted in `seen`.

    `end` may be None for `fps`: until the last picture ends. `once`: no picture several times.
    """
    if choice.pick in ("fps", "uniform"):
        yield from _at_times(pictures, Targets.of(choice, begin, end), end, seen, once)
        return
    for time, frame in pictures:
        seen.add(time)
        if choice.pick == "all" or (choice.pick == "keyframes" and frame.key_frame):
            yield time, frame


def spaced(times: np.ndarray, every_s: float) -> np.ndarray:
    """The numbers of pictures about `every_s` seconds apart, the first among them; those farther apart are all taken.

    What is shown at 0, 0.5 and 1 s of 25 pictures a second has the times 0, 0.48 and 1: so the nearest is taken, also where it is
    early.
    """
    early = min(EARLY_S, EARLY * every_s)
    chosen: list[int] = []
    due = next(iter(times), 0.0)
    for k, (time, after) in enumerate(pairwise([*times, math.inf])):
        if time >= due - EPSILON_S or (time >= due - early and after - due > due - time):
            chosen.append(k)
            due = max(due, time - early) + every_s
    return np.array(chosen, int)


@dataclass(frozen=True)
class Targets:
    """Times at which a picture is wanted: begin + (k + offset) / rate for each k below `count`."""

    begin: float
    offset: float
    rate: float
    count: float

    @classmethod
    def of(cls, choice: Choice, begin: float, end: float | None) -> Targets:
        if choice.pick == "fps":
            return cls(begin, 0.0, choice.fps, math.inf)
        length = 1.0 if end is None else max(end - begin, EPSILON_S)  # neither has a picture
        return cls(begin, 0.5, choice.count / length, choice.count)

    def at(self, k: int) -> float:
        return self.begin + (k + self.offset) / self.rate if k < self.count else math.inf

    def from_time(self, time: float) -> int:
        """The first k whose time is not before this one."""
        return max(0, math.ceil((time - self.begin) * self.rate - self.offset))


def _at_times(pictures: Iterable[tuple[float, Any]], targets: Targets, end: float | None, seen: Seen,
              once: bool) -> Iterator[tuple[float, Any]]:
    """For each target the picture that is shown then: the last whose time is not after it, or the first of all."""
    shown: tuple[float, Any] | None = None
    k = 0
    for time, frame in pictures:
        seen.add(time)
        while shown is not None and time > targets.at(k) + EPSILON_S:
            yield shown
            k = max(k + 1, targets.from_time(time - EPSILON_S)) if once else k + 1
        shown = time, frame
    last = seen.end if end is None else end
    while shown is not None and targets.at(k) < last - EPSILON_S:
        yield shown
        if once:
            return
        k += 1
