"""Texts as one array of bytes, and the pieces of them (lines, paragraphs, words, characters) that are
compared and cut out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.keys import shard_values
from curator.api.stage import Contract, Outputs, Stage
from curator_dedup.shared.arrays import mix
from curator_dedup.shared.values import hash_values

# of text that is worked on at a time, about: the arrays over its bytes take up to 50 times as much
CHUNK_BYTES = 1 << 18
PIECES = pa.schema([
    ("id", pa.string()), ("source", pa.string()),
    ("shard", pa.int64()),  # a value that leads to the shard
    ("digest", pa.uint64()),  # of the text: tells records apart that share id and source
    ("hashes", pa.list_(pa.uint64())),  # of the pieces that belong to this shard
    ("checks", pa.list_(pa.uint32())),  # 32 more bits of each hash
    ("places", pa.list_(pa.uint32())),  # the number of each piece in its record, from 0, rising
    ("sizes", pa.list_(pa.uint32()))])  # characters of each piece; null where all are alike
CUTS = pa.schema([
    ("id", pa.string()), ("source", pa.string()), ("digest", pa.uint64()),
    ("twin", pa.int32()),  # which of several records that share id, source and text, from 0
    ("cut", pa.list_(pa.uint32())),  # places of the pieces that stand elsewhere before
    ("kept", pa.list_(pa.uint32())),  # places of pieces that others lose because they stand here
    ("of", pa.string()),  # the record where the longest of the cut pieces (of several the first) is kept
    ("cluster", pa.uint64()),  # a hash of the id and source of that record
    ("of_size", pa.uint32()), ("of_place", pa.uint32())])  # characters and place of that piece
_SPACE = bytes(byte in b" \t\n\r\v\f" for byte in range(256))


@dataclass
class PieceBatch(Batch):
    """The pieces of records: a row for each record and shard that it has a piece in. Columns: `PIECES`."""


@dataclass
class CutBatch(Batch):
    """What of a record is to be cut out, as far as one shard knows; a record may have several rows. Columns:
    `CUTS`."""


@dataclass(frozen=True)
class Texts:
    """Texts one behind the other: `data`, uint8; text i is data[starts[i]:starts[i + 1]]. A null is an empty
    text."""

    data: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Texts:
        return cls.of_array(plain_text(column))

    @classmethod
    def of_array(cls, texts: pa.LargeStringArray) -> Texts:
        texts = pc.fill_null(texts, "") if texts.null_count else texts
        _, offsets, data = texts.buffers()
        starts = np.frombuffer(offsets, dtype=np.int64)[texts.offset:texts.offset + len(texts) + 1]
        if not len(starts):
            starts = np.zeros(1, dtype=np.int64)
        size = starts[-1] - starts[0]
        data = np.frombuffer(data, dtype=np.uint8, count=size,
                             offset=starts[0]) if size else np.empty(0, np.uint8)
        return cls(data, starts - starts[0])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def part(self, low: int, high: int) -> Texts:
        """Texts from `low` up to but not including `high`."""
        starts = self.starts[low:high + 1]
        return Texts(self.data[starts[0]:starts[-1]], starts - starts[0])

    def array(self) -> pa.LargeStringArray:
        starts, data = pa.py_buffer(np.ascontiguousarray(self.starts)), pa.py_buffer(self.data)
        return pa.LargeStringArray.from_buffers(len(self), starts, data)

    def digests(self) -> np.ndarray:
        """A 64-bit hash of each text."""
        data, bounds = self.data.data, self.starts.tolist()
        hashed = [xxhash.xxh3_64_intdigest(data[low:high]) for low, high in itertools.pairwise(bounds)]
        return np.array(hashed, dtype=np.uint64)

    def without(self, removed: np.ndarray) -> pa.LargeStringArray:
        """The texts without the bytes that are marked."""
        starts = self.starts - marked_before(removed, self.starts)
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(starts),
                                                pa.py_buffer(self.data[~removed]))

    def count(self, marked: np.ndarray) -> np.ndarray:
        """How many bytes of each text are marked, int64."""
        return np.diff(marked_before(marked, self.starts))

    @property
    def begins(self) -> np.ndarray:
        """Whether a character begins at each byte."""
        return (self.data & 0xC0) != 0x80

    @property
    def space(self) -> np.ndarray:
        """Whether each byte is white space (of ASCII)."""
        return translated(self.data, _SPACE).view(bool)


@dataclass(frozen=True)
class Pieces:
    """Consecutive pieces of texts: piece i is bytes [start[i], end[i]); those of text t are first[t] to
    first[t + 1]."""

    start: np.ndarray
    end: np.ndarray
    first: np.ndarray

    @property
    def row(self) -> np.ndarray:
        """The text of each piece."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def sums(self, marked: np.ndarray) -> np.ndarray:
        """How many pieces of each text are marked, int32."""
        return np.diff(np.concatenate([[0], np.cumsum(marked)])[self.first]).astype(np.int32)

    def covered(self, runs: tuple[np.ndarray, np.ndarray], width: int) -> np.ndarray:
        """Which pieces are in a run of `width` that begins at one of these places (of these rows)."""
        edges = np.zeros(len(self.start) + 1, dtype=np.int32)
        begin = self.first[runs[0]] + runs[1]
        edges += np.bincount(begin, minlength=len(edges)).astype(np.int32)
        edges -= np.bincount(begin + width, minlength=len(edges)).astype(np.int32)
        return np.cumsum(edges)[:-1] > 0

    def removed(self, cut: np.ndarray, size: int) -> np.ndarray:
        """Which of `size` bytes go when the marked pieces are cut out: each with what separates it from the
        next piece; where no piece of the text is left behind it, from the one before."""
        row, index = self.row, np.arange(len(cut))
        kept = np.concatenate([[0], np.cumsum(~cut)])
        trailing = kept[self.first[row + 1]] == kept[index]
        after = np.append(self.start[1:], size)
        before = np.where(index > self.first[row], np.concatenate([[0], self.end[:-1]]), self.start)
        low = np.where(trailing, before, self.start)[cut]
        high = np.where(trailing, self.end, after)[cut]
        # the ranges do not overlap and none is empty: no place comes twice in a line
        edges = np.zeros(size + 1, dtype=np.int8)
        edges[low] += 1
        edges[high] -= 1
        return np.cumsum(edges[:-1], dtype=np.int8).view(bool)


