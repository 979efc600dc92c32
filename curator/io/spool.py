"""Rows between two phases of a run, in files that hold every batch exactly: kind, columns, payloads (see
`payloads`).

A file belongs to one unit of the phase that writes it. It is a row of segments, each a whole Arrow IPC file
with rows of one shard, one kind of batch and one schema; then an index of them as JSON, its length and
`MAGIC`. A reader takes the segments of its shard, and of these only the columns that it wants. Payloads are
binary columns. Segments of large columns, or of text, are compressed (zstd).
"""

from __future__ import annotations

import hashlib
import io
import json
import pkgutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import HIDDEN, Batch
from curator.api.errors import CuratorError, InputError, RecipeError
from curator.api.keys import shard_of
from curator.api.stage import Sink, Source, SourceRange, Unit, Writer, WrittenFile, setting
from curator.io.files.folder import FileInfo, Folder, Output
from curator.io.files.reading import has_read
from curator.io.payloads import LENGTH, pack, unpack
from curator.io.units import plan_units

FORMAT = 2  # part of the key of a spooling step: files of another format are made again
SEGMENTS_BYTES = 8 << 20  # rows that are gathered before they become segments, one a shard
# compressed: small shards share a unit up to this, for each unit makes files of its own
SHARDS_BYTES = 4 << 20
PIECE_BYTES = 4 << 20  # of a batch that is read back, about
COMPRESSED_BYTES = 8 << 10  # a column, on average; smaller ones take longer to compress than they save
MAGIC = b"curator-spool-1\n"
REMEDY = "Remove it: the next run makes it again"
_PAYLOAD = "_payload:"  # before the name of a payload that travels as a column


@dataclass(frozen=True, kw_only=True)
class Shard(Unit):
    """Shards `first` up to but not including `stop`, in all files of the spools that a `Reduce` takes: one,
    or several small ones that a worker takes one after the other."""

    first: int
    stop: int
    shards: int
    digest: str  # of all these files
    parts: tuple[SourceRange, ...] = ()

    @property
    def key(self) -> str:
        return hashlib.blake2b(f"{self.digest}/{self.first}-{self.stop}/{self.shards}".encode(),
                               digest_size=8).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(p.size_bytes for p in self.parts) * (self.stop - self.first) // self.shards

    @property
    def label(self) -> str:
        numbers = (f"shard {self.stop}" if self.stop == self.first + 1
                   else f"shards {self.first + 1} to {self.stop}")
        return f"{numbers} of {self.shards}"

    def alone(self) -> Iterator[Shard]:
        """Each shard as a unit of its own."""
        return (replace(self, first=n, stop=n + 1) for n in range(self.first, self.stop))


@dataclass(kw_only=True)
class ToSpool(Sink):
    """Keeps rows for a later phase. With a `key` they are sharded by the value of that column."""

    path: str = setting()
    key: str | None = None
    shards: int = 1
    storage_options: dict[str, Any] | None = setting(default=None)

    def open(self, name: str) -> Writer:
        return SpoolWriter(Folder.open(self.path, self.storage_options), name, self.key, self.shards)


@dataclass(kw_only=True)
class FromSpool(Source):
    """Reads what `ToSpool` kept. `path`: the folder of all spools of the run."""

    path: str = setting()
    storage_options: dict[str, Any] | None = setting(default=None)

    def read(self, unit: Unit) -> Iterator[Batch]:
        return self.rows(unit)

    def port_of(self, part: SourceRange) -> str:
        """Where the rows of a file come out."""
        return "out"

    def rows(self, unit: Unit, columns: Collection[str] | None = None,
             kind: type[Batch] = Batch) -> Iterator[Batch]:
        """The rows of a unit, or of its shards, in batches of a few MB; with `columns` these, `id` and
        `source` only.

        `kind`: batches of this class only.

        Raises:
            InputError: a file is gone or damaged.
        """
        folder = Folder.open(self.path, self.storage_options)
        shards = range(unit.first, unit.stop) if isinstance(unit, Shard) else None
        for part in unit.parts:
            with folder.open_file(part.uri) as file:
                yield from _read_file(file, folder.path_of(part.uri), part.uri, shards, columns, kind)


@dataclass(kw_only=True)
class FromCheckpoint(FromSpool):
    """Reads what checkpoints kept of a unit: each file's rows come out on the port that is named as its
    folder."""

    def port_of(self, part: SourceRange) -> str:
        return part.uri.partition("/")[0]


