"""All that a run writes in one file, whose name says the format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from curator.api.errors import InputError, RecipeError
from curator.api.stage import WrittenFile, setting
from curator.io.files.folder import Folder, list_files
from curator.io.sink import FileSink, TextSink
from curator.io.tables.arrow import ToArrow
from curator.io.tables.csv import ToCsv
from curator.io.tables.jsonl import ToJsonl
from curator.io.tables.parquet import ToParquet
from curator.io.tables.parts import rows_of, schema_of

ENDINGS: dict[str, type[FileSink]] = {".parquet": ToParquet, ".jsonl": ToJsonl, ".csv": ToCsv,
                                      ".arrow": ToArrow}
PACKED = ("gz", "zst")  # a text as a whole
BESIDE = ".run"  # after the file's name: the folder of the run
MADE = "_made.json"  # among the parts: how large the file is that a run made; null while one makes it


@dataclass(kw_only=True)
class ToFile(ToParquet):
    """Write one file: `.parquet`, `.jsonl`, `.csv` or `.arrow`; texts may end in `.gz` or `.zst` too.

    The run works in a folder beside it, `FILE.run`, as it would anywhere: parts, what was dropped, report and
    ledger lie there, and a run that stopped goes on. When it has ended well the parts are copied into the
    file, in the order of the input as far as stages keep it, by one process; the file appears whole, instead
    of the one before. A file that no run made, or that was changed since, is left alone: the run stops before
    it begins. The parts stay: all in all the rows are on disk twice.

    `file`: its path or URL. `path`: another folder for the run.
    """

    file: str = setting()

    name = "to_file"
    suffixes: ClassVar[tuple[str, ...]] = tuple(ENDINGS)

    def __post_init__(self) -> None:
        self.file = str(self.file)
        if kind_of(self.file) is None:
            raise RecipeError(f"{self.file!r} does not end in {', '.join(ENDINGS)}, or such a text in .gz or "
                              ".zst: say which file is to be written")
        self.path = self.file + BESIDE if self.path is None else self.path
        super().__post_init__()

    def may_publish(self) -> None:
        folder, name = self._place()
        if not folder.exists(name):
            return
        parts = Folder.open(str(self.path), self.storage_options)
        made = json.loads(parts.read(MADE))["size_bytes"] if parts.exists(MADE) else 0
        there = sum(file.size_bytes for file in list_files(self.file, self.storage_options, hidden=""))
        if made is not None and there not in (0, made):
            raise InputError(f"{self.file} is there, and the run with its parts in {parts.uri} did not make "
                             "it as it is now: move it away, or write another file")

    @property
    def place(self) -> str:
        """The file's full path or URL."""
        folder, name = self._place()
        return folder.path_of(name)

    def _place(self) -> tuple[Folder, str]:
        base, _, name = self.file.rpartition("/")
        base = base or ("/" if self.file.startswith("/") else ".")
        return Folder.open(base, self.storage_options), name

    def publish(self, files: Sequence[WrittenFile], about: str) -> str:
        folder, name = self._place()
        kind, packed = kind_of(self.file) or (ToParquet, None)
        packing: dict[str, Any] = {"compression": packed or "none"} if issubclass(kind, TextSink) else {}
        sink = kind(path=folder.uri, **packing)
        schema = schema_of(files, self.storage_options)
        folder.make()
        output = sink.output(folder, name)
        try:
            empty = sink.prepare(schema.empty_table())
            encoder = sink.start(output, empty.schema)
            encoder.write(empty)  # a file also where nothing comes
            for table in rows_of(files, self.storage_options, schema):
                encoder.write(sink.prepare(table))
            encoder.finish()
        except BaseException:
            output.abort()
            raise
        made = Folder.open(str(self.path), self.storage_options)
        made.write(MADE, json.dumps({"size_bytes": None}).encode())
        output.close()
        (there,) = list_files(self.file, self.storage_options, hidden="")
        made.write(MADE, json.dumps({"size_bytes": there.size_bytes}).encode())
        return f"{sum(file.rows for file in files)} records are in {self.file}"


def kind_of(file: str) -> tuple[type[FileSink], str | None] | None:
    """The sink whose format a file's name says, and how it is packed; None if it says none."""
    name, packed = file.lower(), None
    for codec in PACKED:
        if name.endswith(f".{codec}"):
            name, packed = name.removesuffix(f".{codec}"), codec
    found = next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)
    return None if found is None or (packed and found in (ToParquet, ToArrow)) else (found, packed)