def marked_before(marked: np.ndarray, places: np.ndarray) -> np.ndarray:
    """How many of `marked` are true before each of these places; quick where few are."""
    return np.searchsorted(np.flatnonzero(marked), places)


def translated(data: np.ndarray, table: bytes) -> np.ndarray:
    """Each byte replaced by what `table` has for it; several times as fast as indexing an array."""
    return np.frombuffer(data.tobytes().translate(table), dtype=np.uint8)


def is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(test(kind) for test in tests)


@dataclass(kw_only=True)
class HashPieces(Stage):
    """The hashes of a record's pieces, for `Repeated`: subclasses say what a piece is (`process`)."""

    column: str
    scope: str | None = None
    shards: int = 16

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.scope or self.column},
                        adds={f.name: f.type for f in list(PIECES)[2:]})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_text(self.column, columns[self.column])

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {name: columns[name] for name in ("id", "source")
                if name in columns} | dict(self.contract().adds)


def check_text(column: str, kind: pa.DataType | None) -> None:
    if kind is not None and not is_text(kind):
        raise RecipeError(f"texts can be cut, and column {column!r} is {kind}")


def plain_text(column: pa.ChunkedArray) -> pa.LargeStringArray:
    """A column of text as one array."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.cast(pa.large_string()).combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) and array.num_chunks else (
        pa.array([], pa.large_string()) if isinstance(array, pa.ChunkedArray) else array)


def chunks(texts: Texts, size: int = CHUNK_BYTES) -> Iterator[tuple[int, int]]:
    """Texts [low, high) of about `size` bytes together; a longer one stands alone."""
    low = 0
    while low < len(texts):
        high = int(np.searchsorted(texts.starts, texts.starts[low] + size, side="right")) - 1
        high = min(max(high, low + 1), len(texts))
        yield low, high
        low = high


def scopes(batch: Batch, scope: str) -> np.ndarray:
    """What is mixed into the hashes of each row, uint64: pieces of rows with another value of `scope` do not
    meet."""
    return mix(hash_values(batch, [scope])[0][:, 0])


@dataclass(frozen=True)
class Hashed:
    """Pieces to compare: the row of each, its place in the record, 96 bits of hash and, maybe, its
    characters."""

    row: np.ndarray
    place: np.ndarray
    hash: np.ndarray
    check: np.ndarray
    size: np.ndarray | None = None


def gathered(batch: Batch, found: list[Hashed], scope: str | None) -> Hashed:
    """What was found in parts of the batch, one or more, together; hashes are those within the scope."""
    row, place, hashes, check = (np.concatenate([getattr(h, name) for h in found])
                                 for name in ("row", "place", "hash", "check"))
    size = None if found[0].size is None else np.concatenate([h.size for h in found])
    if scope is not None:
        hashes = mix(hashes ^ scopes(batch, scope)[row])
    return Hashed(row, place, hashes, check, size)


def piece_outputs(batch: Batch, texts: Texts, found: list[Hashed], scope: str | None, shards: int) -> Outputs:
    """A row for each record of the batch and shard that it has pieces in; records without any are
    absorbed."""
    if not found:
        return Outputs(absorbed=batch)
    together = gathered(batch, found, scope)
    row, place, hashes, check, size = (getattr(together, name)
                                       for name in ("row", "place", "hash", "check", "size"))
    shard = (hashes % np.uint64(shards)).astype(np.uint16)
    order = np.argsort(shard, kind="stable")  # by shard, record, place
    shard, row = shard[order], row[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (shard[1:] != shard[:-1]) | (row[1:] != row[:-1])
    at = np.flatnonzero(begins)
    offsets = pa.array(np.append(at, len(order)).astype(np.int32))

    def lists(values: np.ndarray, kind: type = np.uint32) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(values[order].astype(kind, copy=False)))

    made = batch.select(()).take(row[at]).with_columns({
        "shard": pa.array(shard_values(shards)[shard[at]]), "digest": pa.array(texts.digests()[row[at]]),
        "hashes": lists(hashes, np.uint64), "checks": lists(check), "places": lists(place),
        "sizes": pa.nulls(len(at), pa.list_(pa.uint32())) if size is None else lists(size)})
    lonely = np.ones(len(batch), dtype=bool)
    lonely[row] = False
    return Outputs(out=PieceBatch(rows=made.rows), absorbed=batch.filter(lonely))