def spool_units(files: Sequence[FileInfo]) -> list[Unit]:
    """Spooled files as units of about 64 MB. Each attempt gives its files new names, so a unit's key follows
    the content."""
    return plan_units(sorted(files, key=lambda f: f.uri))


def shard_units(files: Sequence[FileInfo], shards: int) -> list[Unit]:
    """The shards of spooled files, also where there is no file at all; as many together as have about 4
    MB."""
    parts = tuple(SourceRange(uri=f.uri, size_bytes=f.size_bytes, version=f.version)
                  for f in sorted(files, key=lambda f: f.uri))
    text = json.dumps([[p.uri, p.size_bytes, p.version] for p in parts])
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    count = min(shards, 1 + sum(p.size_bytes for p in parts) // SHARDS_BYTES)
    cuts = [shards * n // count for n in range(count + 1)]
    return [Shard(first=first, stop=stop, shards=shards, digest=digest, parts=parts)
            for first, stop in pairwise(cuts)]


class SpoolWriter(Writer):
    """The rows of one unit, in one file."""

    def __init__(self, folder: Folder, name: str, key: str | None, shards: int) -> None:
        self.folder, self.name, self.key, self.shards = folder, f"{name}.spool", key, shards
        # by shard, kind and schema: a segment each
        self._waiting: dict[tuple[int, str, bytes], list[pa.Table]] = {}
        self._bytes = self._rows = 0
        self._index: list[dict[str, Any]] = []
        self._output: Output | None = None

    def write(self, batch: Batch) -> None:
        table, kind = to_table(batch), f"{type(batch).__module__}:{type(batch).__qualname__}"
        sharded = self.key is not None and self.shards > 1
        if sharded and self.key not in batch.rows.column_names:
            there = ", ".join(batch.columns)
            raise RecipeError(f"there is no column {self.key!r}, by which rows are to be sharded; there are "
                              f"{there}")
        places = shard_of(batch.rows.column(self.key),
                          self.shards) if sharded else np.zeros(len(batch), np.int64)
        schema = table.schema.serialize().to_pybytes()
        for piece in table.to_batches():  # of several, `take` would make one each time
            here, places = np.split(places, [len(piece)])
            for shard in np.unique(here).tolist():
                # `take` copies: what the batch refers to may be shared memory that others wait for.
                rows = pa.Table.from_batches([piece.take(pa.array(np.flatnonzero(here == shard)))])
                self._waiting.setdefault((shard, kind, schema), []).append(rows)
                self._bytes += rows.nbytes
            if self._bytes >= SEGMENTS_BYTES:
                self._write_segments()
        self._rows += len(batch)

    def _write_segments(self) -> Output:
        output = self._output = self._output or self.folder.open_file(self.name, "wb")
        for key in sorted(self._waiting, key=lambda key: key[:2]):
            shard, kind, _ = key
            table = pa.concat_tables(self._waiting.pop(key)).unify_dictionaries()
            rows = max(1, table.num_rows * PIECE_BYTES // max(1, table.nbytes))
            segment = _Segment(output)
            options = pa.ipc.IpcWriteOptions(compression="zstd" if _is_worth_compressing(table) else None,
                                             unify_dictionaries=True)
            with (pa.PythonFile(io.BufferedWriter(segment), mode="w") as file,
                  pa.ipc.new_file(file, table.schema, options=options) as writer):
                for start in range(0, table.num_rows, rows):  # all at once would be there twice
                    writer.write_table(table.slice(start, rows).combine_chunks())
            self._index.append({"shard": shard, "kind": kind, "at": segment.at, "bytes": segment.tell()})
        self._waiting, self._bytes = {}, 0
        pa.default_memory_pool().release_unused()  # which keeps several times what was needed at once
        return output

    def close(self) -> list[WrittenFile]:
        try:
            output = self._write_segments()
            index = json.dumps(self._index).encode()
            output.write(index + LENGTH.pack(len(index)) + MAGIC)
            output.close()
        except BaseException:
            self.abort()
            raise
        return [WrittenFile(output.uri, self._rows, output.tell())]

    def abort(self) -> None:
        self._waiting = {}
        if self._output is not None:
            self._output.abort()


def _is_worth_compressing(table: pa.Table) -> bool:
    """Whether its columns are large, or half of it is text, of which half is saved."""
    texts = (c for c in table.columns if pa.types.is_string(c.type) or pa.types.is_large_string(c.type))
    return (table.nbytes >= COMPRESSED_BYTES * table.num_columns
            or 2 * sum(column.nbytes for column in texts) >= table.nbytes)


def to_table(batch: Batch) -> pa.Table:
    """A batch as a table: its columns, but the engine's own, and its payloads as binary columns.

    Raises:
        CuratorError: a payload holds what cannot be kept without pickling.
    """
    table = batch.rows.select([n for n in batch.rows.column_names if n not in HIDDEN])
    for name, values in batch.payloads().items():
        try:
            packed = [None if v is None else pack(v) for v in values]
        except (TypeError, ValueError) as error:
            raise CuratorError(f"payload {name!r} of a {type(batch).__name__} cannot be spooled for a later "
                               f"phase: {error}") from error
        table = table.append_column(_PAYLOAD + name, pa.array(packed, pa.large_binary()))
    return table


def _read_file(file: Any, uri: str, name: str, shards: range | None, columns: Collection[str] | None,
               kind: type[Batch]) -> Iterator[Batch]:
    """`name`: what the unit calls the file."""
    for segment in _index(file, uri):
        if (shards is None or segment["shard"] in shards) and issubclass(kind_of(segment["kind"]), kind):
            has_read(name, segment["at"])
            window = pa.PythonFile(_Window(file, segment["at"], segment["bytes"]), mode="r")
            try:
                yield from _segment(window, kind_of(segment["kind"]), columns)
            except (pa.ArrowException, OSError, EOFError) as error:
                if getattr(error, "errno", None) is not None:
                    raise
                raise InputError(f"{uri} is damaged: {error}. {REMEDY}") from error


def _index(file: Any, uri: str) -> list[dict[str, Any]]:
    tail = LENGTH.size + len(MAGIC)
    end = file.seek(0, io.SEEK_END)
    file.seek(max(0, end - tail))
    last = file.read(tail)
    if len(last) < tail or not last.endswith(MAGIC):
        raise InputError(f"{uri} is no whole spool file. {REMEDY}")
    length, = LENGTH.unpack(last[:LENGTH.size])
    file.seek(max(0, end - tail - length))
    try:
        return json.loads(file.read(length))
    except ValueError as error:
        raise InputError(f"{uri} is damaged: {error}. {REMEDY}") from error


def _segment(window: pa.PythonFile, kind: type[Batch], columns: Collection[str] | None) -> Iterator[Batch]:
    options = pa.ipc.IpcReadOptions()
    if columns is not None:
        wanted = {"id", "source", *columns, *(_PAYLOAD + name for name in columns)}
        names = pa.ipc.open_file(window).schema.names
        options = pa.ipc.IpcReadOptions(included_fields=[i for i, name in enumerate(names) if name in wanted])
        window.seek(0)
    reader = pa.ipc.open_file(window, options=options)
    for at in range(reader.num_record_batches):
        yield from_table(pa.Table.from_batches([reader.get_batch(at)]), kind)


def from_table(table: pa.Table, kind: type[Batch]) -> Batch:
    """The batch that `to_table` made a table of."""
    packed = [n for n in table.column_names if n.startswith(_PAYLOAD)]
    payloads = {n.removeprefix(_PAYLOAD): [None if v is None else unpack(v)
                                           for v in table.column(n).to_pylist()] for n in packed}
    return replace(kind(rows=table.drop_columns(packed)), **payloads)


@cache
def kind_of(name: str) -> type[Batch]:
    """The batch class of this name (`module:class`).

    Raises:
        CuratorError: there is none.
    """
    module, _, qualname = name.partition(":")
    todo: list[type[Batch]] = [Batch]
    while todo:
        kind = todo.pop()
        if (kind.__module__, kind.__qualname__) == (module, qualname):
            return kind
        todo += kind.__subclasses__()
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        found = None
    if not (isinstance(found, type) and issubclass(found, Batch)):
        raise CuratorError(f"spooled rows are of the kind {name}, which cannot be imported here: define it "
                           "in a module of a pack")
    return found


class _Segment(io.RawIOBase):
    """What is written to a file from here on, as a file of its own. To close it does not close the other."""

    def __init__(self, output: Output) -> None:
        self._output, self.at = output, output.tell()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._output.tell() - self.at

    def write(self, data: Any) -> int:
        return self._output.write(data)


class _Window(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: Any, start: int, length: int) -> None:
        self._file, self._start, self._length, self._at = file, start, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._length - self._at)
        self._file.seek(self._start + self._at)
        data = self._file.read(left if size < 0 else min(size, left))
        self._at += len(data)
        return data
