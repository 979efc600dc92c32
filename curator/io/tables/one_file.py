"""All that a run writes in one file, whose name says the format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import WrittenFile, setting
from curator.io.files.folder import Folder, open_input
from curator.io.sink import FileSink, TextSink
from curator.io.tables.arrow import ToArrow
from curator.io.tables.csv import ToCsv
from curator.io.tables.jsonl import ToJsonl
from curator.io.tables.parquet import ToParquet

ENDINGS: dict[str, type[FileSink]] = {".parquet": ToParquet, ".jsonl": ToJsonl, ".csv": ToCsv,
                                      ".arrow": ToArrow}
PACKED = ("gz", "zst")  # a text as a whole
BESIDE = ".run"  # after the file's name: the folder of the run
ROWS = 4096  # that are copied at a time


@dataclass(kw_only=True)
class ToFile(ToParquet):
    """Write one file: `.parquet`, `.jsonl`, `.csv` or `.arrow`; texts may end in `.gz` or `.zst` too.

    The run works in a folder beside it, `FILE.run`, as it would anywhere: parts, what was dropped, report and
    ledger lie there, and a run that stopped goes on. When it has ended well the parts are copied into the
    file, in the order of the input as far as stages keep it, by one process; the file appears whole, instead
    of the one before. The parts stay: all in all the rows are on disk twice.

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

    def publish(self, files: Sequence[WrittenFile], about: str) -> str:
        base, _, name = self.file.rpartition("/")
        folder = Folder.open(base or ("/" if self.file.startswith("/") else "."), self.storage_options)
        kind, packed = kind_of(self.file) or (ToParquet, None)
        packing = {"compression": packed or "none"} if issubclass(kind, TextSink) else {}
        sink = kind(path=base or ".", **packing)
        parts = [file.path for file in files]
        schema = pa.unify_schemas([self._schema(part) for part in parts] or [pa.schema([])],
                                  promote_options="permissive")
        folder.make()
        output = sink.output(folder, name)
        try:
            empty = sink.prepare(schema.empty_table())
            encoder = sink.start(output, empty.schema)
            encoder.write(empty)  # a file also where nothing comes
            for table in self._tables(parts, schema):
                encoder.write(sink.prepare(table))
            encoder.finish()
        except BaseException:
            output.abort()
            raise
        output.close()
        return f"{sum(file.rows for file in files)} records are in {self.file}"

    def _schema(self, part: str) -> pa.Schema:
        import pyarrow.parquet as pq

        with open_input(part, self.storage_options, None) as opened:
            return pq.read_schema(opened).remove_metadata()

    def _tables(self, parts: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
        import pyarrow.parquet as pq

        for part in parts:
            with open_input(part, self.storage_options, None) as opened:
                for batch in pq.ParquetFile(opened).iter_batches(ROWS):
                    rows = pa.Table.from_batches([batch]).replace_schema_metadata()
                    columns = [rows.column(field.name).cast(field.type) if field.name in rows.column_names
                               else pa.nulls(len(rows), field.type) for field in schema]
                    yield pa.table(columns, schema=schema)


def kind_of(file: str) -> tuple[type[FileSink], str | None] | None:
    """The sink whose format a file's name says, and how it is packed; None if it says none."""
    name, packed = file.lower(), None
    for codec in PACKED:
        if name.endswith(f".{codec}"):
            name, packed = name.removesuffix(f".{codec}"), codec
    found = next((kind for ending, kind in ENDINGS.items() if name.endswith(ending)), None)
    return None if found is None or (packed and found in (ToParquet, ToArrow)) else (found, packed)
