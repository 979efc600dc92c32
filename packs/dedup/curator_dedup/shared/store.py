"""Rows of one shard in compact arrays, in memory and, above a budget, in files.

Files are made without a name (`tempfile.TemporaryFile`), so that nothing is left of them when the process
ends, however it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from curator.api.batch import Batch
from curator_dedup.shared.arrays import flat

RUN = 1 << 21  # keys that are sorted at a time, 12 bytes each
ROWS_MAX = 1 << 32


class Growing:
    """An array [n, ...] that grows at its end. What was spilled of it is read back as a map of its file."""

    def __init__(self, dtype: DTypeLike, width: int | None = None) -> None:
        self.dtype, self.width, self.rows = np.dtype(dtype), width, 0
        self._parts: list[np.ndarray] = []
        self._file: IO[bytes] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(part.nbytes for part in self._parts)

    def add(self, values: np.ndarray) -> None:
        if len(values):
            # a copy: a view would hold all of its batch
            self._parts.append(np.array(values, dtype=self.dtype, order="C"))
            self.rows += len(values)

    def spill(self) -> None:
        """Put everything into the file."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="curator-dedup-")  # noqa: SIM115
        for part in self._parts:
            part.tofile(self._file)
        self._file.flush()
        self._parts = []

    def whole(self) -> np.ndarray:
        """All of it. It may not grow after that."""
        shape = (self.rows,) if self.width is None else (self.rows, self.width)
        if self._file is not None:
            self.spill()
            return np.memmap(self._file, dtype=self.dtype, mode="r",
                             shape=shape) if all(shape) else np.empty(shape, self.dtype)
        if len(self._parts) > 1:
            self._parts = [_joined(self._parts, shape, self.dtype)]
        return self._parts[0] if self._parts else np.empty(shape, self.dtype)

    def close(self) -> None:
        self._parts = []
        if self._file is not None:
            self._file.close()
            self._file = None


