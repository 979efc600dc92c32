"""Where to cut a recording: spans of speech are joined over short pauses, and cut again at long ones. All in samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator_audio.cut.spans import joined
from curator_audio.sound.waves import Quietest


@dataclass(frozen=True)
class Limits:
    """In samples. `shortest`, `longest`: of a piece. `gap`: a pause that is longer ends a piece. `pad`: added at both ends."""

    shortest: int
    longest: int
    gap: int
    pad: int


def pieces(spans: np.ndarray, who: np.ndarray | None, limits: Limits, total: int,
           quietest: Quietest) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of a recording of `total` samples, int [k, 2], in order, and whose they are, int [k]: none is longer than the limit;
    shorter ones are among them.

    `spans`: int [n, 2] in order of their beginnings. `who`: a number for the speaker of each span; a piece has one speaker.
    """
    who = np.zeros(len(spans), np.int64) if who is None else who
    found = [(*piece, int(speaker)) for run, speaker in runs(spans, who, limits.gap)
             for piece in cut_down(run, limits, quietest)]
    made = np.array(sorted(found), np.int64).reshape(-1, 3)
    return padded(made[:, :2], limits, total), made[:, 2]


def runs(spans: np.ndarray, who: np.ndarray, gap: int) -> list[tuple[np.ndarray, int]]:
    """Spans that follow each other with pauses of at most `gap` between them, and no other speaker; and the speaker."""
    if not len(spans):
        return []
    ends = np.maximum.accumulate(spans[:, 1])
    edges = np.flatnonzero((spans[1:, 0] - ends[:-1] > gap) | (who[1:] != who[:-1])) + 1
    return list(zip(np.split(spans, edges), who[np.append(0, edges)], strict=True))


def cut_down(run: np.ndarray, limits: Limits, quietest: Quietest) -> list[tuple[int, int]]:
    """The run whole, or cut until no part is too long.

    At the longest of the pauses that leave no part too short, else at the longest of all. Where there is no pause, at the
    quietest place of the second half of what a piece may have.
    """
    run = np.column_stack([run[:, 0], np.maximum.accumulate(run[:, 1])])
    waiting, done = [joined(run, 0)], []
    while waiting:
        part = waiting.pop()
        begin, end = int(part[0, 0]), int(part[-1, 1])
        if end - begin <= limits.longest:
            done.append((begin, end))
        elif len(part) > 1:
            pauses = part[1:, 0] - part[:-1, 1]
            fits = (part[:-1, 1] - begin >= limits.shortest) & (end - part[1:, 0] >= limits.shortest)
            at = int(np.where(fits, pauses, -1).argmax() if fits.any() else pauses.argmax()) + 1
            waiting += [part[:at], part[at:]]
        else:
            latest = min(limits.longest, end - begin - limits.shortest)
            at = quietest(begin + max(limits.shortest, latest // 2), begin + latest)
            done.append((begin, at))
            waiting.append(np.array([[at, end]]))
    return done


def padded(made: np.ndarray, limits: Limits, total: int) -> np.ndarray:
    """Longer by the pad at both ends, but not over the middle of a pause, the ends of the recording, and the longest allowed."""
    if not len(made):
        return made
    begins, ends = made[:, 0], made[:, 1]
    middle = (begins[1:] + np.maximum.accumulate(ends)[:-1]) // 2
    room = np.minimum(limits.pad, np.maximum(limits.longest - (ends - begins), 0) // 2)
    earliest = np.minimum(begins, np.maximum(begins - room, np.append(0, middle)))
    latest = np.maximum(ends, np.minimum(ends + room, np.append(middle, total)))
    return np.column_stack([earliest, latest])


def covered(made: np.ndarray) -> int:
    """How many samples lie in one of the pieces, which may overlap."""
    if not len(made):
        return 0
    made = made[np.argsort(made[:, 0], kind="stable")]
    ends = np.maximum.accumulate(made[:, 1])
    return int((ends - np.maximum(made[:, 0], np.append(0, ends[:-1]))).clip(0).sum())
