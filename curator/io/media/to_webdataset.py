"""Write WebDataset shards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec
import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Output
from curator.io.media.sink import MediaFiles, MediaSink, is_bytes, safe
from curator.io.media.tar import END, header, padding
from curator.io.sink import Encoder, FileWriter
from curator.io.tables.plain import json_lines

_ENDING = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
_KEY = re.compile(r"(?!__[^/]*__(/|$))(?:(?!\.{0,2}/)[^/\x00-\x1f]+/)*[^./\x00-\x1f]+")
_TAKEN = ("json", "txt", "text", "cls")  # endings that mean another part


@dataclass(kw_only=True)
class ToWebDataset(MediaSink):
    """Write WebDataset shards: `name.tar` with a sample a record, and beside it `name.parquet` with their
    metadata.

    A sample has `<key>.<extension>` with the column that `media` names, `<key>.json` with all columns that
    are no part of their own (as `jsonl` has them, `id` and `source` included), `<key>.txt` with the column
    that `text` names, `<key>.cls` with the column `cls` where that is whole numbers, and `<key>.<column>.bin`
    with each further binary column. A null has no part. The key is the column `key`, else the `id`; where it
    would be no good name, or comes twice in the shard, the part's name is made safe and the json keeps what
    was there. The same records give the same bytes.

    The `webdataset` source reads all of it back as it was, dates and times as text, `media` as `bytes`. The
    Parquet file has the samples in the same order, with every column but `media`; its `key` is the name in
    the tar.

    `text`: a column other than `txt` stays in the json too. `extension`: the ending where the column
    `extension` has none that will do. `metadata`: False for no Parquet files. `metadata_only`: columns that
    stand in the Parquet file and not in the shard (a thumbnail), which then no shard gives back.
    """

    text: str = "txt"
    extension: str = "bin"
    metadata: bool = True
    metadata_only: list[str] | None = None

    name = "to_webdataset"
    ending: ClassVar[str] = ".tar"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_ending(self.extension):
            raise ValueError("extension must be an ending such as jpg, in lower case and none of "
                             f"{', '.join(_TAKEN)}, got {self.extension!r}")
        if self.metadata_only and not self.metadata:
            raise ValueError("metadata_only names columns for the Parquet files, of which metadata: false "
                             "makes none")
        parts = [n for n in self.metadata_only or ()
                 if n in ("id", "source", "key", "extension", self.media, self.text)]
        if parts:
            raise ValueError(f"metadata_only names {', '.join(parts)}, which a sample is made of; leave it "
                             "out")

    def contract(self) -> Contract:
        return Contract(needs=dict.fromkeys([*super().contract().needs, *(self.metadata_only or ())]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        super().check(columns)
        kind = columns.get(self.text)
        if self.text not in columns and self.text != "txt":
            raise RecipeError(f"text: there is no column {self.text!r} to write as .txt; there are "
                              f"{', '.join(columns)}")
        if kind is not None and self.text != "txt" and not _is_text(kind):
            raise RecipeError(f"text: the column {self.text!r} is {kind}, not text")

    def unasked(self) -> tuple[str, ...]:
        return (*super().unasked(), self.text, *(self.metadata_only or ()))

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        shard = files.add(self.output(files.folder, stem + self.suffix()))
        described = files.add(files.folder.open_file(f"{stem}.parquet", "wb")) if self.metadata else None
        return _Shard(self, shard, described)


class _Shard(MediaFiles):
    def __init__(self, sink: ToWebDataset, output: Output, described: Output | None) -> None:
        super().__init__(described)
        self._sink, self._output = sink, output

    def put(self, rows: pa.Table) -> pa.Table:
        keys, beside = self._keys(rows), set(self._sink.metadata_only or ())
        for members in self._samples(rows.select([n for n in rows.column_names if n not in beside]), keys):
            self._output.write(b"".join(piece for name, content in members
                                        for piece in (header(name, len(content)), content,
                                                      padding(len(content)))))
        about = rows.drop_columns([n for n in ("key", self._sink.media) if n in rows.column_names])
        return about.add_column(0, "key", pa.array(keys, pa.string()))

    def finish(self) -> None:
        self._output.write(END)
        super().finish()

    def _keys(self, rows: pa.Table) -> list[str]:
        ids = rows.column("id").to_pylist()
        given = _texts(rows, "key")
        return [self.names.unique(key if key and _KEY.fullmatch(key) else safe(key or record))
                for key, record in zip(given, ids, strict=True)]

    def _samples(self, rows: pa.Table, keys: list[str]) -> Iterator[list[tuple[str, bytes]]]:
        """The members of each record, the media first: readers take the first part for it."""
        sink, parts = self._sink, _parts(rows, self._sink)
        elsewhere = [name for name, (ending, _) in parts.items() if ending != "txt" or name == "txt"]
        elsewhere += [name for name in ("key", "extension") if _names_things(rows, name)]
        objects = json_lines(rows.drop_columns([sink.media, *elsewhere])).split(b"\n")
        media, contents = rows.column(sink.media).to_pylist(), {n: rows.column(n).to_pylist() for n in parts}
        given = zip(keys, media, _texts(rows, "extension"), _texts(rows, "key"), strict=True)
        for at, (key, content, extension, own_key) in enumerate(given):
            plain = (extension or "").lower().lstrip(".")
            ending = plain if is_ending(plain) else sink.extension
            members = [] if content is None else [(f"{key}.{ending}", content)]
            kept = {"key": own_key if own_key != key else None,
                    "extension": extension if content is None or extension != ending else None}
            members.append((f"{key}.json", _with(objects[at], kept)))
            members += [(f"{key}.{end}", write(contents[name][at])) for name, (end, write) in parts.items()
                        if contents[name][at] is not None]
            yield members


def is_ending(extension: str) -> bool:
    """Whether readers take a part with this ending for the media, and give the ending back as it is."""
    last = extension.rpartition(".")[2]
    return bool(_ENDING.fullmatch(extension)) and last not in _TAKEN and (last != "bin" or last == extension)


def _parts(rows: pa.Table, sink: ToWebDataset) -> dict[str, tuple[str, Callable[[Any], bytes]]]:
    """The columns that are parts of their own, each with its ending and how a value of it is written."""
    found: dict[str, tuple[str, Callable[[Any], bytes]]] = {}
    for column in rows.schema:
        if column.name == sink.media:
            continue
        if column.name == sink.text and _is_text(column.type):
            found[column.name] = ("txt", str.encode)
        elif (column.name == "cls" and pa.types.is_integer(column.type)
              and not column.type.equals(pa.uint64())):
            found[column.name] = ("cls", lambda value: b"%d" % value)
        elif is_bytes(column.type):
            found[column.name] = (f"{quote(column.name, safe=' ')}.bin", bytes)
    return found


def _with(line: bytes, more: dict[str, str | None]) -> bytes:
    """The object with what differs from what readers would derive."""
    kept = {name: value for name, value in more.items() if value is not None}
    return line[:-1] + b"," + msgspec.json.encode(kept)[1:] if kept else line


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or (
        pa.types.is_dictionary(kind) and _is_text(kind.value_type))


def _names_things(rows: pa.Table, name: str) -> bool:
    """Whether the column is there, and holds names: texts or whole numbers."""
    kind = rows.schema.field(name).type if name in rows.column_names else pa.null()
    return _is_text(kind) or pa.types.is_integer(kind)


def _texts(rows: pa.Table, name: str) -> list[str | None]:
    """The names in a column; None for each where it holds none."""
    values = rows.column(name).to_pylist() if _names_things(rows, name) else [None] * rows.num_rows
    return [None if value is None else str(value) for value in values]
