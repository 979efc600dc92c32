"""A stored index of the records that stayed: what a new snapshot is compared with, without reading the old ones again.

    <index>/<run>/part-….keys    keys in ascending order, uint64, then the number of the record that has each, uint32
    <index>/<run>/part-….rows    these records: id, source, digest, sketch, as an Arrow IPC file that is not compressed

Each output folder has a part of its own, `<run>`, which its runs rewrite as they rewrite their output. Looking a record up costs
a binary search in each file, on a filesystem of this machine without reading more of it. What a run compares with is settled
when it first adds to the index, and kept in `index.json` beside its clusters: the parts that were there before. So a run that is
continued, or is done again with more input, does not see what came after it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch, concat_tables
from curator.api.errors import InputError
from curator.api.stage import Contract, Outputs, Sink, Stage, Writer, WrittenFile, setting
from curator.io.files.folder import Folder
from curator_dedup.near.sketch import bucket_keys
from curator_dedup.shared.arrays import by_key, distinct, pairs_of_key
from curator_dedup.shared.rows import digests

PIN = "index.json"
FILE_BYTES = 256 << 20  # of sketches and keys in one file, about: they are sorted in memory
LOOK_AT = 64  # records under one key in one file that are looked at; more are a template, not look-alikes
_ROWS = ["id", "source", "digest", "sketch"]
_MADE_BY = b"curator.measure"  # in the schema of `.rows`: whose keys these are


@dataclass(frozen=True)
class IndexPlace:
    """An index, and a run's place in it. `folder`: where the run keeps what belongs to this stage."""

    path: str
    folder: str
    storage_options: dict[str, Any] | None = None

    @property
    def own(self) -> str:
        """The name of the run's part: that of the output folder when it first ran, wherever the folder lies
        now."""
        pinned = self._pinned()
        return pinned["run"] if pinned else hashlib.blake2b(self._beside().uri.encode(),
                                                            digest_size=8).hexdigest()

    def before(self) -> list[str]:
        """The parts to compare with."""
        pinned = self._pinned()
        if pinned:
            return list(pinned["before"])
        names = Folder.open(self.path, self.storage_options).names(recursive=True)
        return sorted({name.split("/")[0] for name in names if name.endswith(".keys")} - {self.own})

    def pin(self) -> None:
        """Settle what the run compares with, if that has not been done."""
        if not self._pinned():
            pinned = {"run": self.own, "before": self.before()}
            self._beside().write(PIN, json.dumps(pinned, indent=1).encode())

    def _beside(self) -> Folder:
        return Folder.open(self.folder, self.storage_options)

    def _pinned(self) -> dict[str, Any] | None:
        beside = self._beside()
        return json.loads(beside.read(PIN)) if beside.exists(PIN) else None


def made_by(measure: Any, scope: str | None) -> str:
    """Whose keys an index has: they mean nothing to another measure."""
    return f"{measure!r}, scope {scope}"


# -- writing -------------------------------------------------------------------------------------------------


@dataclass
class IndexBatch(Batch):
    """Records as an index has them: id, source, digest, sketch, and all their keys."""


@dataclass(kw_only=True)
class IndexRows(Stage):
    """What an index keeps of each record that has anything to compare; the others are absorbed."""

    measure: Any
    scope: str | None = None

    name = "index_rows"

    def contract(self) -> Contract:
        return Contract(needs=self.measure.needs() | ({self.scope} if self.scope else set()),
                        adds={"digest": pa.uint64(), "sketch": pa.large_binary(), "keys": pa.large_binary()})

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {"id": pa.string(), "source": pa.string(), **dict(self.contract().adds)}

    def process(self, batch: Batch) -> Outputs:
        present, sketches = self.measure.encode(batch)
        some, sketches = batch.filter(present), sketches[present]
        keys = bucket_keys(self.measure, some, sketches, self.scope)
        rows = some.select([]).with_columns({
            "digest": pa.array(digests(sketches), pa.uint64()),
            "sketch": pa.array([s.tobytes() for s in sketches], pa.large_binary()),
            "keys": pa.array([k.tobytes() for k in keys], pa.large_binary())})
        return Outputs(out=IndexBatch(rows.rows), absorbed=batch.filter(~present))


@dataclass(kw_only=True)
class ToIndex(Sink):
    """Adds records to a stored index."""

    path: str = setting()
    place: IndexPlace = setting()
    made_by: str
    storage_options: dict[str, Any] | None = setting(default=None)

    name = "to_index"

    def open(self, name: str) -> Writer:
        self.place.pin()
        return IndexWriter(Folder.open(self.path, self.storage_options), name, self.made_by)


