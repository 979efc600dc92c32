"""Parquet files, read by row groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange
from curator.io.files.faults import explained, is_damage
from curator.io.files.folder import FileInfo, Output, open_input
from curator.io.files.reading import has_read
from curator.io.sink import Encoder, FileSink
from curator.io.source import FileSource, failures, unreadable
from curator.io.tables.columns import Seen
from curator.io.tables.plain import as_json_text
from curator.io.tables.records import PIECE_BYTES, PIECE_ROWS, Failure

# of rows this large, which have files in them, a larger row group is no smaller on the disk
LARGE_ROW_BYTES, LARGE_ROWS_BYTES = 16 << 10, 8 << 20
PAGE_BYTES = 1 << 20
# larger row groups are not read at once, but through buffers
GROUP_BYTES_MAX, BUFFER_BYTES = 64 << 20, 1 << 20


@dataclass(kw_only=True)
class Parquet(FileSource):
    """Read Parquet files (`.parquet`, `.pq`), a few thousand records at a time; big files are split at row
    groups.

    Types come out as they are in the file. Where files differ, numbers widen if that changes no value, and a
    missing column is null; types that cannot be joined are an InputError before anything runs. A row group
    that cannot be read is one row on `failed`, and the others come through. A column whose name begins with
    `_` gets that at its end.
    """

    name = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq", ".parq")

    def splittable(self, file: FileInfo) -> bool:
        return True

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        with open_input(file.uri, self.storage_options, None) as opened, explained("read", file.uri):
            schema = _open(opened, file.uri).schema_arrow
        wanted = self.wanted()
        return [(f.name, Seen(f.type, file.uri)) for f in schema if wanted is None or f.name in wanted]

    def read_part(self, part: SourceRange) -> Iterator[Batch | Outputs]:
        with open_input(part.uri, self.storage_options, None) as opened:
            try:
                file = _open(opened, part.uri)
            except InputError as error:
                if part.start == 0:  # said once, not by each range of the file
                    yield failures(part, [Failure(part.uri, 0, error)])
                return
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            if any(group.total_byte_size > GROUP_BYTES_MAX for group in groups):
                file = _open(opened, part.uri, BUFFER_BYTES)
            first = 0
            for group, described in enumerate(groups):
                if part.start <= _begin(described) < (part.stop or part.size_bytes + 1):
                    yield from self._group(file, part, group, first)
                first += described.num_rows

    def _group(self, file: Any, part: SourceRange, group: int, first: int) -> Iterator[Batch | Outputs]:
        """The records of a row group, whose first row is number `first` of the file."""
        described = file.metadata.row_group(group)
        row_bytes = max(1, described.total_byte_size // max(1, described.num_rows))
        step = min(PIECE_ROWS, max(1, PIECE_BYTES // row_bytes))
        wanted, done = self.wanted(), first
        begin, columns = _begin(described), map(described.column, range(described.num_columns))
        size = sum(column.total_compressed_size for column in columns)
        try:
            for batch in file.iter_batches(step, row_groups=[group], columns=wanted, use_threads=False):
                rows = pa.Table.from_batches([batch])
                positions = np.arange(done, done + len(rows))
                done += len(rows)
                # the columns of a group are read in turns, so the place in the file says little
                has_read(part.uri, begin + size * (done - first) // described.num_rows)
                yield from self.records(rows, part.uri, positions)
        except Exception as error:
            if not is_damage(error):
                raise
            last = first + described.num_rows - 1
            yield unreadable(part, "row", done, f"rows {done} to {last} (row group {group})", error)


def _open(opened: Any, uri: str, buffer_bytes: int = 0) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(opened, buffer_size=buffer_bytes, pre_buffer=False)
    except Exception as error:
        if not is_damage(error):
            raise
        raise InputError(f"{uri} is not a whole Parquet file: {error}") from error


def _begin(group: Any) -> int:
    """The byte at which a row group begins: it belongs to the range that has this byte."""
    if not group.num_columns:
        return 0
    column = group.column(0)
    return column.dictionary_page_offset or column.data_page_offset


@dataclass(kw_only=True)
class ToParquet(FileSink):
    """Write Parquet files, compressed with zstd unless `compression` says snappy, gzip, lz4, brotli or none.

    Every type comes back as it was, but for objects without any key, which Parquet does not have: a column
    with such is written as JSON text. A row group holds about 32 MB of data, or 8 MB of large rows.
    """

    compression: str | None = "zstd"  # zstd, snappy, gzip, lz4, brotli or none

    name = "to_parquet"
    codecs = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")
    ending: ClassVar[str] = ".parquet"
    buffer_bytes: ClassVar[int] = 32 << 20

    def is_enough(self, rows: int, nbytes: int) -> bool:
        return is_row_group(rows, nbytes)

    def prepare(self, rows: pa.Table) -> pa.Table:
        return storable(rows)

    def start(self, output: Output, schema: pa.Schema) -> ParquetFile:
        return ParquetFile(output, schema, self.compression or "none")


def is_row_group(rows: int, nbytes: int) -> bool:
    """Whether so much is enough for a row group."""
    large = nbytes >= max(LARGE_ROWS_BYTES, rows * LARGE_ROW_BYTES)
    return large or nbytes >= ToParquet.buffer_bytes


class ParquetFile(Encoder):
    def __init__(self, output: Output, schema: pa.Schema, compression: str) -> None:
        self._output, self._schema, self._compression = output, schema, compression
        self._writer: Any = None

    def _begin(self, rows: pa.Table) -> Any:
        """A writer that looks after as many values as are a page whether one is full. By itself it looks
        after 1024, and holds a page several times."""
        import pyarrow.parquet as pq

        row_bytes = max(1, rows.nbytes // max(1, rows.num_rows))
        try:
            return pq.ParquetWriter(pa.PythonFile(self._output, mode="w"), self._schema,
                                    compression=self._compression,
                                    write_batch_size=min(1024, max(1, PAGE_BYTES // row_bytes)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            told = f"cannot write {self._output.uri}: Parquet has no such type: {error}"
            raise InputError(told) from error

    def write(self, rows: pa.Table) -> int:
        self._writer = self._writer or self._begin(rows)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        pa.default_memory_pool().release_unused()  # it keeps several times what a row group takes
        return rows.nbytes

    def finish(self) -> None:
        self._writer.close()

    def abandon(self) -> None:
        if self._writer is not None:
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
