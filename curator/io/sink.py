"""What the writers of record files share: rolling at a target size, types that change, all or nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Contract, Sink, Writer, WrittenFile, setting
from curator.io.files.compression import codec_of, compressed
from curator.io.files.folder import Folder, Output
from curator.io.tables.columns import Seen, common_type, conform


class Encoder:
    """A file of one format, being written."""

    def write(self, rows: pa.Table) -> int:
        """Append rows; answers their bytes before compression."""
        raise TypeError(f"{type(self).__name__} has no write method")

    def finish(self) -> None:
        """Write what belongs at the end. The output is closed by the caller."""

    def abandon(self) -> None:
        """Write nothing any more: the output is gone."""


@dataclass(kw_only=True)
class FileSink(Sink):
    """Records into files of one format. Subclasses say how a file is encoded (`start`).

    `path`: a folder or URL; None for the run's own `data/`.
    `select`: the columns to write, in this order; None for all. `target_bytes`: a file is
    closed, and the next one begun, when its data reaches this, before compression. `storage_options`: what
    the filesystem wants (keys, endpoint).

    The plan tells places apart, not the fingerprint: a run's folder may be moved.
    """

    path: str | None = setting(default=None)
    select: list[str] | None = None
    target_bytes: int = 256 << 20
    storage_options: dict[str, Any] | None = setting(default=None)

    ending: ClassVar[str] = ""  # of the files' names
    codecs: ClassVar[tuple[str, ...]] = ()  # what `compression` may be, where there is one
    fixed_columns: ClassVar[bool] = True  # a file cannot get a new column or another type once it is begun
    buffer_bytes: ClassVar[int] = 0  # rows are gathered up to this before they are encoded

    def __post_init__(self) -> None:
        if isinstance(self.path, PathLike):
            self.path = fspath(self.path)
        if self.path is not None and (not self.path or not isinstance(self.path, str)):
            raise ValueError(f"path must be a folder or URL, got {self.path!r}")
        self.at_least(1, "target_bytes")
        if isinstance(self.select, str) or self.select == []:
            raise ValueError(f"select must be a list of column names, got {self.select!r}")
        if self.codecs and ((given := getattr(self, "compression", None)) or "none") not in self.codecs:
            raise ValueError(f"compression must be one of {', '.join(self.codecs)}, got {given!r}")

    def contract(self) -> Contract:
        return Contract(needs=self.select or ())

    def open(self, name: str) -> Writer:
        return FileWriter(self, name)

    def suffix(self) -> str:
        """The ending of the files' names."""
        return self.ending

    def chosen(self, rows: pa.Table) -> pa.Table:
        """The rows with the columns that are written."""
        return rows if self.select is None else rows.select(self.select)

    def room(self, rows: pa.Table, written: int, written_bytes: int) -> int:
        """How many of the rows go into the open file, which is not full and has so much already: at least
        one."""
        return rows.num_rows

    def is_full(self, written: int, written_bytes: int) -> bool:
        """Whether a file with so many rows and bytes is finished."""
        return written_bytes >= self.target_bytes

    def is_enough(self, rows: int, nbytes: int) -> bool:
        """Whether so many rows and bytes, which were gathered, are to be encoded."""
        return nbytes >= self.buffer_bytes

    def prepare(self, rows: pa.Table) -> pa.Table:
        """The rows with what the format cannot hold turned into what it can."""
        return rows

    def output(self, folder: Folder, name: str) -> Output:
        """Where the bytes of a file go."""
        return folder.open_file(name, "wb")

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        """Begin a file, `stem` and the suffix, whose rows are counted, and any others that belong beside
        it."""
        return self.start(files.add(self.output(files.folder, stem + self.suffix())), schema)

    def start(self, output: Output, schema: pa.Schema) -> Encoder:
        """Begin a file."""
        raise TypeError(f"{type(self).__name__} has no start method")


@dataclass(kw_only=True)
class TextSink(FileSink):
    """A sink whose files are compressed as a whole: `zst`, `gz` or `none`."""

    compression: str | None = "none"  # zst, gz or none

    codecs = ("zst", "gz", "none", "zstd", "gzip")

    def suffix(self) -> str:
        return f"{self.ending}.{self._codec}" if self._codec else self.ending

    def output(self, folder: Folder, name: str) -> Output:
        return compressed(folder.open_file(name, "wb"), self._codec)

    @property
    def _codec(self) -> str | None:
        return codec_of(f".{self.compression}")


