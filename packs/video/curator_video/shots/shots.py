"""Shots of films."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from curator.api.counts import Counts
from curator.api.findings import Finding, Line, Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import Batch
from curator_video.read.record import Films, Part, check_file, parts_of
from curator_video.shots.boundaries import BOUNDARIES, GRADUAL, SHOTS, joined, shots_of
from curator_video.shots.detector import RULES, Detector, Found

if TYPE_CHECKING:
    from curator_video.read.film import Film
    from curator_video.read.interlace import Combing

FLOOR = 0.2  # boundaries with a score below it are not kept


@dataclass(kw_only=True)
class Shots(Stage):
    """Find where shots begin and end: cuts, dissolves, fades; flashes are none. One pass over the film, no model.

    Reads `bytes` (the file) or, where that is null or not there, `path`; of a record with `start_s` and `end_s` only that span.

    Adds `shots` (list of `start` and `end`, seconds from the first picture of the file; `before` and `after`, what there is at
    both ends: start, end, cut, dissolve, fade, blank; `score` of the boundary before, null where there is none), `shot_count`,
    `flash_count`, `blank_ratio` (of the time, pictures of one colour), `comb_ratio` (of the pixels that are combed, as video.decode
    has it, of a picture a second) and `boundaries` (list of `start`, `end`, `kind`, `score`),
    which has the weaker ones, too, down to 0.2: `video.spans` takes another threshold without decoding anything. What is shown
    from `start` to `end` of a boundary, mixed or blank pictures, belongs to no shot; at a cut both are when the new picture comes.

    `threshold`: boundaries have a higher score, 0 to 1; 0.4 is where the rules stand. `flash`: what comes and goes within so many
    seconds is no shot. `window`: seconds, the longest half of a dissolve or fade.

    Films that cannot be read leave on `failed`; of damaged ones what can be read counts.

    Known: wipes are not found, or as cuts; something large that passes before the camera within half a second may be taken for
    cuts; a cut between two pictures of nearly the same content (distance below 0.15) is not seen. Films are compared at 64 x 36
    pixels, without black bars, by correlation at the best shift, so that neither brightness nor a moving camera counts.

    Source: the rules and their values are our own, measured on films with known cuts.
    """

    threshold: float = RULES
    flash: float = 0.16
    window: float = 1.2
    storage_options: dict[str, Any] | None = setting(default=None)

    batch_size = 1

    def __post_init__(self) -> None:
        if not FLOOR <= self.threshold < 1:
            raise ValueError(f"threshold is from {FLOOR} to below 1, got {self.threshold}")
        if self.flash < 0:
            raise ValueError(f"flash must be 0 seconds or more, got {self.flash}")
        if not 0.2 <= self.window <= 10:
            raise ValueError(f"window is from 0.2 to 10 seconds, got {self.window}")

    def contract(self) -> Contract:
        return Contract(adds={"shots": SHOTS, "boundaries": BOUNDARIES, "shot_count": pa.int32(), "flash_count": pa.int32(),
                              "blank_ratio": pa.float32(), "comb_ratio": pa.float32()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        shots, cuts, gradual = (counts.extra.get(name, 0) for name in ("shots", "cuts", "gradual"))
        if shots:
            yield Line(f"{shots:,} shots, {cuts:,} cuts, {gradual:,} fades and dissolves")

    def setup(self, ctx: Context) -> None:
        from curator_video.read.film import BadFilm
        from curator_video.read.interlace import Combing

        self._bad, self._combing = BadFilm, Combing

    def process(self, batch: Batch) -> Outputs:
        found: list[Found] = []
        combs: list[float | None] = []
        wrong: list[str | None] = []
        with Films(self.storage_options) as films:
            for part in parts_of(batch):
                try:
                    combing = self._combing()
                    found.append(self._found(films.open(part), part, combing))
                    combs.append(combing.ratio)
                    wrong.append(None if found[-1].start is not None else "no_frames: not one picture in its span")
                except self._bad as error:
                    found.append(Found())
                    combs.append(None)
                    wrong.append(str(error))
        good = [error is None for error in wrong]
        outputs = Outputs()
        if all(good) or any(good):
            kept = [one for one, fine in zip(found, good, strict=True) if fine]
            columns, outputs.counts = self._columns(kept)
            columns["comb_ratio"] = pa.array([one for one, fine in zip(combs, good, strict=True) if fine], pa.float32())
            outputs["out"] = batch.filter(good).with_columns(columns)
        if not all(good):
            outputs["failed"] = batch.filter([not fine for fine in good]).with_error([error for error in wrong if error is not None])
        return outputs

    def _found(self, film: Film, part: Part, combing: Combing) -> Found:
        detector = Detector(flash_s=self.flash, window_s=self.window, floor=FLOOR)
        time, lasts = 0.0, None
        for time, frame in film.frames(part.begin, part.end):
            detector.add(time + part.shift, film.thumb(frame), film.chroma(frame))
            combing.add(time, frame)
            lasts = frame.duration, frame.time_base
        last = time + float(lasts[0] * lasts[1]) if lasts and lasts[0] and lasts[1] else None
        end = last if last is None or part.end is None else min(last, part.end)
        return detector.finish(None if end is None else end + part.shift)

    def _columns(self, found: list[Found]) -> tuple[dict[str, pa.Array], dict[str, int]]:
        shots = [shots_of(one.boundaries, one.start or 0.0, one.end or 0.0, self.threshold) for one in found]
        told = [joined(one.boundaries, self.threshold) for one in found]
        gradual = sum(boundary.kind in GRADUAL for one in told for boundary in one)
        counts = {"shots": sum(map(len, shots)), "gradual": gradual, "cuts": sum(map(len, told)) - gradual}
        blank = [one.blank_s / (one.end - one.start) if one.end and one.start is not None and one.end > one.start else None
                 for one in found]
        return {"shots": pa.array(shots, SHOTS),
                "boundaries": pa.array([[vars(boundary) for boundary in one.boundaries] for one in found], BOUNDARIES),
                "shot_count": pa.array([len(one) for one in shots], pa.int32()),
                "flash_count": pa.array([one.flashes for one in found], pa.int32()),
                "blank_ratio": pa.array(blank, pa.float32())}, counts
