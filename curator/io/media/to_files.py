"""Write one file a record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Folder
from curator.io.media.sink import MediaSink, MetadataFile, Names, safe, sizes
from curator.io.sink import Encoder, OpenFiles

FILE_NAME = "file_name"
_AT_ONCE = 8  # files that are written side by side
_ENDING = re.compile(r"[A-Za-z0-9_-]{1,16}(\.[A-Za-z0-9_-]{1,16})?")


@dataclass(kw_only=True)
class ToFiles(MediaSink):
    """Write the column that `media` names as one file a record, and a Parquet file with all other columns.

    The files are `<name>/<key>.<extension>`, and beside that folder is `<name>.parquet`, whose column `file_name` (string) is
    the file's path below `path`, null where `media` is. With `by`, a column, they are
    `<value>/<name>-<key>.<extension>`: a folder for each value, as loaders of labelled folders want it (`null` for those
    without). The key is the column `key`, else the
    `id`, made safe as a file's name; where `extension` is no ending, the file has none. A column `file_name` that was there
    before is replaced.

    Files appear one by one; those of a unit that was not finished are removed when the run begins again. Many thousands of
    records are better kept as `webdataset`: each file costs a sync of the disk, and a line in the ledger of the run.
    """

    by: str | None = None

    name = "to_files"

    def contract(self) -> Contract:
        return Contract(needs={**super().contract().needs, **({self.by: None} if self.by else {})})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        super().check(columns)
        kind = None if self.by is None else columns.get(self.by)
        if kind is not None and pa.types.is_nested(kind):
            raise RecipeError(f"by: the column {self.by!r} is {kind}, and cannot name folders. Make one that is text with `map`")

    def unasked(self) -> tuple[str, ...]:
        return (*super().unasked(), *([self.by] if self.by else []))

    def suffix(self) -> str:
        return ".parquet"

    def begin(self, files: OpenFiles, stem: str, schema: pa.Schema) -> Encoder:
        return FilesOfRecords(self, files, stem, MetadataFile(files.add(self.output(files.folder, stem + self.suffix()))))


@dataclass
class FilesOfRecords:
    sink: ToFiles
    files: OpenFiles
    stem: str
    metadata: MetadataFile
    _names: Names = field(default_factory=Names)

    def write(self, rows: pa.Table) -> int:
        contents = rows.column(self.sink.media).to_pylist()
        naming = rows.select([name for name in ("id", "key", "extension", self.sink.by) if name in rows.column_names])
        names = [None if content is None else self._name(record)
                 for content, record in zip(contents, naming.to_pylist(), strict=True)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._put, names, contents))
        about = rows.drop_columns([n for n in (FILE_NAME, self.sink.media) if n in rows.column_names])
        self.metadata.write(about.append_column(FILE_NAME, pa.array(names, pa.string())))
        return int(sizes(rows).sum())

    def finish(self) -> None:
        self.metadata.finish()

    def abandon(self) -> None:
        self.metadata.abandon()

    def _name(self, record: dict[str, Any]) -> str:
        extension = str(record.get("extension") or "").lstrip(".")
        key = self._names.unique(safe(str(record["id"] if record.get("key") is None else record["key"])))
        name = f"{key}.{extension}" if _ENDING.fullmatch(extension) else key
        if self.sink.by is None:
            return f"{self.stem}/{name}"
        value = record[self.sink.by]
        return f"{'null' if value is None else safe(str(value))}/{self.stem}-{name}"

    def _put(self, name: str | None, content: bytes | None) -> None:
        if name is not None:
            folder: Folder = self.files.folder
            with self.files.add(folder.open_file(name, "wb")) as output:
                output.write(content)
