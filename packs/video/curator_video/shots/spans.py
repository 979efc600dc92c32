"""Records of clips, made of the spans of films."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.counts import Counts
from curator.api.errors import ContractError
from curator.api.findings import Finding, Line, Shown, Summed
from curator.api.format import duration
from curator.api.stage import Contract, Outputs, Stage
from curator.api.tasks import Batch, VideoBatch
from curator_video.read.sampling import EPSILON_S
from curator_video.shots.boundaries import END, GRADUAL, START, Boundary, shots_of
from curator_video.shots.stride import extents

ANSWER_BYTES = 32 << 20  # of films in one answer: a clip of a film that came as bytes carries them


@dataclass(kw_only=True)
class Spans(Stage):
    """One record a shot, of `min` to `max` seconds; every second of a film is in a clip, too short for one, or left out.

    A clip is a record, `id` of the film and `#k`, with `parent`, `start_s`, `end_s` (seconds from the first picture of the file,
    half open), `duration` (seconds), `clip_index` (from 0, in the film) and `shot_before`, `shot_after`: what was at both ends,
    `part` where a long shot was divided. Nothing is decoded or copied: the clip is its film by path, and these times. Other columns
    are those of the film; `shots` and `boundaries` are taken away.

    What is shorter than `min` leaves on `dropped` with the reason `too_short`; a film without a span, with `no_clips`. What is left
    out are transitions, blank pictures, margins, and what a list of spans leaves free.

    `by`: the column, `shots` of `video.shots` or `video.stride`, or another list of `start` and `end` in seconds, from a manifest.
    What is longer than `max` is divided equally; a cut through a shot is marked `part` at both sides. `margin`: seconds taken off
    where a fade or a dissolve is next to it, whose first and last pictures are hard to tell. `crop`: seconds taken off at both ends
    of every span, before it is divided. `threshold`: another one than `video.shots` had: the shots are made anew of `boundaries`.

    Source: Cosmos (NVIDIA 2025, arXiv 2501.03575): from 2 to 60 seconds.
    """

    by: str = "shots"
    min: float = 2.0
    max: float = 60.0
    margin: float = 0.1
    crop: float = 0.0
    threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("min", "margin", "crop"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 seconds or more, got {getattr(self, name)}")
        if self.max <= 0 or self.max < 2 * self.min:
            raise ValueError("max must be above 0 and at least twice min, so that the parts of what is too long are not too short; "
                             f"got {self.max} and min {self.min}")
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise ValueError(f"threshold is from 0 to below 1, got {self.threshold}")

    @property
    def _read(self) -> str:
        return self.by if self.threshold is None else "boundaries"

    def contract(self) -> Contract:
        made = {"start_s": pa.float64(), "end_s": pa.float64(), "duration": pa.float64(), "clip_index": pa.int32(),
                "shot_before": pa.string(), "shot_after": pa.string(), "parent": pa.string()}
        return Contract(needs={self._read: None}, adds=made, removes={self.by, "shots", "boundaries"})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if self.threshold is not None and "part_index" in columns:
            raise ContractError("a part of a film knows its shots by the threshold of video.shots only: set it there")
        kind = columns.get(self._read)
        if kind is None or pa.types.is_null(kind):
            return
        inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
        if inner is None or not pa.types.is_struct(inner) or min(inner.get_field_index(name) for name in ("start", "end")) < 0:
            raise ContractError(f"column {self._read!r} is {kind}; spans are a list of `start` and `end`, in seconds")

    def reasons(self) -> tuple[str, ...]:
        return ("too_short", "no_clips")

    def example_columns(self) -> Mapping[str, Shown]:
        return {"start_s": "number", "duration": "number"}

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        kept, short, rest = (counts.extra.get(name, 0) / 1000 for name in ("kept_ms", "short_ms", "rest_ms"))
        if kept + short + rest:
            yield Line(f"{duration(kept)} in clips, {duration(short)} too short, {duration(rest)} of transitions, blanks and margins")

    def process(self, batch: Batch) -> Iterator[Outputs]:
        batch = batch.as_type(VideoBatch).with_payloads(encoded=None, frames=None, timestamps=None)
        films = [self.clips(spans, *place) for spans, place in zip(batch.column(self._read), extents(batch), strict=True)]
        counts: dict[str, int] | None = account(films, extents(batch))
        bare = batch.without([name for name in {self.by, "shots", "boundaries"} if name in batch.columns])
        some = np.array([len(clips) > 0 for clips in films], bool)
        for rows in _groups(bare, films):
            made = children(bare, [row for row in rows for _ in films[row]], [clip for row in rows for clip in films[row]])
            good = np.array([clip["kept"] for row in rows for clip in films[row]], bool)
            ports = {"out": made.filter(good), "dropped": made.filter(~good).with_reason("too_short")}
            yield Outputs({port: found for port, found in ports.items() if len(found)}, counts=counts)
            counts = None
        if not some.all():
            yield Outputs(dropped=childless(bare.filter(~some)).with_reason("no_clips"), counts=counts)
        elif not len(batch):
            yield Outputs(out=childless(bare))

    def clips(self, spans: list[dict] | None, start: float, end: float | None) -> list[dict[str, Any]]:
        if spans is None:
            return []
        if self.threshold is not None:
            ends = [one["end"] for one in spans]
            last = end if end is not None else max(ends, default=start)
            spans = shots_of([Boundary(**one) for one in spans], start, last, self.threshold)
        made: list[dict[str, Any]] = []
        for span in spans:
            made += self.cut(span) if span and span["start"] is not None and span["end"] is not None else []
        return [clip | {"index": k} for k, clip in enumerate(made)]

    def first(self, start: float, before: str) -> float:
        """Where the clip begins of a shot that begins so."""
        return start + self.crop + (self.margin if before in GRADUAL else 0.0)

    def cut(self, span: dict) -> list[dict[str, Any]]:
        """The clips of one shot, or the shot as it is, if that is too short."""
        before, after = span.get("before") or START, span.get("after") or END
        start, end = float(span["start"]), float(span["end"])
        whole = {"start": start, "end": end, "before": before, "after": after, "kept": False}
        first = self.first(start, before)
        stop = end - self.crop - (self.margin if after in GRADUAL else 0.0)
        length = stop - first
        if length < max(self.min - EPSILON_S, EPSILON_S):
            return [whole] if end > start else []
        count = max(1, math.ceil(length / self.max - EPSILON_S))
        at = [first + length * k / count for k in range(count)] + [stop]
        return [{"start": low, "end": high, "before": "part" if k else before, "after": "part" if k < count - 1 else after, "kept": True}
                for k, (low, high) in enumerate(itertools.pairwise(at))]


def _groups(batch: Batch, films: list[list[dict]]) -> Iterator[list[int]]:
    """Films that have clips, so many together that their clips carry no more bytes than an answer should."""
    files = batch.rows.column("bytes") if "bytes" in batch.columns else None
    rows: list[int] = []
    size = 0
    for row, clips in enumerate(films):
        if not clips:
            continue
        carried = len(clips) * (len(files[row].as_buffer() or b"") if files is not None and files[row].is_valid else 0)
        if rows and size + carried > ANSWER_BYTES:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += carried
    if rows:
        yield rows


def children(batch: Batch, rows: list[int], clips: list[dict]) -> Batch:
    """A record of each clip; `rows`: those of the films that they are of."""
    made = batch.take(rows)
    parents = made.column("id")
    starts, ends = (pa.array([clip[name] for clip in clips], pa.float64()) for name in ("start", "end"))
    return made.with_columns({
        "id": pa.array([f"{parent}#{clip['index']}" for parent, clip in zip(parents, clips, strict=True)], pa.string()),
        "parent": pa.array(parents, pa.string()),
        "start_s": starts, "end_s": ends, "duration": pa.array([clip["end"] - clip["start"] for clip in clips], pa.float64()),
        "clip_index": pa.array([clip["index"] for clip in clips], pa.int32()),
        "shot_before": pa.array([clip["before"] for clip in clips], pa.string()),
        "shot_after": pa.array([clip["after"] for clip in clips], pa.string())})


def childless(batch: Batch) -> Batch:
    """Films without a clip, with the columns that clips have."""
    places = extents(batch)
    made: dict[str, pa.Array] = {
        "start_s": pa.array([start for start, _ in places], pa.float64()), "end_s": pa.array([end for _, end in places], pa.float64()),
        "duration": pa.array([None if end is None else end - start for start, end in places], pa.float64())}
    missing = {"clip_index": pa.int32(), "shot_before": pa.string(), "shot_after": pa.string()}
    if "parent" not in batch.columns:
        missing["parent"] = pa.string()
    return batch.with_columns(made | {name: pa.nulls(len(batch), kind) for name, kind in missing.items()})


def account(films: list[list[dict]], places: list[tuple[float, float | None]]) -> dict[str, int]:
    """Milliseconds in clips, in what is too short, in neither. What two spans share counts once, as part of a clip if of any."""
    found = {"kept_ms": 0, "short_ms": 0, "rest_ms": 0}
    for clips, (start, end) in zip(films, places, strict=True):
        kept = _covered([clip for clip in clips if clip["kept"]])
        either = _covered(clips)
        total = max(either, either if end is None else end - start)
        at = [0, *(round(1000 * seconds) for seconds in (kept, either, total))]
        for name, low, high in zip(found, at, at[1:], strict=False):
            found[name] += high - low
    return found


def _covered(clips: list[dict]) -> float:
    total, reached = 0.0, -math.inf
    for clip in sorted(clips, key=lambda one: one["start"]):
        total += max(0.0, clip["end"] - max(clip["start"], reached))
        reached = max(reached, clip["end"])
    return total
