"""Recordings in windows of one length, or of whole turns of several speakers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.tasks import AudioBatch
from curator_audio.cut.cutter import NONE, Cutter, Found
from curator_audio.cut.segment import spans_of


@dataclass(kw_only=True)
class Windows(Cutter):
    """Cut recordings into windows: of one length, or, for models of conversation, of whole turns of several speakers.

    With `mode: cut` each window is a record, as `audio.segment` makes them; with `mode: list` recordings stay whole and get the
    column `windows` (list of `start` and `end`, seconds from their first sample).

    By turns (the column of `audio.speakers`), windows begin and end between turns and cut none. A window has `speaker_count`
    (int32, a column that is added). Of those that have too much in common, the one that is nearest to `length` stays.

    `length`: seconds.
    `by`: `time` or `turns`.
    `hop`: by time, seconds from the beginning of a window to that of the next; null for `length`.
    `min`: by time, seconds of the last window of a recording, below which it is dropped as `too_short`; null for half of `length`.
    `tolerance`: by turns, the share of `length` by which a window may differ from it.
    `speakers`: by turns, the fewest and the most.
    `min_turns`: by turns, the fewest.
    `overlap`: by turns, the share of the shorter of two windows that they may have in common.
    `mode`: `cut` or `list`.
    `also`: other lists of spans, of which each window gets its part.
    `preview`: seconds, the loudest, of what is dropped that are kept as FLAC in the column `preview`, to be listened to in the
    report; 0 for none.

    A recording without any window is dropped as `no_window`.

    Source: NeMo Curator's windows for audio language models, with `length: 120`, whose `tolerance`, `speakers` and `min_turns`
    these are. Known difference: a window cuts no turn.
    """

    length: float = 30.0
    by: Literal["time", "turns"] = "time"
    hop: float | None = None
    min: float | None = None
    tolerance: float = 0.1
    speakers: Sequence[int] = field(default_factory=lambda: [2, 5])
    min_turns: int = 2
    overlap: float = 0.0
    mode: Literal["cut", "list"] = "cut"
    also: Sequence[str] = field(default_factory=list)
    preview: float = 10.0

    listed, without, what, rest = "windows", "no_window", "windows", "in no window"

    def __post_init__(self) -> None:
        if self.by not in ("time", "turns"):
            raise ValueError(f"by is time or turns, got {self.by!r}")
        if self.mode not in ("cut", "list"):
            raise ValueError(f"mode is cut or list, got {self.mode!r}")
        self.at_least(0, "preview")
        if self.length <= 0 or (self.hop is not None and self.hop <= 0):
            raise ValueError(f"length and hop must be above 0, got {self.length} and {self.hop}")
        if self.min is not None and not 0 <= self.min <= self.length:
            raise ValueError(f"min must be from 0 to length, got {self.min} and {self.length}")
        if not (0 <= self.tolerance < 1 and 0 <= self.overlap < 1):
            raise ValueError(f"tolerance and overlap are shares from 0 up to 1, got {self.tolerance} and {self.overlap}")
        if len(self.speakers) != 2 or not 1 <= self.speakers[0] <= self.speakers[1]:
            raise ValueError(f"speakers are two numbers, the fewest and the most, got {list(self.speakers)!r}")

    @property
    def shortest(self) -> float:
        return 0.0 if self.by == "turns" else self.length / 2 if self.min is None else self.min

    @property
    def reads(self) -> list[str]:
        return ["turns"] if self.by == "turns" else []

    @property
    def lists(self) -> list[str]:
        return list(dict.fromkeys([*self.reads, *self.also]))

    @property
    def labels(self) -> dict[str, pa.DataType | None]:
        return {"speaker_count": pa.int32()} if self.by == "turns" else {}

    def pieces(self, batch: AudioBatch, payload: list, rates: list[int]) -> Iterator[Found]:
        column = batch.rows.column("turns") if self.by == "turns" else None
        for row, (samples, rate) in enumerate(zip(payload, rates, strict=True)):
            total = 0 if samples is None else samples.shape[1]
            if not total or not rate:
                yield NONE, []
            elif column is None:
                cuts = every(total, self.length * rate, (self.hop or self.length) * rate)
                yield cuts, [None] * len(cuts)
            else:
                yield self._of_turns(spans_of(column[row].values, rate, total)[:2], rate) if column[row].is_valid else (NONE, [])

    def _of_turns(self, turns: tuple[np.ndarray, np.ndarray], rate: int) -> Found:
        spans, who = turns
        found, speakers = between_turns(spans, who, self.length * rate, self.tolerance, self.min_turns)
        good = (speakers >= self.speakers[0]) & (speakers <= self.speakers[1])
        found, speakers = found[good], speakers[good]
        kept = nearest(found, self.length * rate, self.overlap)
        return found[kept], speakers[kept].tolist()

    def children(self, batch: AudioBatch, found: list[Found]) -> AudioBatch:
        made = super().children(batch, found)
        if self.by == "time":
            return made
        return made.with_columns({"speaker_count": pa.array([n for _, speakers in found for n in speakers], pa.int32())})


def every(total: int, length: float, hop: float) -> np.ndarray:
    """Windows from the first sample to the last, [k, 2]; no window lies in the one before it."""
    count = max(1, int(np.ceil((total - length) / hop)) + 1) if hop <= length else int(np.ceil(total / hop))
    starts = np.rint(np.arange(count) * hop).astype(np.int64)
    ends = np.minimum(np.rint(np.arange(count) * hop + length).astype(np.int64), total)
    return np.column_stack([starts, ends])[starts < total]


def between_turns(spans: np.ndarray, who: np.ndarray, length: float, tolerance: float,
                  min_turns: int) -> tuple[np.ndarray, np.ndarray]:
    """From each place between turns the window whose length is nearest, [k, 2], if it is near enough; and its speakers' number."""
    if not len(spans):
        return NONE, np.empty(0, np.int64)
    ends = np.maximum.accumulate(spans[:, 1])
    clear = np.append(True, spans[1:, 0] >= ends[:-1])
    first = np.flatnonzero(clear)  # turns that nobody speaks over the beginning of
    last = np.append(first[1:], len(spans)) - 1  # the ones before them
    begins, stops = spans[first, 0], ends[last]
    behind = np.searchsorted(stops, begins + length).clip(1, max(len(stops) - 1, 1))
    near = np.abs(stops[(behind - 1).clip(0, len(stops) - 1)] - begins - length)
    behind = np.where(near <= np.abs(stops[behind.clip(0, len(stops) - 1)] - begins - length), behind - 1, behind)
    behind = behind.clip(0, len(stops) - 1)
    spoken = np.zeros((len(spans) + 1, int(who.max()) + 1), np.int64)
    spoken[1:] = np.cumsum(who[:, None] == np.arange(spoken.shape[1]), axis=0)
    speakers = (spoken[last[behind] + 1] > spoken[first]).sum(axis=1)
    found = np.column_stack([begins, stops[behind]])
    good = (np.abs(found[:, 1] - found[:, 0] - length) <= tolerance * length) & (last[behind] - first + 1 >= min_turns)
    return found[good], speakers[good]


def nearest(found: np.ndarray, length: float, overlap: float) -> np.ndarray:
    """Which windows stay, in order: those nearest in length first, none that has more than a share in common with one that stays."""
    kept: list[int] = []
    for window in np.lexsort((found[:, 0], np.abs(found[:, 1] - found[:, 0] - length))):
        begin, end = found[window]
        others = found[kept]
        common = np.minimum(others[:, 1], end) - np.maximum(others[:, 0], begin)
        if not (common > overlap * np.minimum(others[:, 1] - others[:, 0], end - begin)).any():
            kept.append(int(window))
    return np.array(sorted(kept), np.int64)
