"""Equal spans of films."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from curator.api.errors import ContractError
from curator.api.findings import Summed
from curator.api.stage import Contract, Stage
from curator.api.tasks import Batch
from curator_video.read.sampling import EPSILON_S
from curator_video.shots.boundaries import END, SHOTS, START


@dataclass(kw_only=True)
class Stride(Stage):
    """Spans of equal length, without a look at the film: a list for `video.spans`, in place of `video.shots`.

    Reads `duration` (seconds), and where they are there `start_s` and `end_s`, which say where a record lies in its file.

    Adds `shots` (list of `start` and `end` in seconds of the file, `before`, `after` and `score`, as `video.shots` does; null where
    the duration is).

    `length`: seconds of a span. `every`: seconds from the start of one to the start of the next; None: `length`. `min`: what is
    shorter at the end is left out; `video.spans` says how much that is.
    """

    length: float = 10.0
    every: float | None = None
    min: float = 2.0

    def __post_init__(self) -> None:
        if self.length <= 0 or (self.every is not None and self.every <= 0):
            raise ValueError(f"length and every must be above 0 seconds, got {self.length} and {self.every}")
        if not 0 <= self.min <= self.length:
            raise ValueError(f"min is from 0 to length, got {self.min} and {self.length}")

    def contract(self) -> Contract:
        return Contract(adds={"shots": SHOTS})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if "duration" not in columns and "end_s" not in columns:
            raise ContractError("needs `duration` in seconds; put video.probe before")

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def process(self, batch: Batch) -> Batch:
        lists = [None if end is None else [
            {"start": first, "end": stop, "before": START if first == start else "stride", "after": END if stop == end else "stride"}
            for first, stop in windows(start, end, self.length, self.every or self.length, self.min)]
            for start, end in extents(batch)]
        return batch.with_columns({"shots": pa.array(lists, SHOTS)})


def windows(start: float, end: float, length: float, every: float, least: float) -> list[tuple[float, float]]:
    """Spans of `length` each `every` seconds; the last may be shorter, but not than `least`. None lies in the one before."""
    made: list[tuple[float, float]] = []
    while True:
        first = start + len(made) * every
        stop = min(first + length, end)
        if stop - first < max(least, EPSILON_S) - EPSILON_S or (made and stop <= made[-1][1] + EPSILON_S):
            return made
        made.append((first, stop))


def extents(batch: Batch) -> list[tuple[float, float | None]]:
    """Where each record lies in its file, in seconds; the end is None where nothing says it."""
    missing: list = [None] * len(batch)
    starts, ends, durations = (batch.column(name) if name in batch.columns else missing for name in ("start_s", "end_s", "duration"))
    return [(start or 0.0, end if end is not None else None if length is None else (start or 0.0) + length)
            for start, end, length in zip(starts, ends, durations, strict=True)]
