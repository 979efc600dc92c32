"""NeMo manifests: a line of JSON a recording, with the audio beside it, in tar archives, or where it was."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Output
from curator.io.media.files import FILE_NAME, FilesOfRecords
from curator.io.media.sink import MediaSink, sizes
from curator.io.sink import Encoder, FileWriter
from curator.io.tables.plain import json_lines
from curator_audio.write.members import TarOfRecords, shard_number

_OWN = ("audio_filepath", "duration", "offset", "shard_id")  # keys with a meaning in NeMo, which we write
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_RATES = ("sample_rate", "sampling_rate")  # NeMo takes them for the file's, and asks the file no more


@dataclass(kw_only=True)
class ToNemo(MediaSink):
    """Write NeMo manifests: JSON Lines with `audio_filepath`, `duration`, `text`, `lang` and other columns.

    `audio: files` writes the column that `media` names as `<name>/<key>.<extension>`, and beside that folder
    the manifest `<name>.json`, whose `audio_filepath` is relative to it. `audio: tar` writes
    `<name>-audio_<N>.tar` and `sharded_manifests/<name>-manifest_<N>.json`, with the name in the tar as
    `audio_filepath`, and N, a number made of the file's name, as `shard_id`. `audio: source` copies nothing:
    `audio_filepath` is the column `path`, and `offset` (from `start_s`, or where nothing was decoded from
    `offset`)
    and `duration` say which part of that file the record is. The same records give the same bytes.

    Other columns of plain values (text, numbers, yes and no, dates) are keys of the line; with `select` those
    that it names, lists and objects too. `sample_rate` and `path` only if `select` names them: readers take
    the one for the rate of the file, the other for where it lies. A record without audio or without
    `duration` has `_skipme: true`, by which NeMo passes over it.

    For NeMo make one manifest of all: `cat out/data/part-*.json > out/data/all.json`. With tars `cat
    out/data/sharded_manifests/*.json > out/all.json`, and beside it give NeMo the list of tars: by their
    numbers, which have gaps, it finds which line is in which; `audio__OP_0..9_CL_.tar` names none of them,
    and a list of sharded manifests wants numbers from 0.

    `audio`: `files`, `tar` or `source`, as above.
    `media`: the column with the encoded files, as `audio.encode` and readers give it.
    `text`, `lang`: the column that becomes this key; where there is none, the key is not there.
    `absolute`: with `files`, full paths instead of relative ones.
    `records`: a manifest, and its tar, is closed after so many.

    Source: NeMo, collections/common/data/lhotse/nemo_adapters.py;
    scripts/speech_recognition/convert_to_tarred_audio_dataset.py
    """

    audio: Literal["files", "tar", "source"] = "files"
    text: str = "text"
    lang: str = "lang"
    absolute: bool = False

    name = "to_nemo"
    ending: ClassVar[str] = ".json"
    fixed_columns: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.audio not in ("files", "tar", "source"):
            raise ValueError(f"audio is files, tar or source, got {self.audio!r}")
        if self.absolute and self.audio != "files":
            raise ValueError(f"absolute is for audio: files; names in {self.audio} stay as they are")

    def contract(self) -> Contract:
        named = [name for name, usual in ((self.text, "text"), (self.lang, "lang")) if name != usual]
        return Contract(needs=dict.fromkeys([self._audio(), "duration", *named, *(self.select or ())]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if self.audio != "source":
            super().check(columns)
        kind = columns.get("duration")
        if kind is not None and not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise RecipeError(f"duration is {kind} and is to be seconds, as audio.decode gives them")

    def unasked(self) -> tuple[str, ...]:
        return self._audio(), "id", "key", "extension", "duration", "start_s", "offset", self.text, self.lang

    def chosen(self, rows: pa.Table) -> pa.Table:
        chosen = super().chosen(rows)
        unread = self.audio == "source" and self.media in chosen.column_names
        return chosen.drop_columns([self.media]) if unread else chosen

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        if self.audio != "tar":
            name = stem + self.suffix()
        else:
            name = f"sharded_manifests/{stem}-manifest_{shard_number(stem)}{self.suffix()}"
        return _Manifest(self, files.add(self.output(files.folder, name)), files, stem)

    def line_columns(self, names: Sequence[str], schema: pa.Schema) -> list[str]:
        """The columns that are keys of a line under their own names."""
        fixed = {*_OWN, self.text, self.lang, self.media}
        if self.select is not None:
            return [name for name in dict.fromkeys(["id", *self.select]) if name not in fixed]
        fixed |= {*_RATES, "path"}  # readers might take it for audio_filepath
        return [name for name in names if name not in fixed and _is_plain(schema.field(name).type)]

    def _audio(self) -> str:
        return "path" if self.audio == "source" else self.media


class _Manifest(Encoder):
    def __init__(self, sink: ToNemo, output: Output, files: FileWriter, stem: str) -> None:
        self._sink, self._output, self._folder = sink, output, files.folder
        self._shard = shard_number(stem) if sink.audio == "tar" else None
        self._files = FilesOfRecords(files, stem, sink.media) if sink.audio == "files" else None
        self._tar = None
        if sink.audio == "tar":
            output = files.folder.open_file(f"{stem}-audio_{self._shard}.tar", "wb")
            self._tar = TarOfRecords(files.add(output), sink.media)

    def write(self, rows: pa.Table) -> int:
        lines = json_lines(rows.select(self._sink.line_columns(rows.column_names, rows.schema))).split(b"\n")
        known = [_ENCODE(first).encode() for first in self._known(rows)]
        pairs = zip(known, lines, strict=False)
        self._output.write(b"".join(first[:-1] + b"," + more[1:] + b"\n" for first, more in pairs))
        return int(sizes(rows).sum())

    def finish(self) -> None:
        if self._tar is not None:
            self._tar.finish()

    def _known(self, rows: pa.Table) -> list[dict[str, Any]]:
        """The keys that NeMo knows, for each row."""
        paths, durations = self._paths(rows), rows.column("duration").to_pylist()
        known: list[dict[str, Any]] = [{"audio_filepath": path, "duration": seconds}
                                       for path, seconds in zip(paths, durations, strict=True)]
        begins = "start_s" if "start_s" in rows.column_names else "offset"  # of what was decoded, or as a manifest has it
        given = {"offset": begins} if self._sink.audio == "source" else {}
        said = (("text", self._sink.text), ("lang", self._sink.lang))
        given |= {key: name for key, name in said if name in rows.column_names}
        for key, name in given.items():
            values = rows.column(name).to_pylist() if name in rows.column_names else [0.0] * len(known)
            for one, value in zip(known, values, strict=True):
                one[key] = value
        for one in known:
            if self._shard is not None:
                one["shard_id"] = self._shard
            seconds = one["duration"]
            if one["audio_filepath"] is None or seconds is None or not math.isfinite(seconds):
                one |= {"audio_filepath": one["audio_filepath"] or "", "duration": None, "_skipme": True}
        return known

    def _paths(self, rows: pa.Table) -> list[str | None]:
        if self._tar is not None:
            return self._tar.put(rows)
        if self._files is None:
            return rows.column("path").to_pylist()
        names = self._files.put(rows).column(FILE_NAME).to_pylist()
        if not self._sink.absolute:
            return names
        return [None if name is None else self._folder.path_of(name) for name in names]


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values are such as a line of a manifest has: no lists, objects or bytes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
                or pa.types.is_fixed_size_binary(kind) or isinstance(kind, pa.BaseExtensionType))
