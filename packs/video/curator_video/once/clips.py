"""Clips of films: shots found, spans made of them and decoded, in one pass.

Each picture goes to `Detector`, which looks for boundaries, and to `Held`, which keeps it until it is known
whether a clip wants it. When a block of pictures has been looked at, `Line` makes shots of the boundaries that
are certain by now, `Spans` clips of the shots, `Held` gives the pictures of each, and `Decode` makes a record.
Boundaries, spans and records are those of the stages `video.shots`, `video.spans` and `video.decode`, by the
same code; only when something is certain is known here alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from curator.api.counts import Counts
from curator.api.findings import Finding, Shown, Summed
from curator.api.names import unknown
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import Batch, VideoBatch
from curator_video.once.line import Line
from curator_video.read.decode import ANSWER_BYTES, COMB_S, Decode, Decoded
from curator_video.read.record import COMBED, Films, Part, check_file, parts_of
from curator_video.shots.detector import Detector
from curator_video.shots.parts import WHOLE
from curator_video.shots.shots import FLOOR, Shots, end_of
from curator_video.shots.spans import Spans, account, childless, children

if TYPE_CHECKING:
    from curator_video.once.held import Held
    from curator_video.read.film import Film

BURST, BURST_BYTES = 8, 4 << 20  # pictures that are decoded in a row, of 360 rows a seventh less time than one by one


@dataclass(kw_only=True)
class Clips(Stage):
    """Cut films into clips where shots change, and decode these: `video.shots`, `video.spans` and `video.decode` in one pass, in
    which each picture is decoded once.

    Gives what these three give one after the other: a record a clip, with the columns that `video.spans` and `video.decode` add and
    their payloads; not the columns of the whole film (`shot_count`, `flash_count`, `blank_ratio`), as clips leave while the film
    is still being read. With another `size` (384) or `side` (long) of `decode` scores of boundaries may differ by a hundredth, as
    pictures are decoded for those. `comb_ratio` is that of the clip, and decides whether it is deinterlaced.

    `shots`, `spans`, `decode`: the parameters of the three (not `by` and `threshold` of `video.spans`). `decode: {pick: fps}` (the
    default) and `none` are to be had; for others, and where thresholds are tried out or spans come from elsewhere, take the three.
    `storage_options`: what the filesystem of a `path` wants.

    A film of any length takes the memory of the longest clip and of some seconds that are not settled. Decoded once more are
    clips that are longer than `max` of `spans` and so divided, some behind a fade or a dissolve in films of 320 x 180 and
    more, and those that are deinterlaced.
    """

    shots: dict[str, Any] = field(default_factory=dict)
    spans: dict[str, Any] = field(default_factory=dict)
    decode: dict[str, Any] = field(default_factory=dict)
    storage_options: dict[str, Any] | None = setting(default=None)

    batch_size = 1
    sparse = Decode.sparse
    version = 8

    def __post_init__(self) -> None:
        for name in ("by", "threshold"):
            if name in self.spans:
                raise ValueError(f"spans: {name} is not to be had here, where shots are found; take video.shots and video.spans")
        self._find = _made(Shots, "shots", self.shots)
        self._cut = _made(Spans, "spans", self.spans)
        self._read = _made(Decode, "decode", self.decode | {"storage_options": self.storage_options})
        if self._read.pick not in ("fps", "none"):
            raise ValueError(f"decode: pick is fps or none here, got {self._read.pick!r}; for others take video.decode")

    def contract(self) -> Contract:
        return Contract(adds={**self._cut.contract().adds, **self._read.contract().adds}, removes=WHOLE)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def reasons(self) -> tuple[str, ...]:
        return (*self._cut.reasons(), *self._read.reasons())

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def example_columns(self) -> Mapping[str, Shown]:
        return self._cut.example_columns()

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        yield from self._find.findings(step, counts)
        yield from self._cut.findings(step, counts)

    def setup(self, ctx: Context) -> None:
        from curator_video.once.held import Held
        from curator_video.read.film import BadFilm
        from curator_video.read.interlace import combed, most_combed

        self._read.setup(ctx)
        self._bad, self._held, self._combed, self._most_combed = BadFilm, Held, combed, most_combed

    def process(self, batch: Batch) -> Iterator[Outputs]:
        batch = batch.as_type(VideoBatch).with_payloads(encoded=None, frames=None, timestamps=None)
        with Films(self.storage_options, **self._read.options) as films, Films(self.storage_options, **self._read.options) as again:
            for part in parts_of(batch):
                begin, end = (batch.column(name)[part.row] if name in batch.columns else None for name in WHOLE)
                row = batch.take([part.row]).without((*WHOLE, "comb_ratio"))
                try:
                    film = films.open(part)
                    part = replace(part, combed=False)  # that is found out for each clip
                    whole = replace(part, begin=begin, end=end) if begin is not None and end is not None else part
                    yield from _Run(self, film, again, row, part, whole).answers()
                except self._bad as error:
                    yield Outputs(failed=row.with_error([str(error)]))
        if not len(batch):
            yield Outputs(out=childless(batch))


def _made(kind: Any, name: str, given: Mapping[str, Any]) -> Any:
    known = {one.name: str(one.type) for one in fields(kind)}
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"{name}: {unknown('parameter', key, known)}")
        if isinstance(value, str) and known[key].startswith(("float", "int")):
            raise ValueError(f"{name}: {key} must be a number, got {value!r}")
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _in_bursts(film: Film, pictures: Iterator[tuple[float, Any]], most: int) -> Iterator[tuple[float, Any, tuple[int, int]]]:
    """The pictures, each with how many packets were damaged and pictures went back until then. Some are decoded before the first is
    looked at: a decoder that is interrupted at each finds its tables and pictures gone from the processor's cache."""
    while some := [(time, frame, (film.corrupt, film.backward)) for time, frame in islice(pictures, min(BURST, most))]:
        yield from some