class FileWriter(Writer):
    """The files of one unit: `<name>-000<suffix>`, `-001`, … Each appears, whole, when it is finished.

    A column that changes its type is widened where that loses nothing; else a new file begins.
    """

    def __init__(self, sink: FileSink, name: str) -> None:
        self._sink, self._name = sink, name
        if sink.path is None:
            raise ValueError(f"{sink.name} has no path: it gets one from the plan of a run")
        self.folder = Folder.open(sink.path, sink.storage_options)
        self._finished: list[WrittenFile] = []
        # of the file that is open, or will be opened for what is gathered
        self._schema: pa.Schema | None = None
        self._gathered: list[pa.Table] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._count = 0  # of the files that were begun
        self._open: list[Output] = []  # side by side; they appear when all of them are written
        self._encoder: Encoder | None = None
        self._rows = self._bytes = 0  # in the open file

    def add(self, output: Output) -> Output:
        """A file more. The first one is that whose rows are counted; one that is closed already appeared
        earlier."""
        self._open.append(output)
        return output

    def write(self, batch: Batch) -> None:
        rows = self._sink.prepare(self._sink.chosen(batch.visible()))
        while rows.num_rows:
            if not self._fits(rows):
                self._roll()
                self._fits(rows)
            count = self._sink.room(rows, self._rows, self._bytes)
            self._take(rows.slice(0, count))
            rows = rows.slice(count)
            if rows.num_rows or self._sink.is_full(self._rows, self._bytes):
                self._roll()

    def close(self) -> list[WrittenFile]:
        try:
            self._roll()
        except BaseException:
            self.abort()
            raise
        return self._finished

    def abort(self) -> None:
        self._gathered = []
        if self._encoder is not None:
            self._encoder.abandon()
        for output in self._open:
            output.abort()  # nothing, where it is closed
        written, begin = [*(o.uri for o in self._open),
                          *(f.path for f in self._finished)], len(self.folder.path_of(""))
        with suppress(InputError):  # files that no ledger line names are removed later as well
            self.folder.delete(uri[begin:] for uri in written)

    def _fits(self, rows: pa.Table) -> bool:
        """Whether the open file can take the rows; if so, its schema becomes wide enough."""
        if self._schema is None:
            self._schema = rows.schema
            return True
        joined = _joined(self._schema, rows.schema)
        if joined is None:
            return False
        if self._sink.fixed_columns and not (joined.equals(self._schema) and joined.equals(rows.schema)):
            if self._encoder is not None and not joined.equals(self._schema):
                return False
            if any(_as(table, joined) is None for table in (rows, *self._gathered)):
                return False
        self._schema = joined
        return True

    def _take(self, rows: pa.Table) -> None:
        if self._sink.buffer_bytes:
            rows = own(rows)
        self._gathered.append(rows)
        self._gathered_rows += rows.num_rows
        self._gathered_bytes += rows.nbytes
        if self._sink.is_enough(self._gathered_rows, self._gathered_bytes):
            self._encode()

    def _encode(self) -> None:
        """Write what is gathered, opening the file if it is not."""
        if not self._gathered:
            return
        tables = self._gathered
        if self._sink.fixed_columns:
            tables = [pa.concat_tables([_as(table, self._schema) for table in tables])]
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        if self._encoder is None:
            self._encoder = self._sink.begin(self, f"{self._name}-{self._count:03d}", self._schema)
            self._count += 1
        for table in tables:
            self._bytes += self._encoder.write(table)
            self._rows += len(table)

    def _roll(self) -> None:
        """Finish the open file."""
        self._encode()
        if self._encoder is not None:
            self._encoder.finish()
            for output in self._open:
                output.close()
            self._finished += [WrittenFile(o.uri, 0 if at else self._rows, o.tell())
                               for at, o in enumerate(self._open)]
        self._schema, self._encoder, self._open = None, None, []
        self._rows = self._bytes = 0


def _joined(a: pa.Schema, b: pa.Schema) -> pa.Schema | None:
    """The columns of both, each in a type that holds both, None where there is no such type."""
    if a.equals(b):
        return a
    joined = common_type(pa.struct(list(a)), pa.struct(list(b)))
    return None if joined is None else pa.schema([(field.name, field.type) for field in joined])


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """The rows with these columns, None if a value would change."""
    if rows.schema.equals(schema):
        return rows
    widened, _ = conform(rows, {field.name: Seen(field.type, "") for field in schema})
    widened = widened.select(schema.names)
    return widened if widened.schema.equals(schema) else None


def own(rows: pa.Table) -> pa.Table:
    """A copy in memory of its own: what a batch refers to may be shared memory that others wait for."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
