"""Subtitles and times of words and speakers, a file a recording or a file of many."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Output
from curator.io.media.files import FILE_NAME, FilesOfRecords
from curator.io.media.sink import is_bytes, safe
from curator.io.sink import Encoder, FileSink, FileWriter
from curator_audio.voices.turns import Turn
from curator_audio.write.subtitles import Layout, Said, Word, ctm, rttm, srt, textgrid, vtt

ENDINGS = {"srt": "srt", "vtt": "vtt", "textgrid": "TextGrid", "ctm": "ctm", "rttm": "rttm"}
_AT_ONCE = 8  # files that are written side by side
_WORDS, _TEXTS = ("alignment", "words"), ("text", "transcript")  # the first that says something is taken
_WANT = {"srt": "words or a text", "vtt": "words or a text", "ctm": "words", "rttm": "turns",
         "textgrid": "words, a text or turns"}


@dataclass(kw_only=True)
class ToSubtitles(FileSink):
    """Write what is said when as subtitles (SubRip, WebVTT), TextGrid (Praat), CTM or RTTM.

    `srt`, `vtt` and `textgrid` are a file a record, `<name>/<key>.srt`; `ctm` and `rttm` one file for many,
    `<name>.ctm`, with the key in each line. The key is the column `key`, else the `id`. Beside them is
    `<name>.parquet` with all columns but binary ones and `file_name`, null where there is nothing to say. The
    same records give the same bytes.

    Subtitles are made of the times of words, a new one at a pause, behind a sentence and where no more fits;
    without such times, of the text of a record, of whose words each gets as much time as it has letters. CTM
    has the words with times, and as confidence e to the power of their score; RTTM the turns of speakers;
    TextGrid a tier for words, one for texts and one for each speaker.

    `format`: `srt`, `vtt`, `textgrid`, `ctm` or `rttm`.
    `by`: a column whose value records share (`source`, `parent`): they become one file, named by the last
    part of the value, with times counted from its beginning (`start_s` is added). Only records of one unit of
    the source are joined; pieces of a recording always are.
    `text`: the column of what is said; None takes `text`, and where that is null `transcript`.
    `words`: the column of words with times; None takes `alignment`, and where that is null or empty `words`.
    `turns`: the column of turns of speakers.
    `max_chars`: letters of a subtitle; more than half of them are broken into two lines.
    `max_seconds`: the longest subtitle, unless one word is longer.
    `gap_s`: the pause at which a subtitle ends.
    `select`: the columns of the Parquet files.

    Source: two lines of 42 characters and 7 seconds, Netflix Timed Text Style Guide, general requirements.
    """

    format: Literal["srt", "vtt", "textgrid", "ctm", "rttm"] = "srt"
    by: str | None = None
    text: str | None = None
    words: str | None = None
    turns: str = "turns"
    max_chars: int = 84
    max_seconds: float = 7.0
    gap_s: float = 1.0

    name = "to_subtitles"
    ending: ClassVar[str] = ".parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in ENDINGS:
            raise ValueError(f"format is one of {', '.join(ENDINGS)}, got {self.format!r}")
        if self.max_chars < 10 or self.max_seconds <= 0 or self.gap_s <= 0:
            raise ValueError(f"max_chars is 10 or more, max_seconds and gap_s are above 0, got {self.max_chars}, "
                             f"{self.max_seconds} and {self.gap_s}")

    def contract(self) -> Contract:
        named = [self.by, self.text, self.words, *(self.select or ())]
        named += ["start_s"] if self.by is not None else []
        return Contract(needs=dict.fromkeys(name for name in named if name is not None))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        lists = [name for name in self.word_columns() if _is_list(columns, name, {"word", "start", "end"})]
        texts = [name for name in self.text_columns() if name in columns]
        turns = [self.turns] if _is_list(columns, self.turns, {"start", "end", "speaker"}) else []
        found = {"ctm": lists, "rttm": turns, "textgrid": lists + texts + turns}.get(self.format, lists + texts)
        if not found:
            raise RecipeError(f"{self.format} is made of {_WANT[self.format]}, and there is no such column: words (list "
                              "of word, start, end) come of audio.transcribe and audio.align, turns (list of start, "
                              f"end, speaker) of audio.speakers and audio.rttm. There are {', '.join(columns)}")

    def word_columns(self) -> tuple[str, ...]:
        return _WORDS if self.words is None else (self.words,)

    def text_columns(self) -> tuple[str, ...]:
        return _TEXTS if self.text is None else (self.text,)

    def chosen(self, rows: pa.Table) -> pa.Table:
        names = rows.column_names
        if self.select is not None:
            read = ("id", "key", "duration", "start_s", self.by, self.turns, *self.word_columns(), *self.text_columns())
            names = dict.fromkeys([*self.select, *(name for name in read if name in names)])
        return rows.select([name for name in names if not is_bytes(rows.schema.field(name).type)])

    def room(self, rows: pa.Table, written: int, written_bytes: int) -> int:
        return rows.num_rows

    def is_full(self, written: int, written_bytes: int) -> bool:
        return self.by is None and super().is_full(written, written_bytes)  # records of one value stay together

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        return _Subtitles(self, files, stem, files.add(self.output(files.folder, stem + self.suffix())))


class _Subtitles(FilesOfRecords):
    def __init__(self, sink: ToSubtitles, files: FileWriter, stem: str, described: Output) -> None:
        super().__init__(files, stem, "", described=described)
        self._sink, self._layout = sink, Layout(sink.max_chars, sink.max_seconds, sink.gap_s)
        self._stem = stem
        self._said: dict[Any, Said] = {}  # what is not written yet, by value or by row
        self._many: Output | None = None
        if sink.format in ("ctm", "rttm"):
            self._many = files.add(files.folder.open_file(f"{stem}.{sink.format}", "wb"))

    def put(self, rows: pa.Table) -> pa.Table:
        sink, names = self._sink, list[str | None]()
        for record in rows.to_pylist():
            key = record["id"] if record.get("key") is None else record["key"]
            if sink.by is not None:
                value = record[sink.by]
                last = posixpath.basename(str(value).rstrip("/"))
                key = "null" if value is None else posixpath.splitext(last)[0]
            shared = len(names) if sink.by is None else record[sink.by]
            if shared not in self._said:
                self._said[shared] = Said(self.names.unique(safe(str(key))))
            said = self._said[shared]
            told = self._add(said, record)
            names.append(self._file_of(said.name) if told else None)
        if sink.by is None:
            self._flush()
        about = rows.drop_columns([FILE_NAME]) if FILE_NAME in rows.column_names else rows
        return about.append_column(FILE_NAME, pa.array(names, pa.string()))

    def finish(self) -> None:
        self._flush()
        super().finish()

    def _file_of(self, name: str) -> str:
        ending = ENDINGS[self._sink.format]
        return f"{self._stem}.{ending}" if self._many is not None else f"{self._stem}/{name}.{ending}"

    def _add(self, said: Said, record: dict[str, Any]) -> bool:
        """What a record says, at its place in the file; whether it says anything that the format has."""
        sink, seconds = self._sink, record.get("duration") or 0.0
        start = 0.0 if sink.by is None else record["start_s"] or 0.0
        words = list(_words(_first(record, sink.word_columns()) or (), start))
        text = " ".join(str(_first(record, sink.text_columns()) or "").split())
        turns = [Turn(start + one["start"], start + one["end"], one["speaker"] or "")
                 for one in _first(record, (sink.turns,)) or ()]
        is_said = bool(words) or (text != "" and seconds > 0)
        if is_said:
            end = max([start + seconds, *(word.end for word in words)])
            said.texts.append((Word(start, end, text or " ".join(word.text for word in words)), words))
        said.turns += turns
        said.end = max(said.end, start + seconds)
        told = {"ctm": bool(words), "rttm": bool(turns), "textgrid": is_said or bool(turns)}
        return told.get(sink.format, is_said)

    def _flush(self) -> None:
        found = [said for said in self._said.values() if said.texts or said.turns]
        self._said = {}
        if self._many is not None:
            write = ctm if self._sink.format == "ctm" else rttm
            self._many.write("".join(map(write, found)).encode())
            return
        found = [said for said in found if said.texts or self._sink.format == "textgrid"]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.put_file, (self._file_of(said.name) for said in found),
                          (self._text(said).encode() for said in found)))

    def _text(self, said: Said) -> str:
        if self._sink.format == "textgrid":
            return textgrid(said)
        return (srt if self._sink.format == "srt" else vtt)(said, self._layout)


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of these columns that has one."""
    return next((found for name in names if (found := record.get(name))), None)


def _words(given: Any, start: float) -> Iterator[Word]:
    """Words with times, `start` later; one without is where the one before it ends."""
    at = start
    for one in given:
        begins = at if one["start"] is None else start + one["start"]
        ends = begins if one["end"] is None else start + one["end"]
        text = " ".join((one["word"] or "").split())
        if text:
            yield Word(begins, max(begins, ends), text, one.get("score"))
        at = ends


def _is_list(columns: Mapping[str, pa.DataType | None], name: str, names: set[str]) -> bool:
    """Whether the column is there, and can be a list of objects with these names."""
    kind = columns.get(name)
    if kind is None or pa.types.is_null(kind):
        return name in columns
    inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
    return inner is not kind and pa.types.is_struct(inner) and names <= {one.name for one in inner}
