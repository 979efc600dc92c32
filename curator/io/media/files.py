"""Files of any kind, one record a file: read and written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import xxhash

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator.api.stage import Contract, Outputs, SourceRange, Unit, setting
from curator.io.files.faults import explained
from curator.io.files.folder import Output, ahead, open_input
from curator.io.media.sink import MediaFiles, MediaSink, is_bytes, safe
from curator.io.media.types import extension_of
from curator.io.sink import Encoder, FileWriter
from curator.io.source import LASTING, PathSource
from curator.io.tables.plain import json_lines
from curator.io.tables.records import PIECE_BYTES, PIECE_ROWS, Failure, failed_rows
from curator.io.units import plan_units

ARROW_BYTES = (1 << 31) - 1  # the most that a binary column of one batch can hold
COLUMNS = {"id": pa.string(), "source": pa.string(), "bytes": pa.binary(), "extension": pa.string()}
_AT_ONCE = 8  # files that are written side by side
FILE_NAME = "file_name"
_ENDING = re.compile(r"[A-Za-z0-9_-]{1,16}(\.[A-Za-z0-9_-]{1,16})?")


@dataclass(kw_only=True)
class Files(PathSource):
    """Read files of any kind, one record a file.

    Columns: `id` (a hash of the file's path), `source` (its path), `bytes` (binary: its content as it is,
    empty if the file is) and `extension` (its ending in lower case, without the dot; "" if it has none). A
    file that cannot be read leaves on `failed`, one that is too large on `dropped`, reason `too_large`.

    `path`: files, folders, globs or URLs, one or several. `suffixes`: the endings that count in a folder
    (`[.jpg, .png]`), None for every file; a glob reads what it names, one that ends in `**` what
    its folder would. `max_file_bytes`: the largest file that is read. `storage_options`: what the filesystem
    wants (keys, endpoint). `unit_bytes`: about how much is read, and done again after a crash, as one.
    """

    suffixes: list[str] | None = setting(default=None)
    max_file_bytes: int = 256 << 20

    name = "files"
    # of a subclass that reads files of some kind; () for every file
    default_suffixes: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.suffixes, str) or self.suffixes == []:
            raise ValueError(f"suffixes must be a list of endings such as .jpg, got {self.suffixes!r}")
        if not 1 <= self.max_file_bytes <= ARROW_BYTES:
            raise ValueError(f"max_file_bytes must be from 1 to {ARROW_BYTES:,}, got {self.max_file_bytes}")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def units(self) -> list[Unit]:
        return plan_units(self.found(self._endings()), self.unit_bytes)

    def remarks(self) -> list[str]:
        return [] if self.suffixes else super().remarks()  # they were chosen

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows: list[dict[str, Any]] = []
        size = 0
        for part in ahead(unit.parts, self.storage_options, self._opens):
            content = self._content(part)
            if isinstance(content, bytes) and rows and size + len(content) > PIECE_BYTES:
                yield Outputs(out=_batch(rows))
                rows, size = [], 0
            if content is None:
                yield Outputs(dropped=_batch([_row(part, None)]).with_reason("too_large"))
            elif isinstance(content, InputError):
                yield Outputs(failed=failed_rows(part.uri, [Failure(part.uri, None, content)]))
            else:
                rows.append(_row(part, content))
                size += len(content)
            if len(rows) >= PIECE_ROWS or size >= PIECE_BYTES:
                yield Outputs(out=_batch(rows))
                rows, size = [], 0
        if rows:
            yield Outputs(out=_batch(rows))

    def _endings(self) -> tuple[str, ...]:
        if self.suffixes is None:
            return self.default_suffixes
        return tuple("." + suffix.lower().lstrip(".") for suffix in self.suffixes)

    def _content(self, part: SourceRange) -> bytes | InputError | None:
        """The file's bytes, None if they are too many, the error if it cannot be read now nor later."""
        if not self._opens(part):
            return None
        try:
            with explained("read", part.uri), open_input(part.uri, self.storage_options, None) as file:
                data = file.read(part.size_bytes + 1)
                if len(data) > part.size_bytes:  # it grew, or nobody knew its size
                    data += file.read(self.max_file_bytes + 1 - len(data))
        except InputError as error:
            if "://" in part.uri and not isinstance(error.__cause__, (type(None), *LASTING)):
                raise  # it may go away: the engine tries the unit again
            return error
        return data if len(data) <= self.max_file_bytes else None

    def _opens(self, part: SourceRange) -> bool:
        return part.size_bytes <= self.max_file_bytes


def _row(part: SourceRange, content: bytes | None) -> dict[str, Any]:
    return {"id": xxhash.xxh3_64_hexdigest(part.uri.encode()), "source": part.uri, "bytes": content,
            "extension": extension_of(part.uri)}


def _batch(rows: list[dict[str, Any]]) -> Batch:
    return Batch(rows=pa.table({name: pa.array([row[name] for row in rows], kind)
                                for name, kind in COLUMNS.items()}))


