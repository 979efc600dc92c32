"""Write Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from curator.api.errors import InputError
from curator.io.files.folder import Output
from curator.io.sink import FileSink
from curator.io.tables.plain import as_json_text

_CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")


@dataclass(kw_only=True)
class ToParquet(FileSink):
    """Write Parquet files, compressed with zstd unless `compression` says snappy, gzip, lz4, brotli or none.

    Every type comes back as it was, but for objects without any key, which Parquet does not have: a column with such is
    written as JSON text. A row group holds about 32 MB of data.
    """

    compression: str | None = "zstd"  # zstd, snappy, gzip, lz4, brotli or none

    name = "to_parquet"
    buffer_bytes: ClassVar[int] = 32 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.compression or "none") not in _CODECS:
            raise ValueError(f"compression must be one of {', '.join(_CODECS)}, got {self.compression!r}")

    def suffix(self) -> str:
        return ".parquet"

    def prepare(self, rows: pa.Table) -> pa.Table:
        return storable(rows)

    def start(self, output: Output, schema: pa.Schema) -> ParquetFile:
        return ParquetFile(output, schema, self.compression or "none")


class ParquetFile:
    def __init__(self, output: Output, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        try:
            self._writer = pq.ParquetWriter(pa.PythonFile(output, mode="w"), schema, compression=compression)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"cannot write {output.uri}: Parquet has no such type: {error}") from error

    def write(self, rows: pa.Table) -> int:
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        return rows.nbytes

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        self._writer.is_open = False  # or its destructor would write the end of the file


def storable(rows: pa.Table) -> pa.Table:
    """The rows with JSON text in place of objects without any key."""
    for at, column in enumerate(rows.schema):
        if _has_empty_struct(column.type):
            rows = rows.set_column(at, column.name, as_json_text(rows.column(at)))
    return rows


def _has_empty_struct(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    return any(_has_empty_struct(kind.field(i).type) for i in range(kind.num_fields))
