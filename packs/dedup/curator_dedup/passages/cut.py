"""Cutting out of texts what stands elsewhere, as `Repeated` or a stage that decides as records flow by found
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.keys import record_keys
from curator.api.stage import Context, Contract, Outputs, Reduce, setting
from curator_dedup.passages.pieces import CutBatch, Texts, chunks, plain_text
from curator_dedup.shared.arrays import ranges


@dataclass(frozen=True)
class Removal:
    """What goes of some texts: bytes, pieces or spans of each text (int32), and whether a text holds nothing
    that must stay."""

    removed: np.ndarray
    count: np.ndarray
    spent: np.ndarray


@dataclass(frozen=True)
class Found:
    """What of some texts is cut and what stays: rows and places of pieces, and the row of `CutBatch` that
    names the holder."""

    cut: tuple[np.ndarray, np.ndarray]
    kept: tuple[np.ndarray, np.ndarray]
    best: np.ndarray  # the row of the table of holders for each text, -1 for none


class Cutting:
    """What stages that cut have in common: they say in `remove` which bytes go, and in `counted` how the
    columns of counts are called. They have the fields `column` and `min_left`.

    Records whose text is cut go on with what is left. One that holds nothing that others lose in its favour,
    and of which fewer than `min_left` characters are left, white space not counted, goes to `duplicate` as it
    was.
    """

    column: str
    min_left: int
    counted: ClassVar[tuple[str, str]] = ("removed_pieces", "removed_chars")

    def contract(self) -> Contract:
        return Contract(needs={self.column}, adds={self.counted[0]: pa.int32(), self.counted[1]: pa.int64()})

    def remove(self, texts: Texts, found: Found) -> Removal:
        raise TypeError(f"{type(self).__name__} has no remove method")

    def judge(self, share: np.ndarray, left: np.ndarray, spent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which records are duplicates, given the share of characters that stand elsewhere; and which go on
        with what is left."""
        gone = spent & (left < self.min_left)
        return gone, ~gone

    def cut(self, batch: Batch, rows: np.ndarray, texts: Texts, found: Found, holders: pa.Table) -> Outputs:
        """The batch without what was found in the texts of these rows. `holders`: `of`, an id, and `cluster`,
        uint64."""
        parts = list(self._parts(texts, found))
        changed, *arrays = zip(*parts, strict=True)
        changed, (count, removed, gone, share) = pa.concat_arrays(changed), map(np.concatenate, arrays)
        counts, chars = np.zeros(len(batch), np.int32), np.zeros(len(batch), np.int64)
        counts[rows], chars[rows] = count, removed
        duplicate = np.zeros(len(batch), dtype=bool)
        duplicate[rows] = gone
        out = batch
        if count[~gone].any():
            out = batch.with_columns({self.column: _replaced(batch.rows.column(self.column), rows[count > 0],
                                                             changed.filter(pa.array(count > 0)))})
        answer = Outputs(out=self._told(out, counts, chars).filter(~duplicate))
        if gone.any():
            answer["duplicate"] = _named(batch.take(rows[gone]), holders.take(pa.array(found.best[gone])),
                                         share[gone])
        return answer

    def untouched(self, batch: Batch) -> Outputs:
        return Outputs(out=self._told(batch, np.zeros(len(batch), np.int32), np.zeros(len(batch), np.int64)))

    def _parts(self, texts: Texts, found: Found) -> Iterator[tuple]:
        """For each text: what is left, pieces and characters removed, whether it is a duplicate, the share
        that is elsewhere."""
        for low, high in chunks(texts):
            some = texts.part(low, high)
            cut, kept = ((rows[part] - low, places[part]) for rows, places in (found.cut, found.kept)
                         for part in [slice(*np.searchsorted(rows, [low, high]))])
            removal = self.remove(some, Found(cut, kept, found.best[low:high]))
            inner = ~some.begins  # bytes of a character but its first
            chars = some.count(removal.removed) - some.count(inner & removal.removed)
            whole = np.diff(some.starts) - some.count(inner)
            left = whole - chars - some.count(some.space & ~removal.removed)
            share = chars / np.maximum(whole, 1)
            gone, trimmed = self.judge(share, left, removal.spent)
            gone &= removal.count > 0
            removed = removal.removed & np.repeat(trimmed, np.diff(some.starts))
            yield some.without(removed), removal.count * trimmed, chars * trimmed, gone, share

    def _told(self, batch: Batch, counts: np.ndarray, chars: np.ndarray) -> Batch:
        return batch.with_columns({self.counted[0]: pa.array(counts, pa.int32()),
                                   self.counted[1]: pa.array(chars, pa.int64())})


