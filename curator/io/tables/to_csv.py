"""Write CSV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from curator.io.files.folder import Output
from curator.io.sink import TextSink
from curator.io.tables.plain import flat


@dataclass(kw_only=True)
class ToCsv(TextSink):
    """Write CSV files with a header line, `.csv` unless `compression` says `gz` or `zst`.

    CSV has no types: null becomes an empty field, nested values JSON text, dates ISO 8601 text, binary values base64.
    A column that appears later begins a new file.
    """

    delimiter: str = ","  # one character; with a tab files are called `.tsv`

    name = "to_csv"
    buffer_bytes: ClassVar[int] = 4 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter.encode()) != 1:
            raise ValueError(f"delimiter must be one ASCII character, got {self.delimiter!r}")

    def plain_suffix(self) -> str:
        return ".tsv" if self.delimiter == "\t" else ".csv"

    def prepare(self, rows: pa.Table) -> pa.Table:
        return flat(rows)

    def start(self, output: Output, schema: pa.Schema) -> CsvFile:
        return CsvFile(output, schema, self.delimiter)


class CsvFile:
    def __init__(self, output: Output, schema: pa.Schema, delimiter: str) -> None:
        import pyarrow.csv as pcsv

        options = pcsv.WriteOptions(delimiter=delimiter)
        self._writer = pcsv.CSVWriter(pa.PythonFile(output, mode="w"), schema, write_options=options)

    def write(self, rows: pa.Table) -> int:
        if rows.num_columns == 1 and rows.column(0).null_count:  # a line without anything would be no row
            rows = rows.set_column(0, rows.column_names[0], pc.fill_null(rows.column(0).cast(pa.string()), ""))
        self._writer.write_table(rows)
        return rows.nbytes

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        """Nothing: pyarrow writes only when it is told to."""