class IndexWriter(Writer):
    """The records of one unit, in pairs of files."""

    def __init__(self, folder: Folder, name: str, made_by: str) -> None:
        self.folder, self.name, self.made_by = folder, name, made_by
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self._files: list[WrittenFile] = []

    def write(self, batch: Batch) -> None:
        rows = batch.visible().combine_chunks()
        # a copy: others may wait for what the batch refers to
        self._waiting.append(rows.take(pa.array(np.arange(len(rows)))))
        self._bytes += rows.nbytes
        if self._bytes > FILE_BYTES:
            self._write_files()

    def _write_files(self) -> None:
        table = concat_tables(self._waiting).combine_chunks()
        self._waiting, self._bytes = [], 0
        name = f"{self.name}-{len(self._files) // 2:04}"
        keys = np.frombuffer(b"".join(table.column("keys").to_pylist()),
                             dtype=np.uint64).reshape(len(table), -1)
        keys, numbers = by_key(keys.ravel(), np.repeat(np.arange(len(table), dtype=np.uint32), keys.shape[1]))
        encoded, named = (pa.BufferOutputStream(),
                          table.select(_ROWS).replace_schema_metadata({_MADE_BY: self.made_by}))
        with pa.ipc.new_file(encoded, named.schema) as writer:
            writer.write_table(named)
        self._write(f"{name}.rows", memoryview(encoded.getvalue()), len(table))
        self._write(f"{name}.keys", keys.tobytes() + numbers.tobytes(), 0)

    def _write(self, name: str, data: Any, rows: int) -> None:
        output = self.folder.open_file(name, "wb")
        try:
            output.write(data)
            output.close()
        except BaseException:
            output.abort()
            raise
        self._files.append(WrittenFile(output.uri, rows, len(data)))

    def close(self) -> list[WrittenFile]:
        if self._waiting:
            self._write_files()
        return self._files

    def abort(self) -> None:
        self._waiting = []
        self.folder.delete(file.path.rsplit("/", 1)[-1] for file in self._files)


# -- looking up ----------------------------------------------------------------------------------------------


def matches(place: IndexPlace, made_by: str, keys: np.ndarray,
            rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Records of the index that share a key with a row: rows (int64 [m], with repeats) and for each the
    record, as a table of `id`, `source`, `digest`, `sketch`. A pair comes once a file. `keys`: uint64 [k];
    `rows`: the row that has each.

    Raises:
        InputError: a file is damaged, or was made by another measure.
    """
    order = np.argsort(keys)  # so that each file is walked from its begin to its end
    keys, rows = keys[order], rows[order].astype(np.int64)
    folder = Folder.open(place.path, place.storage_options)
    for part in place.before():
        for name in sorted(n for n in folder.sub(part).names() if n.endswith(".keys")):
            yield from _in_file(folder.sub(part), name.removesuffix(".keys"), made_by, keys, rows)


def _in_file(folder: Folder, name: str, made_by: str, keys: np.ndarray,
             rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.Table]]:
    reader = pa.ipc.open_file(pa.py_buffer(_mapped(folder, f"{name}.rows")))
    by = (reader.schema.metadata or {}).get(_MADE_BY, b"").decode()
    if by != made_by:
        raise InputError(f"{folder.path_of(name)}.rows was made by {by}, and records are compared here by "
                         f"{made_by}: "
                         "set the parameters to those, or use another index")
    data = _mapped(folder, f"{name}.keys")
    if len(data) % 12:
        raise InputError(f"{folder.path_of(name)}.keys is damaged: remove this part of the index, and run "
                         "again what made it")
    count = len(data) // 12
    there, numbers = data[:8 * count].view(np.uint64), data[8 * count:].view(np.uint32)
    pairs = distinct(pairs_of_key(there, numbers, keys, rows, LOOK_AT))
    if len(pairs):
        yield pairs >> 32, reader.read_all().take(pa.array(pairs & 0xFFFFFFFF))


def _mapped(folder: Folder, name: str) -> np.ndarray:
    """A file as bytes; not read before it is looked at where it lies on this machine."""
    if folder.is_local:
        path = Path(folder.path_of(name))
        return np.memmap(path, dtype=np.uint8,
                         mode="r") if path.stat().st_size else np.zeros(0, dtype=np.uint8)
    return np.frombuffer(folder.read(name), dtype=np.uint8)