@dataclass(kw_only=True)
class Cut(Cutting, Reduce):
    """Cuts what `Repeated` found."""

    column: str = "text"
    min_left: int = 1
    shards: int = setting(default=16)

    key = "id"
    absorbs = CutBatch

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._rows: list[pa.Table] = []
        self._learned: _Learned | None = None

    def absorb(self, batch: Batch) -> None:
        table = batch.rows.select(["digest", "twin", "cut", "kept", "of", "cluster", "of_size", "of_place"])
        self._rows.append(table.append_column("key", pa.array(record_keys(batch))))

    def process(self, batch: Batch) -> Outputs:
        if isinstance(batch, CutBatch):
            return Outputs(absorbed=batch)
        if self._learned is None:
            self._learned, self._rows = _Learned(self._rows), []
        keys = record_keys(batch)
        touched = np.flatnonzero(self._learned.has(keys))
        if not len(touched):
            return self.untouched(batch)
        texts = Texts.of(batch.rows.column(self.column).take(pa.array(touched)))
        found, seen = self._learned.find(keys[touched], texts.digests())
        answer = self.cut(batch, touched, texts, found, self._learned.rows)
        self._learned.saw(seen)  # last: a call that raised is repeated, and must find things as they were
        return answer


def _named(batch: Batch, holders: pa.Table, share: np.ndarray) -> Batch:
    clusters = [f"{cluster:016x}" for cluster in holders.column("cluster").to_pylist()]
    return batch.with_columns({"duplicate_of": holders.column("of"),
                               "similarity": pa.array(share.astype(np.float32)),
                               "cluster": pa.array(clusters, pa.string())})


def _replaced(column: pa.ChunkedArray, rows: np.ndarray, texts: pa.LargeStringArray) -> pa.ChunkedArray:
    """The column, of the type it has, with these texts in these rows."""
    mask = np.zeros(len(column), dtype=bool)
    mask[rows] = True
    made = pc.replace_with_mask(plain_text(column), pa.array(mask), texts)
    if pa.types.is_dictionary(column.type):
        return pa.chunked_array([made.cast(column.type.value_type).dictionary_encode().cast(column.type)])
    return pa.chunked_array([made.cast(column.type)])


class _Learned:
    """All that is to be cut in a shard, sorted by record. Records of one key, digest and number (twin) are
    one."""

    def __init__(self, tables: list[pa.Table]) -> None:
        rows = pa.concat_tables(tables).combine_chunks() if tables else None
        self._seen: Counter = Counter()
        if rows is None:
            self._key = np.empty(0, np.uint64)
            return
        columns = {name: rows.column(name).to_numpy() for name in ("key", "digest", "twin")}
        order = np.lexsort((columns["twin"], columns["digest"], columns["key"]))
        self._key, self._digest, self._twin = (columns[name][order] for name in ("key", "digest", "twin"))
        self.rows = rows.select(["of", "cluster"]).take(pa.array(order))
        self._size, self._place = (rows.column(name).fill_null(0).to_numpy()[order].astype(np.int64)
                                   for name in ("of_size", "of_place"))
        self._named = pc.is_valid(self.rows.column("of")).to_numpy()
        self._lists = {}
        for name in ("cut", "kept"):
            counts = pc.list_value_length(rows.column(name)).to_numpy().astype(np.int64)
            flat = np.concatenate([np.empty(0, np.uint32),
                                   *(c.to_numpy() for c in pc.list_flatten(rows.column(name)).chunks)])
            self._lists[name] = (np.cumsum(counts) - counts)[order], counts[order], flat
        self._many = np.unique(self._key[self._twin > 0])

    def has(self, keys: np.ndarray) -> np.ndarray:
        at = np.searchsorted(self._key, keys)
        return np.append(self._key, 0)[at] == keys if len(self._key) else np.zeros(len(keys), dtype=bool)

    def find(self, keys: np.ndarray, digest: np.ndarray) -> tuple[Found, Counter]:
        """What concerns these records; and, for `saw`, how many of records that have twins these are."""
        twin, seen = np.zeros(len(keys), dtype=np.int32), Counter[tuple[int, int]]()
        for many in np.flatnonzero(np.isin(keys, self._many)).tolist():
            name = int(keys[many]), int(digest[many])
            twin[many] = self._seen[name] + seen[name]
            seen[name] += 1
        low, high = np.searchsorted(self._key, keys), np.searchsorted(self._key, keys, side="right")
        row = np.repeat(np.arange(len(keys)), high - low)
        one = ranges(low, high - low)
        same = (self._digest[one] == digest[row]) & (self._twin[one] == twin[row])
        row, one = row[same], one[same]
        named = self._named[one]
        order = np.lexsort((self._place[one], -self._size[one], row))
        order = order[named[order]]
        best = np.full(len(keys), -1)
        holders, at = np.unique(row[order], return_index=True)
        best[holders] = one[order[at]]
        return Found(self._places("cut", row, one), self._places("kept", row, one), best), seen

    def _places(self, name: str, row: np.ndarray, one: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts, counts, flat = self._lists[name]
        return np.repeat(row, counts[one]), flat[ranges(starts[one], counts[one])].astype(np.int64)

    def saw(self, seen: Counter) -> None:
        self._seen.update(seen)