class _Run:
    """One film, or part of one. `part`: what is its own of `whole`."""

    def __init__(self, stage: Clips, film: Film, again: Films, row: Batch, part: Part, whole: Part) -> None:
        self._stage, self._film, self._again, self._row, self._part, self._whole = stage, film, again, row, part, whole
        read = stage._read
        self._size = read.pixels(film)
        longest = read.most(self._size) / read.fps if read.pick == "fps" else float("inf")
        self._longest = min(stage._cut.max + stage._cut.crop + stage._cut.margin, longest)  # that is held, in seconds
        divided = whole is not part
        own = (part.begin, part.end) if divided else (-float("inf"), float("inf"))
        self._line = Line(stage._find.threshold, own)  # type: ignore[arg-type]  # a part that is not the whole has an end
        self._first = not divided or part.begin <= whole.begin
        self._end = part.begin
        self._clips: list[dict[str, Any]] = []
        self._waiting: list[tuple[dict[str, Any], Decoded | None]] = []

    def answers(self) -> Iterator[Outputs]:
        find, film = self._stage._find, self._film
        lead = self._whole.begin if self._first else find.lead(film, self._part.begin, self._whole.begin)
        detector = Detector(flash_s=find.flash, window_s=find.window, floor=FLOOR)
        bits = max((one.bits for one in film.first.format.components), default=8)
        frame_bytes = round(1.5 * film.coded[0] * film.coded[1] * (2 if bits > 8 else 1))
        held = self._stage._held(lambda frame: film.upright(frame, self._size), frame_bytes, self._stage._read.choice)
        measured, due = detector.measured, -1.0
        latest: tuple[float, Any] = (0.0, None)
        for time, frame, mark in _in_bursts(film, film.frames(lead, self._whole.end), max(1, BURST_BYTES // frame_bytes)):
            thumb, chroma = film.small(frame)
            detector.add(time, thumb, chroma)
            comb = None
            if time >= due:
                due, comb = time + COMB_S, self._stage._combed(frame)
            held.add(time, frame, thumb, mark, comb)
            latest = time, frame
            if detector.measured > measured:
                measured = detector.measured
                yield from self._settled(detector, held)
                if self._line.over:
                    break
        if not self._line.over:
            last = end_of(*latest)
            end = last if last is None or self._whole.end is None else min(last, self._whole.end)
            found = detector.finish(end)
            if found.start is None and self._first:
                raise self._film.nothing(self._part.begin, self._part.end)
            if found.start is not None and self._first:
                self._line.begin(found.start)
            self._end = found.end or found.start or self._part.begin
            yield from self._take(self._line.finish(found.boundaries, self._end), held)
        yield from self._answer(everything=True)
        yield self._last()

    def _settled(self, detector: Detector, held: Held) -> Iterator[Outputs]:
        """A block of pictures has been looked at: what is known now."""
        line, cut = self._line, self._stage._cut
        if self._first and detector.found.start is not None:
            line.begin(detector.found.start)
        held.expect([*([] if line.at is None else [cut.first(line.at, line.before)]),
                     *(cut.first(time, "cut") for time in detector.likely)], detector.measured)
        settled = detector.settled
        yield from self._take(line.until(detector.found.boundaries, settled), held)
        start = None if line.at is None else cut.first(line.at, line.before)
        if start is not None and settled - start > self._longest:
            start = None  # it will be divided, or is too large
        held.forget(settled if line.at is None else line.at, start, settled)

    def _take(self, shots: list[dict[str, Any]], held: Held) -> Iterator[Outputs]:
        """The clips of shots that have ended."""
        for shot in shots:
            for clip in self._stage._cut.cut(shot):
                clip["index"] = len(self._clips)
                self._clips.append(clip)
                self._waiting.append((clip, self._decoded(clip, held) if clip["kept"] else None))
                yield from self._answer()

    def _decoded(self, clip: dict[str, Any], held: Held) -> Decoded:
        """Of what is held, or else decoded once more."""
        read, start, end = self._stage._read, clip["start"], clip["end"]
        part = replace(self._part, row=0, begin=start, end=end)
        if read.max_seconds is not None and end - start > read.max_seconds + 1e-3:
            return Decoded(0, "dropped", "too_long")
        taken = None if read.deinterlace == "yes" or end - start > self._longest else held.take(start, end)
        if taken is None:
            made = read.decoded(self._again, part)
        else:
            made = read.made(part, self._film, taken, self._stage._most_combed(held.combs(start, end)), self._size)
        combs = made.columns.get("comb_ratio")
        if read.deinterlace == "auto" and combs is not None and combs > COMBED:
            made = read.decoded(self._again, replace(part, combed=True))
            made.columns["comb_ratio"] = combs  # by which video.cut knows what to do
        return made

    def _answer(self, everything: bool = False) -> Iterator[Outputs]:
        """The clips that are finished, if they are enough."""
        file = self._row.rows.column("bytes")[0] if "bytes" in self._row.columns else None
        each = len(file.as_buffer()) if file is not None and file.is_valid else 0
        size = sum(each + (0 if one is None else one.nbytes) for _, one in self._waiting)
        if size < ANSWER_BYTES and not everything:
            return
        waiting, self._waiting = self._waiting, []
        good = [(clip, one) for clip, one in waiting if one is not None]
        short = [clip for clip, one in waiting if one is None]
        if good:
            made = self._children([clip for clip, _ in good])
            yield self._stage._read.answer(made, [replace(one, row=row) for row, (_, one) in enumerate(good)])
        if short:
            yield Outputs(dropped=self._children(short).with_reason("too_short"))

    def _children(self, clips: list[dict[str, Any]]) -> Batch:
        shift = self._part.shift
        return children(self._row, [0] * len(clips), [clip | {"start": clip["start"] + shift, "end": clip["end"] + shift}
                                                      for clip in clips])

    def _last(self) -> Outputs:
        """What is to be told of the film as a whole; the film, if it has no clip."""
        line, clips = self._line, self._clips
        start = end = self._part.begin
        if self._whole is self._part:
            end = self._end if self._part.end is None else self._part.end
        elif line.start is not None and line.end is not None:
            start, end = line.start, line.end
        counts = account([clips], [(start, end)]) | {"shots": line.shots, "cuts": line.cuts, "gradual": line.gradual}
        if clips:
            return Outputs(counts=counts)
        shift = self._part.shift
        place = {"start_s": start + shift, "end_s": end + shift}
        row = self._row.with_columns({name: pa.array([value], pa.float64()) for name, value in place.items()})
        return Outputs(dropped=childless(row).with_reason("no_clips"), counts=counts)
