"""Arrow IPC files and streams, which are also Feather files and what `datasets` keeps in its cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange
from curator.io.files.faults import is_damage
from curator.io.files.folder import FileInfo, Output, open_input
from curator.io.files.reading import has_read
from curator.io.sink import Encoder, FileSink
from curator.io.source import FileSource, failures
from curator.io.tables.columns import Seen
from curator.io.tables.records import Failure

_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_BATCH_BITS = 32  # a row's place is its batch and its number there, so what is before need not be read


@dataclass(kw_only=True)
class Arrow(FileSource):
    """Read Arrow IPC files and streams (`.arrow`, `.arrows`, `.feather`, `.ipc`), those of the `datasets`
    cache too.

    Types come out as they are in the file; where files differ, as for Parquet. A big file is split at its
    record batches; a stream is one unit. A record batch that cannot be read is one row on `failed`, and the
    others come through; of a stream what is behind it is lost, and said. A batch is read whole: memory is
    what the largest one takes.
    """

    name = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".arrows", ".feather", ".ipc")

    def splittable(self, file: FileInfo) -> bool:
        return True  # of a stream the first range reads everything

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        with open_input(file.uri, self.storage_options, None) as opened:
            schema = _open(opened, file.uri, None)[0].schema
        wanted = self.wanted()
        return [(f.name, Seen(f.type, file.uri)) for f in schema if wanted is None or f.name in wanted]

    def read_part(self, part: SourceRange) -> Iterator[Batch | Outputs]:
        with open_input(part.uri, self.storage_options, None) as opened:
            try:
                reader, count = _open(opened, part.uri, self.wanted())
            except InputError as error:
                if part.start == 0:  # said once, not by each range of the file
                    yield failures(part, [Failure(part.uri, 0, error)])
                return
            if count is None:
                if part.start == 0:
                    yield from self._stream(reader, part)
                return
            for number in range(count):
                begin = number * part.size_bytes // count  # about there: enough to share them out
                if part.start <= begin < (part.stop or part.size_bytes + 1):
                    has_read(part.uri, begin)
                    yield from self._batch(lambda n=number: reader.get_batch(n), number, part)

    def _stream(self, reader: Any, part: SourceRange) -> Iterator[Batch | Outputs]:
        number, ended = 0, False

        def following() -> pa.RecordBatch | None:
            nonlocal ended
            ended = True
            found = next(reader, None)
            ended = found is None
            return found

        while not ended:
            yield from self._batch(following, number, part, "and all behind it ")
            number += 1

    def _batch(self, read: Any, number: int, part: SourceRange, more: str = "") -> Iterator[Batch | Outputs]:
        try:
            batch = read()
            if batch is not None:
                batch.validate()
        except Exception as error:
            if not is_damage(error):
                raise
            fault = InputError(f"{part.uri}: record batch {number} {more}cannot be read: {error}")
            fault.__cause__ = error
            yield failures(part, [Failure(f"{part.uri}:batch={number}", number << _BATCH_BITS, fault)])
            return
        if batch is not None:
            positions = np.arange(batch.num_rows) + (number << _BATCH_BITS)
            rows = pa.Table.from_batches([batch]).replace_schema_metadata()
            yield from self.records(rows, part.uri, positions)


def _open(opened: Any, uri: str, wanted: list[str] | None) -> tuple[Any, int | None]:
    """A reader of the wanted columns, and how many record batches there are: None for a stream."""
    magic = opened.read(6)
    opened.seek(0)
    if magic[:4] == _FEATHER_1:
        raise InputError(f"{uri} is a Feather file of version 1, which is no Arrow file. Convert it: "
                         "pyarrow.feather.write_feather(pyarrow.feather.read_table(OLD), NEW)")
    opener = pa.ipc.open_file if magic == _FILE else pa.ipc.open_stream
    try:
        reader = opener(opened)
        if wanted is not None:
            fields = [at for at, name in enumerate(reader.schema.names) if name in wanted]
            opened.seek(0)
            reader = opener(opened, options=pa.ipc.IpcReadOptions(included_fields=fields))
        return reader, reader.num_record_batches if magic == _FILE else None
    except Exception as error:
        if not is_damage(error):
            raise
        raise InputError(f"{uri} is not a whole Arrow IPC file or stream: {error}") from error


@dataclass(kw_only=True)
class ToArrow(FileSink):
    """Write Arrow IPC files (`.arrow`, which are Feather files too), to be mapped into memory.

    Columns come back as they were, but for dictionaries, which become plain values. `stream`: write streams
    (`.arrows`), which can be read from a pipe. A record batch holds about 4 MB.
    """

    compression: str | None = "none"  # none, lz4 or zstd; what is compressed is not mapped into memory
    stream: bool = False

    name = "to_arrow"
    codecs = ("none", "lz4", "zstd")
    buffer_bytes: ClassVar[int] = 4 << 20

    def suffix(self) -> str:
        return ".arrows" if self.stream else ".arrow"

    def prepare(self, rows: pa.Table) -> pa.Table:
        for at, column in enumerate(rows.schema):
            if pa.types.is_dictionary(column.type):
                rows = rows.set_column(at, column.name, rows.column(at).cast(column.type.value_type))
        return rows

    def start(self, output: Output, schema: pa.Schema) -> ArrowFile:
        return ArrowFile(output, schema, self)


class ArrowFile(Encoder):
    def __init__(self, output: Output, schema: pa.Schema, sink: ToArrow) -> None:
        codec = None if sink.compression in (None, "none") else sink.compression
        options = pa.ipc.IpcWriteOptions(compression=codec, unify_dictionaries=True)
        begin = pa.ipc.new_stream if sink.stream else pa.ipc.new_file
        self._writer: Any = begin(pa.PythonFile(output, mode="w"), schema, options=options)

    def write(self, rows: pa.Table) -> int:
        self._writer.write_table(rows.combine_chunks())
        return rows.nbytes

    def finish(self) -> None:
        self._writer.close()
