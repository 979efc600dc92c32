"""The shots of a film, told as soon as their ends are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from curator_video.shots.boundaries import END, GRADUAL, START, TOUCH_S, Boundary, joined
from curator_video.shots.parts import CERTAIN_S


@dataclass
class Line:
    """Makes of boundaries, as they become known, the shots that `video.shots` tells at the end of a film.

    `own`: shots belong to it whose boundary before begins from the one time to the other (a part of a film, by `video.parts`).
    `start`: where its first shot begins, `end`: where its last one ends; `at`: where the shot in progress begins; all None before
    there is one. `before`: what there is at that place. `over`: no more shots are its own. `shots`, `cuts`, `gradual`: how many.
    """

    threshold: float
    own: tuple[float, float] = (-math.inf, math.inf)
    start: float | None = None
    end: float | None = None
    over: bool = False
    before: str = START
    shots: int = 0
    cuts: int = 0
    gradual: int = 0
    _score: float | None = field(default=None, repr=False)
    _done: float = field(default=-math.inf, repr=False)

    def __post_init__(self) -> None:
        self.at = self.start

    def begin(self, start: float) -> None:
        """The film begins here, and with it a shot."""
        if self.at is None:
            self.start = self.at = start

    def until(self, boundaries: list[Boundary], settled: float) -> list[dict[str, object]]:
        """The shots that have ended since. All boundaries that begin before `settled` are among these."""
        shots: list[dict[str, object]] = []
        known = joined((one for one in boundaries if one.start > self._done), self.threshold)
        if self.at is None and settled > self.own[1] and not any(self.own[0] <= one.start < self.own[1] for one in known):
            self.over = True
        for one in known:
            if self.over or one.end + CERTAIN_S >= settled:
                break
            self._done = one.end + TOUCH_S
            self._pass(one, shots)
        return shots

    def finish(self, boundaries: list[Boundary], end: float) -> list[dict[str, object]]:
        """The shots that are left; the film ends at `end`."""
        shots = self.until(boundaries, math.inf)
        if self.at is not None and not self.over:
            self._shot(end, END, shots)
            self.end = end
        self.over = True
        return shots

    def _pass(self, one: Boundary, shots: list[dict[str, object]]) -> None:
        if self.at is None:
            if one.start < self.own[0]:
                return
            self.over = one.start >= self.own[1]
            if self.over:
                return
            self.start = self.at = one.start
        else:
            self._shot(one.start, one.kind, shots)
        if one.start >= self.own[1]:
            self.end, self.over = one.start, True
            return
        self.cuts, self.gradual = self.cuts + (one.kind not in GRADUAL), self.gradual + (one.kind in GRADUAL)
        self.at, self.before, self._score = max(self.at, one.end), one.kind, one.score

    def _shot(self, end: float, after: str, shots: list[dict[str, object]]) -> None:
        assert self.at is not None
        if end > self.at + TOUCH_S:
            self.shots += 1
            shots.append({"start": self.at, "end": end, "before": self.before, "after": after, "score": self._score})
