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
from curator_video.read.record import SIZE, Films, Part, check_file, parts_of
from curator_video.shots.boundaries import BOUNDARIES, GRADUAL, SHOTS, joined
from curator_video.shots.detector import BLOCK_S, RULES, Detector, Found
from curator_video.shots.parts import WHOLE, Stretch, stretch
from curator_video.shots.pictures import Bars

if TYPE_CHECKING:
    from curator_video.read.film import Film

FLOOR = 0.2  # boundaries with a score below it are not kept
PLACE = {"start_s": pa.float64(), "end_s": pa.float64(), "duration": pa.float64()}
_AROUND = 12  # pictures before a part that say what is usual there


@dataclass(frozen=True)
class Looked:
    """What a record shows, what of it is its own, and how much of it is combed."""

    found: Found
    place: Stretch
    combs: float | None


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

    Adds `start_s`, `end_s` and `duration` (seconds: what was looked at; those that are there stay). Of a part that `video.parts`
    made they become what is its own, from the first boundary that begins in it to the first behind it: the parts of a film
    have all its shots, each once. A part in which none begins has none, and a `duration` of 0.

    `threshold`: boundaries have a higher score, 0 to 1; 0.4 is where the rules stand. `flash`: what comes and goes within so many
    seconds is no shot. `window`: seconds, the longest half of a dissolve or fade.

    Films that cannot be read leave on `failed`; of damaged ones what can be read counts.

    Known: wipes are not found, or as cuts; something large that passes before the camera within a few pictures may be taken for
    cuts; a cut between two pictures of nearly the same content (distance below 0.15) is not seen. Films are compared at 64 x 36
    pixels, without black bars, by correlation at the best shift, so that neither brightness nor a moving camera counts. Of H.264 and
    H.265 films of 576 pixels and more on the longer side, pictures to which no other refers are not deblocked.

    Source: the rules and their values are our own, measured on films with known cuts.
    """

    threshold: float = RULES
    flash: float = 0.16
    window: float = 1.2
    storage_options: dict[str, Any] | None = setting(default=None)

    batch_size = 1
    sparse = ("flash_count", "blank_ratio", "start_s")
    version = 9

    def __post_init__(self) -> None:
        if not FLOOR <= self.threshold < 1:
            raise ValueError(f"threshold is from {FLOOR} to below 1, got {self.threshold}")
        if self.flash < 0:
            raise ValueError(f"flash must be 0 seconds or more, got {self.flash}")
        if not 0.2 <= self.window <= 10:
            raise ValueError(f"window is from 0.2 to 10 seconds, got {self.window}")

    def contract(self) -> Contract:
        return Contract(adds={"shots": SHOTS, "boundaries": BOUNDARIES, "shot_count": pa.int32(), "flash_count": pa.int32(),
                              "blank_ratio": pa.float32(), "comb_ratio": pa.float32(), **PLACE}, removes=WHOLE)

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
        found: list[Looked] = []
        wrong: list[str | None] = []
        none = [None] * len(batch)
        begins, ends = (batch.column(name) if name in batch.columns else none for name in WHOLE)
        with Films(self.storage_options, longest=SIZE) as films:
            for part, begin, end in zip(parts_of(batch), begins, ends, strict=True):
                try:
                    film = films.open(part)
                    found.append(self._found(film, part) if end is None else self._found_in_part(film, part, begin, end))
                    wrong.append(None)
                except self._bad as error:
                    wrong.append(str(error))
        good = [error is None for error in wrong]
        outputs = Outputs()
        if all(good) or any(good):
            kept = batch.filter(good).without(WHOLE)
            columns, outputs.counts = self._columns(found)
            outputs["out"] = kept.with_columns(columns | self._places(batch.filter(good), [one.place for one in found]))
        if not all(good):
            outputs["failed"] = batch.filter([not fine for fine in good]).with_error([error for error in wrong if error is not None])
        return outputs

    def _found(self, film: Film, part: Part) -> Looked:
        combing = self._combing()
        detector = Detector(flash_s=self.flash, window_s=self.window, floor=FLOOR)
        latest: tuple[float, Any] = (0.0, None)
        for time, frame in film.frames(part.begin, part.end):
            detector.add(time + part.shift, *film.small(frame))
            combing.add(time, frame)
            latest = time, frame
        last = end_of(*latest)
        end = last if last is None or part.end is None else min(last, part.end)
        found = detector.finish(None if end is None else end + part.shift)
        if found.start is None:
            raise film.nothing(part.begin, part.end)
        return Looked(found, Stretch(found.start, found.end or found.start), combing.ratio)

    def _found_in_part(self, film: Film, part: Part, begin: float, end: float) -> Looked:
        """What begins in a part, as one who looks at the film from `begin` to `end` finds it.

        He knows what was before: so looking begins as long before the part as anything counts.
        """
        assert part.end is not None
        first = part.begin <= begin
        lead = begin if first else self.lead(film, part.begin, begin)
        detector = Detector(flash_s=self.flash, window_s=self.window, floor=FLOOR, counted=(part.begin, part.end))
        combing = self._combing()
        own, settled, latest = (part.begin, part.end), part.end, (0.0, None)
        for time, frame in film.frames(lead, end):
            detector.add(time, *film.small(frame))
            if part.begin <= time < part.end:
                combing.add(time, frame)
            latest = time, frame
            if detector.settled > settled:
                settled, seen = detector.settled, detector.found
                made = stretch(seen.boundaries, own, seen.start if first else None, settled, None, self.threshold)
                if made is not None:
                    return Looked(seen, made, combing.ratio)
        last = end_of(*latest)
        found = detector.finish(None if last is None else min(last, end))
        if found.start is None and first:
            raise film.nothing(begin, end)
        made = stretch(found.boundaries, own, found.start if first else None, end, found.end or end, self.threshold)
        assert made is not None
        return Looked(found, made, combing.ratio)

    def lead(self, film: Film, begin: float, earliest: float) -> float:
        """Where one begins to look who knows what counts at `begin`: a block as whoever looks at the whole film has."""
        context = 2 * self.window + _AROUND / float(film.rate)
        return max(earliest, ((begin - context) // BLOCK_S - Bars.WINDOW) * BLOCK_S)

    def _columns(self, looked: list[Looked]) -> tuple[dict[str, pa.Array], dict[str, int]]:
        own = [one.place.of(sorted(one.found.boundaries, key=lambda made: (made.start, made.end))) for one in looked]
        shots = [one.place.shots(boundaries, self.threshold) for boundaries, one in zip(own, looked, strict=True)]
        told = [joined(boundaries, self.threshold) for boundaries in own]
        gradual = sum(boundary.kind in GRADUAL for one in told for boundary in one)
        counts = {"shots": sum(map(len, shots)), "gradual": gradual, "cuts": sum(map(len, told)) - gradual}
        found = [one.found for one in looked]
        return {"shots": pa.array(shots, SHOTS),
                "boundaries": pa.array([[vars(boundary) for boundary in one] for one in own], BOUNDARIES),
                "shot_count": pa.array([len(one) for one in shots], pa.int32()),
                "flash_count": pa.array([one.flashes for one in found], pa.int32()),
                "blank_ratio": pa.array([one.blank_s / one.counted_s if one.counted_s > 0 else None for one in found], pa.float32()),
                "comb_ratio": pa.array([one.combs for one in looked], pa.float32())}, counts

    @staticmethod
    def _places(batch: Batch, found: list[Stretch]) -> dict[str, pa.Array]:
        """Of parts what is their own; else what is there stays."""
        is_part = batch.rows.column(WHOLE[1]).is_valid().to_pylist() if WHOLE[1] in batch.columns else [False] * len(batch)
        made = {}
        for name, values in (("start_s", [one.start for one in found]), ("end_s", [one.end for one in found]),
                             ("duration", [one.end - one.start for one in found])):
            given = batch.column(name) if name in batch.columns else [None] * len(batch)
            made[name] = pa.array([new if new_one or old is None else old
                                   for old, new, new_one in zip(given, values, is_part, strict=True)], pa.float64())
        return made


def end_of(time: float, frame: Any) -> float | None:
    """When a picture goes, if it says how long it is shown."""
    return time + float(frame.duration * frame.time_base) if frame is not None and frame.duration and frame.time_base else None