@dataclass(kw_only=True)
class ToFiles(MediaSink):
    """Write the column that `media` names as one file a record, and a Parquet file with all other columns.

    The files are `<name>/<key>.<extension>`, and beside that folder is `<name>.parquet`, whose column
    `file_name` (string) is the file's path below `path`, null where `media` is. With `by`, a column, they are
    `<value>/<name>-<key>.<extension>`: a folder for each value, as loaders of labelled folders want it
    (`null` for those without). The key is the column `key`, else the `id`, made safe as a file's name; where
    `extension` is no ending, the file has none. A column `file_name` that was there before is replaced.

    `beside`: further files of a record, ending to column: with `{jpg: sheet, txt: caption}` there is
    `<key>.jpg` with the bytes of the one and `<key>.txt` with the text of the other, where they are not null
    (`<key>.sheet.jpg` if the record's own file ends in `.jpg`). Bytes that are written so are not in the
    Parquet file. `json`: `<key>.json`, too, an object of all other columns but bytes.

    Files appear one by one; those of a unit that was not finished are removed when the run begins again. Many
    thousands of records are better kept as `webdataset`: each file costs a sync of the disk, and a line in
    the ledger of the run.
    """

    by: str | None = None
    beside: dict[str, str] = field(default_factory=dict)
    json: bool = False

    name = "to_files"
    ending: ClassVar[str] = ".parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [one for one in self.beside if not _ENDING.fullmatch(one) or (one == "json" and self.json)]
        if wrong:
            raise ValueError(f"beside: {wrong[0]!r} is no ending of its own, such as jpg or txt")

    def contract(self) -> Contract:
        named = [*([self.by] if self.by else []), *self.beside.values()]
        return Contract(needs=dict.fromkeys([*super().contract().needs, *named]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        super().check(columns)
        for name in self.beside.values():
            held = columns.get(name)
            if held is not None and not (is_bytes(held) or pa.types.is_string(held)
                                         or pa.types.is_null(held)):
                raise RecipeError(f"beside: the column {name!r} is {held}, neither bytes nor text; `json` "
                                  "writes what is neither")
        kind = None if self.by is None else columns.get(self.by)
        if kind is not None and pa.types.is_nested(kind):
            raise RecipeError(f"by: the column {self.by!r} is {kind}, and cannot name folders. Make one that "
                              "is text with `map`")

    def unasked(self) -> tuple[str, ...]:
        return (*super().unasked(), *([self.by] if self.by else []), *self.beside.values())

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        described = files.add(self.output(files.folder, stem + self.suffix()))
        return FilesOfRecords(files, stem, self.media, self.by, described, self.beside, self.json)


class FilesOfRecords(MediaFiles):
    """A file a record and what is beside it, named as `ToFiles` says. `described`: where the Parquet file
    goes, None for none."""

    def __init__(self, files: FileWriter, stem: str, media: str, by: str | None = None,
                 described: Output | None = None,
                 beside: Mapping[str, str] | None = None, json: bool = False) -> None:
        super().__init__(described)
        self._files, self._stem, self._media, self._by = files, stem, media, by
        self._beside, self._json = beside or {}, json

    def put(self, rows: pa.Table) -> pa.Table:
        contents = rows.column(self._media).to_pylist()
        naming = rows.select([name for name in ("id", "key", "extension", self._by)
                              if name in rows.column_names]).to_pylist()
        places = [None if content is None else self._place(one)
                  for content, one in zip(contents, naming, strict=True)]
        names = [None if place is None else ".".join(filter(None, place)) for place in places]
        apart = [name for name in self._beside.values() if is_bytes(rows.schema.field(name).type)]
        about = rows.drop_columns([n for n in dict.fromkeys((FILE_NAME, self._media, *apart))
                                   if n in rows.column_names])
        jobs = [*zip(names, contents, strict=True), *self._further(rows, about, places)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.put_file, *zip(*jobs, strict=True)))
        return about.append_column(FILE_NAME, pa.array(names, pa.string()))

    def _further(self, rows: pa.Table, about: pa.Table,
                 places: list[tuple[str, str] | None]) -> Iterator[tuple[str, bytes]]:
        """Files beside those at `places`."""
        columns = [(ending, column, rows.column(column).to_pylist())
                   for ending, column in self._beside.items()]
        if self._json:
            said = about.select([one.name for one in about.schema if not is_bytes(one.type)])
            columns.append(("json", "json", json_lines(said).split(b"\n")))
        for ending, column, values in columns:
            for place, value in zip(places, values, strict=False):
                if place is not None and value is not None:
                    base, own = place
                    name = (f"{base}.{column}.{ending}" if own.lower() == ending.lower()
                            else f"{base}.{ending}")
                    yield name, value.encode() if isinstance(value, str) else value

    def _place(self, record: dict[str, Any]) -> tuple[str, str]:
        """The path of a record's file, and its ending."""
        extension = str(record.get("extension") or "").lstrip(".")
        key = self.names.unique(safe(str(record["id"] if record.get("key") is None else record["key"])))
        extension = extension if _ENDING.fullmatch(extension) else ""
        if self._by is None:
            return f"{self._stem}/{key}", extension
        value = record[self._by]
        return f"{'null' if value is None else safe(str(value))}/{self._stem}-{key}", extension

    def put_file(self, name: str | None, content: bytes | None) -> None:
        if name is not None:
            with self._files.add(self._files.folder.open_file(name, "wb")) as output:
                output.write(content)