class Lists:
    """Lists of values, one a row: their lengths, and the values one behind the other."""

    def __init__(self, dtype: str) -> None:
        self.lengths, self.values = Growing(np.uint32), Growing(dtype)

    def offsets(self) -> np.ndarray:
        """Where each list begins and the last one ends, int64 [n + 1]."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths.whole(), dtype=np.int64)])


class Keys:
    """Keys of rows, sorted in runs. `buckets` gives them back bucket by bucket: the key space is divided by
    its high bits."""

    def __init__(self) -> None:
        self.keys, self.rows = Growing(np.uint64), Growing(np.uint32)  # runs, one behind the other
        self._runs: list[tuple[int, int]] = []
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._count = 0  # that wait

    @property
    def nbytes(self) -> int:
        return 12 * self._count

    def add(self, keys: np.ndarray, rows: np.ndarray) -> None:
        self._waiting.append((keys.astype(np.uint64), rows.astype(np.uint32)))
        self._count += len(keys)
        if self._count >= RUN:
            self.sort()

    def sort(self) -> None:
        """Make a run of what waits."""
        if self._count:
            keys, rows = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
            self._waiting, count, self._count = [], self._count, 0
            order = np.argsort(keys)
            self._runs.append((self.keys.rows, self.keys.rows + count))
            self.keys.add(keys[order])
            self.rows.add(rows[order])

    def buckets(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Parts of all keys, of whole buckets of two entries or more: number of the bucket and row of each,
        uint64 [m]."""
        self.sort()
        keys, rows = self.keys.whole(), self.rows.whole()
        parts = 1 << max(0, (len(keys) // RUN)).bit_length()
        bounds = np.array([part * (2**64 // parts) for part in range(1, parts)], dtype=np.uint64)
        cuts = [[start, *(start + np.searchsorted(keys[start:stop], bounds)).tolist(), stop]
                for start, stop in self._runs]
        for part in range(parts):
            spans = [slice(cut[part], cut[part + 1]) for cut in cuts]
            some, of = np.concatenate([keys[s] for s in spans]
                                      or [keys]), np.concatenate([rows[s] for s in spans] or [rows])
            if len(spans) > 1:
                order = np.argsort(some)
                some, of = some[order], of[order]
            equal = some[1:] == some[:-1]
            shared = np.zeros(len(some), dtype=bool)
            shared[1:] |= equal
            shared[:-1] |= equal
            if shared.any():
                some, of = some[shared], of[shared]
                number = np.concatenate([np.zeros(1, np.uint64),
                                         np.cumsum(some[1:] != some[:-1], dtype=np.uint64)])
                yield number, of.astype(np.uint64)


class RowStore:
    """What is known of the rows of a shard: names, keep order, sketches, keys and, where they are wanted,
    shingles.

    Memory a row, in bytes: sketch + 12 for each key + id + 17 + 8 for each rank (+ 4 for each shingle + 4).
    What comes above `memory_bytes` is spilled, and mapped when it is read: then the operating system has it
    in memory as far as there is room.
    """

    def __init__(self, memory_bytes: int, *, shingles: bool) -> None:
        self.memory_bytes = memory_bytes
        self.count, self.width, self.ranks = 0, 0, 0  # rows; bytes of a sketch; numbers in a rank
        self.ids, self.shingles = Lists("uint8"), Lists("uint32") if shingles else None
        self.source, self.digest, self.reference, self.keys = (Growing(np.uint32), Growing(np.uint64),
                                                               Growing(bool), Keys())
        self.sketch = self.rank = Growing(np.uint8, 0)  # made with the first row, which says how wide
        self.sources: dict[str, int] = {}

    def _columns(self) -> list[Growing]:
        lists = [self.ids] if self.shingles is None else [self.ids, self.shingles]
        return [self.source, self.digest, self.reference, self.sketch, self.rank, self.keys.keys,
                self.keys.rows,
                *(column for one in lists for column in (one.lengths, one.values))]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(column.nbytes for column in self._columns()) + self.keys.nbytes

    def add(self, batch: Batch) -> None:
        """Take in rows with the columns of `SKETCH`.

        Raises:
            ValueError: their sketches or ranks are longer than those of earlier rows, or shorter.
        """
        table, count = batch.rows, len(batch)
        if not count:
            return
        sketches = flat(table.column("sketch")).cast(pa.large_binary())
        ranks = pc.list_flatten(flat(table.column("rank"))).to_numpy(zero_copy_only=False)
        lengths = np.unique(pc.binary_length(sketches).to_numpy(zero_copy_only=False)).tolist()
        if not self.count:
            self.width, self.ranks = lengths[0], len(ranks) // count
            self.sketch, self.rank = Growing(np.uint8, self.width), Growing(np.float64, self.ranks)
        if lengths != [self.width] or len(ranks) != count * self.ranks:
            widths = ", ".join(str(n) for n in sorted({*lengths, self.width}))
            raise ValueError(f"records have sketches of {widths} bytes and {self.ranks} ranks: all "
                             "fingerprints must be equally "
                             "long to be compared")
        self.sketch.add(_data(sketches).reshape(count, self.width))
        self.rank.add(ranks.reshape(count, self.ranks))
        self.reference.add(flat(table.column("reference")).to_numpy(zero_copy_only=False))
        self.digest.add(flat(table.column("digest")).to_numpy(zero_copy_only=False))
        self.source.add(self._codes(flat(table.column("source"))))
        ids = flat(table.column("id")).cast(pa.large_binary())
        self.ids.lengths.add(pc.binary_length(ids).to_numpy(zero_copy_only=False))
        self.ids.values.add(_data(ids))
        if self.shingles is not None:
            lists = flat(table.column("shingles"))
            self.shingles.lengths.add(pc.fill_null(pc.list_value_length(lists),
                                                   0).to_numpy(zero_copy_only=False))
            self.shingles.values.add(pc.list_flatten(lists).to_numpy(zero_copy_only=False))
        keys = flat(table.column("keys"))
        rows = np.repeat(np.arange(self.count, self.count + count),
                         pc.list_value_length(keys).to_numpy(zero_copy_only=False))
        self.keys.add(pc.list_flatten(keys).to_numpy(zero_copy_only=False), rows)
        self.count += count
        assert self.count < ROWS_MAX, (
            f"{self.count} rows are more than one shard can hold: ask for more shards")
        if self.nbytes > self.memory_bytes:
            self.spill()

    def spill(self) -> None:
        """Put everything into files."""
        self.keys.sort()
        for column in self._columns():
            column.spill()

    def close(self) -> None:
        for column in self._columns():
            column.close()

    def _codes(self, sources: pa.Array) -> np.ndarray:
        coded = sources.dictionary_encode()
        codes = [self.sources.setdefault(source, len(self.sources))
                 for source in coded.dictionary.to_pylist()]
        return np.array(codes, dtype=np.uint32)[coded.indices.to_numpy(zero_copy_only=False)]


class Names:
    """Ids and sources of the rows of a store, which is complete."""

    def __init__(self, store: RowStore) -> None:
        data, offsets = np.asarray(store.ids.values.whole()), store.ids.offsets()
        self._ids = pa.LargeStringArray.from_buffers(store.count, pa.py_buffer(offsets), pa.py_buffer(data))
        self._sources, self._source = pa.array(list(store.sources), pa.string()), store.source.whole()

    def ids(self, rows: np.ndarray) -> pa.LargeStringArray:
        return self._ids.take(pa.array(rows))

    def sources(self, rows: np.ndarray) -> pa.Array:
        return self._sources.take(pa.array(self._source[rows]))


def keep_order(store: RowStore, names: Names, rows: np.ndarray) -> np.ndarray:
    """These rows, the best one first: references, then by rank, id, source and digest.

    Rows that agree in all of that are one record that is there several times.
    """
    ranks = np.asarray(store.rank.whole()[rows]) + 0.0  # -0.0 becomes 0.0
    table = pa.table({"later": (~store.reference.whole()[rows]).view(np.uint8),
                      **{f"rank{at}": ranks[:, at] for at in range(store.ranks)},
                      "id": names.ids(rows), "source": names.sources(rows),
                      "digest": store.digest.whole()[rows]})
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    return rows[order.to_numpy()]


def _data(values: pa.Array) -> np.ndarray:
    """The bytes of binary values, one behind the other, without a copy; none is null."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[values.offset:values.offset + len(values) + 1]
    return np.frombuffer(data,
                         dtype=np.uint8)[bounds[0]:bounds[-1]] if data is not None else np.empty(0, np.uint8)


def _joined(parts: list[np.ndarray], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """One array of these parts, which are let go on the way, so that they are not in memory twice."""
    whole, at = np.empty(shape, dtype), 0
    parts.reverse()
    while parts:
        part = parts.pop()
        whole[at:at + len(part)] = part
        at += len(part)
    return whole
