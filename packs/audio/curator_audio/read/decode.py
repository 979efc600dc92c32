"""Samples from files with sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa

from curator.api.errors import ContractError
from curator.api.findings import Shown, Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import AudioBatch, Batch
from curator_audio.read.sound import Piece, Wanted
from curator_audio.sound.channels import MODES
from curator_audio.sound.resampler import RATES

ANSWER_BYTES = 8 << 20  # of samples in one answer: what follows works on it while the next is decoded
COLUMNS = {"sample_rate": pa.int32(), "source_rate": pa.int32(), "channels": pa.int32(), "duration": pa.float64(),
           "start_s": pa.float64(), "end_s": pa.float64(), "declared_duration": pa.float64(), "format": pa.string(),
           "codec": pa.string(), "bits": pa.int32(), "decode_note": pa.string()}


@dataclass(kw_only=True)
class Decode(Stage):
    """Decode recordings to samples: wav, flac, mp3, ogg, opus, m4a, aiff, …, the sound of video files; what
    is broken says why.

    Reads `bytes` (the file), or where that is null or not there, `path`; and where a manifest gives them,
    `offset` and `duration` in seconds: with an `offset` only that part of the file is decoded. The content
    decides what a file is, not its name.

    Adds the payload `samples` (float32, channels x n, from -1 to 1; more where a float file has more) and
    `sample_rate` (Hz, of them), `source_rate` (Hz, of the file), `channels` (of the file), `duration`
    (seconds: samples / rate, never what a header says), `start_s` and `end_s` (seconds from the first sample
    of the file), `declared_duration` (seconds by the manifest, else by the header; null where neither tells:
    what is guessed by bit rate is not taken), `format` (wav, flac, mp3, ogg, m4a, mp4, …), `codec` (as FFmpeg
    calls it: pcm_s16le, aac, opus, …), `bits` (of a sample; null where the codec keeps none) and
    `decode_note` (null where all is well, else of these, joined by a comma: `truncated`, the file ends before
    what it says; `damaged`, something inside could not be decoded and is left out; `format_changes`, the rate
    or the channels change, and what follows is left out). Damage that a decoder reads across is not seen.

    A file of more than `part_s` becomes several records, `id#0`, `id#1`, …, with `parent` (null for a file
    that is whole); joined they are the file, to the sample. `bytes` are null in a record that is not a whole
    file. A part of more than 128 MB of samples is cut sooner.

    Empty and broken files, what has no sound, and parts with a sample that is NaN, infinite or above 10^12
    leave on `failed`; `error` begins with what it is. Half a file gives what can be read of it.

    `channel`: `mix` is the mean of all, `first`, `loudest` (most energy in the file), `all` keeps them,
    `split` makes each a record (`id#k`) and adds `channel` (0, 1, …). `rate`: resample to so many Hz, as
    `audio.resample` does. `part_s`: None never cuts. The cut is the quietest 50 ms in the last 30 s of a
    part. `max_seconds`: what is longer leaves on `dropped`, reason `too_long`; where a header says less than
    there is, only the rest does, as a part of its own. `audio_stream`: which one of a file with several, from
    0. `storage_options`: what the filesystem of a `path` wants.

    Known difference: of a part by `offset`, AAC and AC-3 files that have noise made up by the decoder get
    other noise than when read from their beginning, though all samples in their places; all other formats
    give the same samples.
    """

    channel: Literal["mix", "first", "all", "loudest", "split"] = "mix"
    rate: int | None = None
    part_s: float | None = 600.0
    max_seconds: float | None = None
    audio_stream: int = 0
    storage_options: dict[str, Any] | None = setting(default=None)

    version = 2
    sparse = ("start_s", "decode_note", "parent", "declared_duration", "bits")

    def __post_init__(self) -> None:
        if self.channel not in MODES:
            raise ValueError(f"channel is one of {', '.join(MODES)}, got {self.channel!r}")
        if self.rate is not None and not RATES[0] <= self.rate <= RATES[1]:
            raise ValueError(f"rate is in Hz, from {RATES[0]} to {RATES[1]:,}, got {self.rate}")
        if self.part_s is not None and self.part_s < 1:
            raise ValueError(f"part_s must be 1 second or more, or None to cut nothing, got {self.part_s}")
        if self.max_seconds is not None and self.max_seconds <= 0:
            raise ValueError(f"max_seconds must be above 0, got {self.max_seconds}")
        if self.audio_stream < 0:
            raise ValueError(f"audio_stream counts from 0, got {self.audio_stream}")

    def contract(self) -> Contract:
        adds: dict[str, pa.DataType | None] = {"samples": None, **COLUMNS}
        if self.channel == "split":
            adds["channel"] = pa.int32()
        if self.channel == "split" or self.part_s is not None:
            adds |= {"parent": pa.string(), "bytes": pa.binary()}
        return Contract(adds=adds)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if columns.keys().isdisjoint(("bytes", "path")):
            for name, kind in columns.items():
                if kind is not None and pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
                    raise ContractError(f"needs `bytes` or `path`, and {name!r} has them inside: put "
                                        f"`map: {{bytes: {name}.bytes, path: {name}.path}}` before, or read with audio.manifest")
            raise ContractError("needs `bytes` (the encoded file) or `path` (where it lies); readers such as audio.files, "
                                "audio.manifest and webdataset give them")
        kind = columns.get("bytes")
        if kind is not None and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind)):
            raise ContractError(f"`bytes` is to be binary, the encoded file, and here it is {kind}")

    def reasons(self) -> tuple[str, ...]:
        return () if self.max_seconds is None else ("too_long",)

    def example_columns(self) -> Mapping[str, Shown]:
        return {"bytes": "audio", "start_s": "number", "duration": "number"}

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def setup(self, ctx: Context) -> None:
        from curator_audio.read.reading import Decoder

        self._decoder = Decoder(Wanted(**{field.name: getattr(self, field.name) for field in fields(Wanted)}))

    def process(self, batch: Batch) -> Iterator[Outputs]:
        waiting: list[Piece] = []
        size = 0
        try:
            for row, given in enumerate(_given(batch)):
                for piece in self._decoder.pieces(row, *given):
                    waiting.append(piece)
                    size += 0 if piece.samples is None else piece.samples.nbytes
                    del piece  # of a long file only what is on its way is held
                    if size >= ANSWER_BYTES:
                        size = 0
                        yield self._answer(batch, waiting)
            if waiting or not len(batch):
                yield self._answer(batch, waiting)
        finally:
            self._decoder.release()

    def _answer(self, batch: Batch, pieces: list[Piece]) -> Outputs:
        """The records of these pieces, which are taken away: nothing here holds them while others work on them."""
        ports: dict[str, list[Piece]] = {"out": []}
        while pieces:
            piece = pieces.pop(0)
            ports.setdefault(piece.port, []).append(piece)
        outputs = Outputs(out=self._decoded(self._rows(batch, ports["out"]), ports["out"]))
        if "failed" in ports:
            outputs["failed"] = self._rows(batch, ports["failed"]).with_error([p.why for p in ports["failed"]])
        if "dropped" in ports:
            outputs["dropped"] = self._rows(batch, ports["dropped"]).with_reason([p.why for p in ports["dropped"]])
        return outputs

    def _rows(self, batch: Batch, pieces: list[Piece]) -> Batch:
        """The record of each piece. Parts have no bytes: those would be copied for each."""
        rows = [piece.row for piece in pieces]
        if "parent" not in self.contract().adds:
            return batch.take(rows)
        parts = [piece.number is not None for piece in pieces]
        made = batch.without(["bytes"]).take(rows)
        whole = pa.array([None if part else row for row, part in zip(rows, parts, strict=True)], pa.int64())
        files = batch.rows.column("bytes").take(whole) if "bytes" in batch.columns else pa.nulls(len(rows))
        made = made.with_columns({"bytes": files.cast(pa.binary())})
        ids = made.column("id")
        parents = made.column("parent") if "parent" in made.columns else [None] * len(ids)
        numbered = [one if piece.number is None else f"{one}#{piece.number}" for one, piece in zip(ids, pieces, strict=True)]
        above = [one if part else parent for one, part, parent in zip(ids, parts, parents, strict=True)]
        return made.with_columns({"id": pa.array(numbered, pa.string()), "parent": pa.array(above, pa.string())})

    def _decoded(self, batch: Batch, pieces: list[Piece]) -> AudioBatch:
        kinds = {name: kind for name, kind in self.contract().adds.items() if name in COLUMNS or name == "channel"}
        columns = {name: pa.array([(piece.columns or {}).get(name) for piece in pieces], kind) for name, kind in kinds.items()}
        made = batch.as_type(AudioBatch).with_columns(columns)
        return made.with_payloads(samples=[piece.samples for piece in pieces])


def _given(batch: Batch) -> Iterator[tuple]:
    """Bytes, path, offset and duration of each record; None for what is not there."""
    missing: list = [None] * len(batch)
    columns = [batch.column(name) if name in batch.columns else missing for name in ("path", "offset", "duration")]
    for data, *others in zip(batch.rows.column("bytes") if "bytes" in batch.columns else missing, *columns, strict=True):
        yield (None if data is None else data.as_py(), *others)
