"""Boundaries between shots, and the shots between boundaries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

START, END = "start", "end"  # what is before the first shot and after the last
GRADUAL = ("fade", "dissolve")
BOUNDARIES = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64()), ("kind", pa.string()), ("score", pa.float32())]))
SHOTS = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64()), ("before", pa.string()), ("after", pa.string()),
                            ("score", pa.float32())]))
TOUCH_S = 1e-6  # what is nearer touches


@dataclass(frozen=True)
class Boundary:
    """Where the picture becomes another, in seconds: what is shown from `start` to `end` belongs to no shot; of a cut both
    are the time of the first new picture. `kind`: cut, dissolve, fade (over black, white or a colour), blank (that, between
    two cuts). `score`: from 0 to 1, 0.4 is where the rules stand."""

    start: float
    end: float
    kind: str
    score: float


def joined(boundaries: Iterable[Boundary], threshold: float) -> list[Boundary]:
    """Those with a score above the threshold, in order; what overlaps is one, of the kind of its longest part."""
    made: list[Boundary] = []
    for one in sorted(boundaries, key=lambda one: (one.start, one.end)):
        if one.score <= threshold:
            continue
        if made and one.start <= made[-1].end + TOUCH_S and (made[-1].end > made[-1].start or one.start <= made[-1].start + TOUCH_S):
            last = made[-1]
            kind = one.kind if one.end - one.start > last.end - last.start else last.kind
            made[-1] = replace(last, end=max(last.end, one.end), kind=kind, score=max(last.score, one.score))
        else:
            made.append(one)
    return made


def shots_of(boundaries: Iterable[Boundary], start: float, end: float, threshold: float, after: str = END) -> list[dict[str, object]]:
    """The shots between `start` and `end` of a film, as values of `SHOTS`. The score is that of the boundary before a shot;
    `after`: what comes at the end."""
    made: list[dict[str, object]] = []
    at, before, score = start, START, None
    for one in joined(boundaries, threshold):
        if one.start > at + TOUCH_S:
            made.append({"start": at, "end": one.start, "before": before, "after": one.kind, "score": score})
        at, before, score = max(at, one.end), one.kind, one.score
    if end > at + TOUCH_S:
        made.append({"start": at, "end": end, "before": before, "after": after, "score": score})
    return made
