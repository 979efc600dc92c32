"""The sound of films and clips, for stages of sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.findings import Shown, Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import AudioBatch
from curator_video.read.record import Films, Part, check_file, parts_of

ANSWER_BYTES = 32 << 20  # of samples in one answer
COLUMNS = {"sample_rate": pa.int32(), "source_rate": pa.int32(), "channels": pa.int32(), "duration": pa.float64(),
           "start_s": pa.float64(), "end_s": pa.float64(), "declared_duration": pa.float64(), "audio_offset": pa.float64(),
           "codec": pa.string(), "decode_note": pa.string(), "parent": pa.string()}
_SEARCH_S, _QUIET_S = 30.0, 0.05  # where a part is cut: the quietest window in the last seconds of it


@dataclass
class Piece:
    """What becomes of a record, or of a part of it, whose number is `number`."""

    row: int
    port: str = "out"
    why: str = ""
    number: int | None = None
    samples: np.ndarray | None = None
    columns: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Audio(Stage):
    """The sound of a film, a span or a clip as samples, in step with its pictures: what stages of sound read.

    Reads what video.decode reads: `path` or `bytes`, `start_s` and `end_s`; only that part is decoded.

    Adds the payload `samples` (float32, channels x n, from -1 to 1): the first belongs to the first picture of the span.
    Where sound begins later, or is missing in between, there is silence; it ends with the span, or where the sound does.
    Adds `sample_rate` (Hz, of them), `source_rate` and `channels` (of the track), `duration` (seconds: samples /
    rate), `start_s` and `end_s` (seconds from the first picture of the source), `declared_duration` (of the track by the header,
    null if it does not tell), `audio_offset` (seconds from the first picture to the first sound of the file, by the header), `codec`
    (as FFmpeg calls it) and `decode_note` (null where all is well, else of these, joined by a comma: `damaged`, `gaps`, filled
    with silence, `format_changes`, what follows is left out, `short`, it ends half a second or more before the span).
    `bytes`, which are pictures too, are taken away.

    What has no sound track, or no sound in the span, leaves on `dropped`, reason `no_audio`; what is no film on
    `failed`, as in video.probe.

    More than `part_s` becomes several records, `id#0`, `id#1`, …, with `parent`, cut at the quietest 50 ms of
    their last 30 s; joined they are the whole, to the sample.

    `rate`: resample to so many Hz, None as it is. `channel`: `mix` is the mean of all, `first`, `all` keeps them.
    `part_s`: None never cuts. `audio_stream`: which one of a file with several, from 0. `storage_options`: what
    the filesystem of a `path` wants.
    """

    rate: int | None = None
    channel: Literal["mix", "first", "all"] = "mix"
    part_s: float | None = 600.0
    audio_stream: int = 0
    storage_options: dict[str, Any] | None = setting(default=None)

    sparse = ("start_s", "declared_duration", "audio_offset", "decode_note", "parent")
    version = 2

    def __post_init__(self) -> None:
        if self.rate is not None and not 1000 <= self.rate <= 768_000:
            raise ValueError(f"rate is in Hz, from 1000 to 768,000, or None, got {self.rate}")
        if self.channel not in ("mix", "first", "all"):
            raise ValueError(f"channel is mix, first or all, got {self.channel!r}")
        if self.part_s is not None and self.part_s < 1:
            raise ValueError(f"part_s must be 1 second or more, or None to cut nothing, got {self.part_s}")
        if self.audio_stream < 0:
            raise ValueError(f"audio_stream counts from 0, got {self.audio_stream}")

    def contract(self) -> Contract:
        return Contract(adds={"samples": None, **COLUMNS}, removes=("bytes",))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def reasons(self) -> tuple[str, ...]:
        return ("no_audio",)

    def example_columns(self) -> Mapping[str, Shown]:
        return {"start_s": "number", "duration": "number"}

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def setup(self, ctx: Context) -> None:
        from curator_video.clips.sound import Resampled, Sound
        from curator_video.read.film import BadFilm

        self._bad, self._sound, self._resampled = BadFilm, Sound, Resampled

    def process(self, batch: Batch) -> Iterator[Outputs]:
        waiting: list[Piece] = []
        size = 0
        with Films(self.storage_options) as films:
            for part in parts_of(batch):
                for piece in self._pieces(films, part):
                    waiting.append(piece)
                    size += 0 if piece.samples is None else piece.samples.nbytes
                    del piece
                    if size >= ANSWER_BYTES:
                        yield _answer(batch, waiting)
                        waiting, size = [], 0
        if waiting or not len(batch):
            yield _answer(batch, waiting)

    def _pieces(self, films: Films, part: Part) -> Iterator[Piece]:
        try:
            film = films.open(part)
            if self.audio_stream >= len(film.container.streams.audio):
                yield Piece(part.row, "dropped", "no_audio")
                return
            yield from self._cut(self._sound(film, self.audio_stream), part)
        except self._bad as error:
            yield Piece(part.row, "failed", str(error))

    def _cut(self, sound: Any, part: Part) -> Iterator[Piece]:
        """The sound of a part, in pieces of `part_s` at most."""
        rate = self.rate or sound.rate
        blocks: Iterator[np.ndarray] = (self._chosen(block) for block in sound.blocks(part.begin, part.end))
        if rate != sound.rate:
            blocks = iter(self._resampled(blocks, sound.rate, rate))
        most = None if self.part_s is None else round(self.part_s * rate)
        held: list[np.ndarray] = []
        count = given = number = 0
        for block in blocks:
            held.append(block)
            count += block.shape[1]
            while most is not None and count > most:
                whole = np.concatenate(held, axis=1)
                at = quiet_place(whole[:, :most], rate)
                yield self._piece(sound, part, rate, whole[:, :at].copy(), given, number)
                held, count, given, number = [whole[:, at:]], count - at, given + at, number + 1
        if not count and not number:
            yield Piece(part.row, "dropped", "no_audio")
        elif count:
            rest = np.concatenate(held, axis=1)
            last = None if part.end is None else part.begin + (given + count) / rate < part.end - 0.5
            yield self._piece(sound, part, rate, rest, given, number if number else None, short=bool(last))

    def _chosen(self, block: np.ndarray) -> np.ndarray:
        if self.channel == "all" or len(block) == 1:
            return block
        return block[:1] if self.channel == "first" else block.mean(axis=0, keepdims=True, dtype=np.float32)

    @staticmethod
    def _piece(sound: Any, part: Part, rate: int, samples: np.ndarray, given: int, number: int | None, *, short: bool = False) -> Piece:
        begin = part.begin + part.shift + given / rate
        notes = [*sound.notes, *(["short"] if short else [])]
        columns = {"sample_rate": rate, "source_rate": sound.rate, "channels": sound.channels,
                   "duration": samples.shape[1] / rate, "start_s": begin, "end_s": begin + samples.shape[1] / rate,
                   "declared_duration": sound.declared_s, "audio_offset": sound.offset_s, "codec": sound.codec,
                   "decode_note": ", ".join(notes) or None}
        return Piece(part.row, number=number, samples=samples, columns=columns)


def quiet_place(samples: np.ndarray, rate: int) -> int:
    """Where to cut a part that is full: the middle of the quietest 50 ms of its last 30 s, the last of several."""
    total = samples.shape[1]
    step = max(1, round(_QUIET_S * rate / 5))
    steps = min(round(_SEARCH_S * rate), total // 2) // step
    if steps < 5:
        return total
    start = total - steps * step
    frames = samples[:, start:].reshape(len(samples), steps, step)
    power = np.einsum("cij,cij->i", frames, frames, dtype=np.float64)
    totals = np.convolve(power, np.ones(5), "valid")
    at = len(totals) - 1 - int(np.argmin(totals[::-1]))
    return start + at * step + 5 * step // 2


def _answer(batch: Batch, pieces: list[Piece]) -> Outputs:
    ports: dict[str, list[Piece]] = {"out": []}
    for piece in pieces:
        ports.setdefault(piece.port, []).append(piece)
    good = ports["out"]
    made = batch.without(["bytes"]).take([piece.row for piece in good]).as_type(AudioBatch)
    ids = made.column("id")
    parents = made.column("parent") if "parent" in made.columns else [None] * len(ids)
    columns = {name: pa.array([piece.columns.get(name) for piece in good], kind) for name, kind in COLUMNS.items()}
    columns["id"] = pa.array([one if piece.number is None else f"{one}#{piece.number}" for one, piece in zip(ids, good, strict=True)],
                             pa.string())
    columns["parent"] = pa.array([above if piece.number is None else one
                                  for one, above, piece in zip(ids, parents, good, strict=True)], pa.string())
    outputs = Outputs(out=made.with_columns(columns).with_payloads(samples=[piece.samples for piece in good]))
    for port, rows in ports.items():
        why = [piece.why for piece in rows]
        if port != "out":
            there = batch.take([piece.row for piece in rows])
            outputs[port] = there.with_error(why) if port == "failed" else there.with_reason(why)
    return outputs
