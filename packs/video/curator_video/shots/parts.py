"""Long films in parts, so that many workers look for shots in one film; and which shots are a part's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.errors import ContractError
from curator.api.findings import Summed
from curator.api.resources import Resources
from curator.api.stage import Contract, Stage
from curator.api.tasks import Batch
from curator_video.shots.boundaries import END, Boundary, joined, shots_of
from curator_video.shots.stride import extents

WHOLE = ("film_start_s", "film_end_s")
CERTAIN_S = 1e-3  # a boundary is certain when all is known up to so much behind it: another may touch it
COLUMNS = {"start_s": pa.float64(), "end_s": pa.float64(), "duration": pa.float64(), "part_index": pa.int32(),
           "film_start_s": pa.float64(), "film_end_s": pa.float64(), "parent": pa.string()}


@dataclass(kw_only=True)
class Parts(Stage):
    """Divide long films into parts, so that many workers share one film in `video.shots`. Nothing is decoded.

    Reads `path`, `duration` (seconds) and where they are there `start_s` and `end_s`.

    A part is a record, `id` of the film and `#k`, with `parent`, `start_s`, `end_s`, `duration`, `part_index` (from 0) and
    `film_start_s`, `film_end_s` (seconds, where the film as a whole lies in its file; null where nothing was divided), by which
    `video.shots` looks over the edges: the shots of all parts together are those of the film, to the picture, and so are the clips.
    A film that is not longer than one and a half parts stays one record, as it was, and so do films that came as `bytes`, or
    whose length nobody knows.

    `minutes`: about how long a part is; all parts of a film are equally long.

    Known: an id counts within its part (`film#1#0`), and `clip_index`, `shot_count`, `flash_count`, `blank_ratio` and `comb_ratio`
    are those of the part. A part through whose end a shot goes is looked at until that shot ends: a film of one shot, of hours, is looked
    at by one worker from its beginning to its end. Where packets are damaged, what is decoded may depend on where decoding began.
    """

    minutes: float = 20.0

    resources = Resources(cpus=0)  # it computes nothing; and stages with other resources run in workers of their own, many of them

    def __post_init__(self) -> None:
        if self.minutes <= 0:
            raise ValueError(f"minutes must be above 0, got {self.minutes}")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if "duration" not in columns and "end_s" not in columns:
            raise ContractError("needs `duration` in seconds; put video.probe before")

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def process(self, batch: Batch) -> Batch:
        places = extents(batch)
        here = batch.rows.column("bytes").is_null().to_pylist() if "bytes" in batch.columns else [True] * len(batch)
        counts = [_count(start, end, 60 * self.minutes) if by_path else 1 for (start, end), by_path in zip(places, here, strict=True)]
        given = {name: batch.column(name) if name in batch.columns else [None] * len(batch) for name in ("id", "parent", "duration")}
        rows: list[dict[str, object]] = []
        for at, ((start, end), count) in enumerate(zip(places, counts, strict=True)):
            if count == 1:
                rows.append({"id": given["id"][at], "parent": given["parent"][at], "start_s": start, "end_s": end,
                             "duration": given["duration"][at] if end is None else end - start})
                continue
            assert end is not None
            edges = np.linspace(start, end, count + 1).tolist()
            rows += [{"id": f"{given['id'][at]}#{k}", "parent": given["id"][at], "start_s": edges[k], "end_s": edges[k + 1],
                      "duration": edges[k + 1] - edges[k], "part_index": k, "film_start_s": start, "film_end_s": end}
                     for k in range(count)]
        made = batch.take(np.repeat(np.arange(len(batch)), counts))
        return made.with_columns({name: pa.array([row.get(name) for row in rows], kind)
                                  for name, kind in {"id": pa.string(), **COLUMNS}.items()})


def _count(start: float, end: float | None, seconds: float) -> int:
    """Into how many parts."""
    return 1 if end is None or end - start <= 1.5 * seconds else math.ceil((end - start) / seconds - 1e-6)


@dataclass(frozen=True)
class Stretch:
    """What of a film is one part's own: from the first boundary that begins in the part to the first that begins behind it.

    `start` and `end` in seconds; both the same, where no boundary begins in the part. `after`: what the boundary at its end is.
    """

    start: float
    end: float
    after: str = END

    def shots(self, boundaries: list[Boundary], threshold: float) -> list[dict[str, object]]:
        """As values of `SHOTS`."""
        return shots_of(self.of(boundaries), self.start, self.end, threshold, self.after)

    def of(self, boundaries: list[Boundary]) -> list[Boundary]:
        """Those that begin in it."""
        return [one for one in boundaries if self.start <= one.start < self.end]


def stretch(boundaries: list[Boundary], part: tuple[float, float], first: float | None, settled: float, end: float | None,
            threshold: float) -> Stretch | None:
    """The stretch of a part, or None if one has to look on: what begins before `settled` is known, `end` once all is.

    `part`: its begin and end as it was divided. `first`: where the film begins, if it is the first part.
    """
    known = joined(boundaries, threshold)
    behind = next((one for one in known if one.start >= part[1]), None)
    own = next((one.start for one in known if part[0] <= one.start < part[1]), None) if first is None else first
    if own is None:
        return Stretch(part[0], part[0]) if end is not None or settled > part[1] else None
    if behind is not None and (end is not None or behind.end + CERTAIN_S < settled):
        return Stretch(own, behind.start, behind.kind)
    return None if end is None else Stretch(own, end)
