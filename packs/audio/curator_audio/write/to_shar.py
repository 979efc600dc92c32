"""lhotse shar: cuts in JSON Lines, and their recordings in tar archives, in the same order."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, ClassVar

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.compression import compressed
from curator.io.media.sink import MediaSink, is_bytes, safe, sizes
from curator.io.media.tar import END
from curator.io.sink import Encoder, FileWriter
from curator.io.tables.plain import json_lines
from curator_audio.write.members import ending_of, member

_DERIVED = ("duration", "sample_rate", "channels")  # said by the recording itself
_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(kw_only=True)
class ToShar(MediaSink):
    """Write lhotse shar: `<name>/cuts.000000.jsonl.gz` and `<name>/recording.000000.tar`, 1,000 cuts a shard.

    A record is a cut: `id`, the recording with rate, samples and channels as the header of the file in the
    column that `media` names says them (of a format that libsndfile cannot read, what `sample_rate`,
    `channels` and `duration` say; 0 where nobody does), and one supervision over all of it with the columns
    that `text`, `speaker`, `language`, `gender` and `words` (as alignment) name, if one of them is not null.
    All other columns but binary ones are custom fields. In the tar are `<id>.<extension>` and `<id>.json`,
    its manifest; a null has `.nodata` and `.nometa`. An id that would be no path of a file is made safe;
    `audio.shar` gives it back, as it does all else. The same records give the same bytes.

    The records of one unit of the source are a folder, which `CutSet.from_shar(in_dir=…)` reads. All of them:
    `CutSet.from_shar(fields={"cuts": sorted(glob("out/data/*/cuts.*")), "recording":
    sorted(glob("out/data/*/recording.*"))})`.

    `media`: the column with the encoded files, as `audio.encode` and readers give it.
    `text`, `speaker`, `language`, `gender`: the column that becomes this of the supervision; there need be
    none.
    `words`: the column (list of word, start, end, score; seconds of the record) that becomes its alignment;
    there need be none.
    `select`: the columns to write; `id` and those of the supervision are written too.
    `records`: a shard is closed after so many.

    Known difference: lhotse numbers its shards through; ours are numbered within the folder of a unit.
    Source: lhotse 1.33, shar/writers
    """

    records: int | None = 1000
    text: str = "text"
    speaker: str = "speaker"
    language: str = "language"
    gender: str = "gender"
    words: str = "words"

    name = "to_shar"
    ending: ClassVar[str] = ".jsonl.gz"
    fixed_columns: ClassVar[bool] = False

    def contract(self) -> Contract:
        usual = {"text", "speaker", "language", "gender", "words"}
        named = [name for name in self.said() if name not in usual]
        return Contract(needs=dict.fromkeys([self.media, *named, *(self.select or ())]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        super().check(columns)
        kind = columns.get(self.words)
        if kind is not None and not _has_times(kind):
            raise RecipeError(f"words: the column {self.words!r} is {kind}, not a list of objects with word, start "
                              "and end")

    def unasked(self) -> tuple[str, ...]:
        return (*super().unasked(), *_DERIVED, *self.said())

    def said(self) -> tuple[str, ...]:
        """The columns of the supervision."""
        return self.text, self.speaker, self.language, self.gender, self.words

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        return _Shard(self, files, stem)


class _Shard(Encoder):
    def __init__(self, sink: ToShar, files: FileWriter, stem: str) -> None:
        self._sink = sink
        folder, _, number = stem.rpartition("-")
        cuts = files.folder.open_file(f"{folder}/cuts.{int(number):06d}.jsonl.gz", "wb")
        self._cuts = files.add(compressed(cuts, "gz"))
        self._tar = files.add(files.folder.open_file(f"{folder}/recording.{int(number):06d}.tar", "wb"))
        self._ids: set[str] = set()

    def write(self, rows: pa.Table) -> int:
        sink = self._sink
        about = {name: _values(rows, name) for name in ("id", "extension", *_DERIVED, *sink.said())}
        beside = {"id", "extension", sink.media, *_DERIVED, *sink.said()}
        custom = [one.name for one in rows.schema if one.name not in beside and not is_bytes(one.type)]
        objects = json_lines(rows.select(custom)).split(b"\n") if custom else [b"{}"] * len(rows)
        for at, content in enumerate(rows.column(sink.media)):
            record = {name: values[at] for name, values in about.items()}
            self._put(record, content.as_buffer() if content.is_valid else None, str(objects[at], "utf-8"))
        return int(sizes(rows).sum())

    def finish(self) -> None:
        self._tar.write(END)

    def _put(self, record: dict[str, Any], content: Any, custom: str) -> None:
        """One cut, and its recording."""
        key = self._key(record["id"])
        extension = ending_of(record["extension"], "bin")  # which `audio.shar` takes for no ending
        kept = {} if key == record["id"] else {"id": record["id"]}
        if record["extension"] not in (None, extension) or (record["extension"] and content is None):
            kept["extension"] = record["extension"]
        recording = None
        if content is None:
            self._tar.write(member(f"{key}.nodata", b"") + member(f"{key}.nometa", b""))
            seconds, channel = _number(record["duration"]), 0
        else:
            recording = _recording(key, record, memoryview(content))
            seconds, channels = recording["duration"], recording["channel_ids"]
            channel = channels[0] if len(channels) == 1 else channels
            self._tar.write(member(f"{key}.{extension}", content))
            self._tar.write(member(f"{key}.json", _ENCODE(recording).encode() + b"\n"))
        cut = {"id": key, "start": 0, "duration": seconds, "channel": channel,
               "supervisions": self._supervisions(record, key, seconds, channel)}
        if recording is not None:
            cut["recording"] = recording
        kind = "MonoCut" if channel == 0 else "MultiCut"
        self._cuts.write(f'{_ENCODE(cut)[:-1]}, "custom": {_with(custom, kept)}, "type": "{kind}"}}\n'.encode())

    def _key(self, record: str) -> str:
        """The id, or another one where it cannot be the name of a file, or was there before."""
        key = base = record if is_path(record) else safe(record)
        count = 1
        while key in self._ids:
            count += 1
            key = f"{base}-{count}"
        self._ids.add(key)
        return key

    def _supervisions(self, record: dict[str, Any], key: str, seconds: float,
                      channel: Any) -> list[dict[str, Any]]:
        text, speaker, language, gender, words = (record[name] for name in self._sink.said())
        if text is speaker is language is gender is words is None:
            return []
        said = {"text": text, "language": language, "speaker": speaker, "gender": gender}
        made = {"id": key, "recording_id": key, "start": 0, "duration": seconds, "channel": channel,
                **{name: str(value) for name, value in said.items() if value is not None}}
        if words is not None:
            made["alignment"] = {"word": [_symbol(word) for word in words if word is not None]}
        return [made]


def is_path(key: str) -> bool:
    """Whether a file can be called so, and lhotse finds the same again in the name of a member."""
    path = PurePosixPath(f"{key}.x")
    return key.isprintable() and not key.startswith("/") and ".." not in path.parts \
        and str(path.parent / path.stem) == key


def _recording(key: str, record: dict[str, Any], data: memoryview) -> dict[str, Any]:
    """The manifest of a recording whose file follows."""
    rate, count, channels = header_of(data) or (0, 0, 0)
    if not rate:
        rate, channels = int(_number(record["sample_rate"])), int(_number(record["channels"])) or 1
        count = round(_number(record["duration"]) * rate)
    ids = list(range(channels))
    return {"id": key, "sources": [{"type": "shar", "channels": ids, "source": ""}], "sampling_rate": rate,
            "num_samples": count, "duration": count / rate if rate else _number(record["duration"]), "channel_ids": ids}


def header_of(data: memoryview) -> tuple[int, int, int] | None:
    """Rate, samples and channels, as the header of a file has them; None where libsndfile cannot tell.

    Source: RFC 9639, section 8.2, for FLAC, whose header libsndfile takes fifty times as long to read.
    """
    if data[:4] == b"fLaC" and len(data) >= 26:
        packed = int.from_bytes(data[18:26], "big")
        rate, count = packed >> 44, packed & (1 << 36) - 1
        if rate and count:
            return rate, count, (packed >> 41 & 7) + 1
    import soundfile

    try:
        about = soundfile.info(io.BytesIO(data))
    except soundfile.LibsndfileError:
        return None
    return (about.samplerate, about.frames, about.channels) if 0 < about.frames < 1 << 40 else None


def _symbol(word: dict[str, Any]) -> list[Any]:
    """An item of an alignment: symbol, start, duration, score."""
    start, end = word["start"], word["end"]
    seconds = None if start is None or end is None else round(end - start, 8)
    return [word["word"], start, seconds, word.get("score")]


def _with(custom: str, more: dict[str, Any]) -> str:
    """The object with some keys more."""
    if not more:
        return custom
    return _ENCODE(more) if custom == "{}" else f"{custom[:-1]},{_ENCODE(more)[1:]}"


def _values(rows: pa.Table, name: str) -> list[Any]:
    return rows.column(name).to_pylist() if name in rows.column_names else [None] * len(rows)


def _number(value: Any) -> float:
    return 0 if value is None or value != value else value


def _has_times(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    return pa.types.is_null(kind) or (inner is not None and pa.types.is_struct(inner)
                                      and {"word", "start", "end"} <= {field.name for field in inner})
