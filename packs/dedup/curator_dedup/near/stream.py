"""Near duplicates found while records flow by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.keys import record_keys, units
from curator.api.stage import Context, Contract, Outputs, Snapshot, Stateful
from curator_dedup.near.sketch import bucket_keys
from curator_dedup.shared.arrays import by_key, distinct, grown, pairs_of_key
from curator_dedup.shared.clusters import cluster_keys, cluster_names
from curator_dedup.shared.rows import digests

_NOBODY = pa.table({"id": pa.nulls(0, pa.string()), "source": pa.nulls(0, pa.string()),
                    "digest": pa.nulls(0, pa.uint64())})
NOBODY = -1  # in place of a unit: the record is void
# records that are kept under a key and looked at, of each run of the index; more are a template, not
# look-alikes
LOOK_AT = 64


@dataclass(kw_only=True)
class NearStream(Stateful):
    """Let a record through unless one that went through before is similar; the first to arrive stays.

    Memory for each record that goes through: its sketch, 24 bytes a key, its id and 20 bytes (with 112 hashes
    in 14 bands about 500 bytes; of a list of hashes sketch and keys of as many as `hashes` says, also of a
    shorter one: 16 kB for 128 with a share); half as much again while its tables grow.
    """

    measure: Any
    scope: str | None = None

    name = "stream"
    version = 2

    def contract(self) -> Contract:
        return Contract(needs=self.measure.needs() | ({self.scope} if self.scope else set()))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        self.measure.check(columns)

    def setup(self, ctx: Context) -> None:
        self._kept = _Kept()
        self._depends: dict[int, set[int]] = {}  # units that brought what a unit's duplicates are similar to

    def process(self, batch: Batch) -> Outputs:
        present, sketches = self.measure.encode(batch)
        found = bucket_keys(self.measure, batch.filter(present), sketches[present], self.scope)
        keys = np.zeros((len(batch), found.shape[1]), dtype=np.uint64)
        keys[present] = found
        digest = digests(sketches)
        names, unit = record_keys(batch) ^ digest, units(batch)
        awaited = self._kept.awaited(names, unit, present)
        open_ = np.flatnonzero(present & (awaited < 0))
        number, likeness = self._kept.match(keys[open_], sketches[open_], open_, len(batch), self.measure)
        open_ = open_[number[open_] < 0]
        head, among = first_alike(keys[open_], sketches[open_], self.measure)
        row_of = np.arange(len(batch))
        row_of[open_], likeness[open_] = open_[head], np.where(head == np.arange(len(open_)), likeness[open_],
                                                               among)
        same = (number >= 0) | (row_of != np.arange(len(batch)))
        answer = self._answer(batch, same, number, row_of, likeness, digest)
        # Nothing is learned before nothing can fail: a call that raised is repeated, and must find things as
        # they were.
        for row in np.flatnonzero(same).tolist():
            owner = int(self._kept.unit[number[row]]) if number[row] >= 0 else int(unit[row_of[row]])
            if owner != unit[row]:
                self._depends.setdefault(int(unit[row]), set()).add(owner)
        self._kept.seen_again(awaited[awaited >= 0])
        new = open_[head == np.arange(len(open_))]
        self._kept.keep(names[new], unit[new], sketches[new], keys[new], _who(batch, new, digest))
        return answer

    def _answer(self, batch: Batch, same: np.ndarray, number: np.ndarray, row_of: np.ndarray,
                likeness: np.ndarray,
                digest: np.ndarray) -> Outputs:
        copies = np.flatnonzero(same)
        before, now = self._kept.who(number[copies]), _who(batch, row_of[copies], digest)
        known = pa.array(number[copies] >= 0)
        of, source, looks = (pc.if_else(known, before.column(name), now.column(name))
                             for name in ("id", "source", "digest"))
        columns = {"duplicate_of": of, "similarity": pa.array(likeness[copies], pa.float32()),
                   "cluster": cluster_names(cluster_keys(of, source, looks.to_numpy()))}
        return Outputs(out=batch.filter(~same), duplicate=batch.take(copies).with_columns(columns))

    # -- units ----------------------------------------------------------------------------------------------

    def snapshot(self, unit: int) -> Snapshot:
        """Name, id, source, digest, sketch and keys of each record that the unit brought."""
        return Snapshot(self._kept.table(unit), frozenset(self._depends.get(unit, ())))

    def restore(self, unit: int, state: pa.Table) -> None:
        self._kept.keep_table(unit, state)

    def replay(self, unit: int) -> None:
        self._kept.await_all(unit)

    def discard(self, unit: int) -> None:
        self._kept.discard(unit)
        self._depends.pop(unit, None)


def _who(batch: Batch, rows: np.ndarray, digest: np.ndarray) -> pa.Table:
    named = batch.rows.select(["id", "source"]).take(pa.array(rows))
    return pa.table({"id": named.column("id").cast(pa.string()),
                     "source": named.column("source").cast(pa.string()),
                     "digest": digest[rows]})


def first_alike(keys: np.ndarray, sketches: np.ndarray, measure: Any) -> tuple[np.ndarray, np.ndarray]:
    """For each row the first one before it that is similar and is itself like none before it (itself if there
    is none), and how similar they are. Rows of one call: a few hundred."""
    head, likeness = np.arange(len(keys)), np.zeros(len(keys), dtype=np.float32)
    index = Postings()
    index.add(keys.ravel(), np.repeat(np.arange(len(keys), dtype=np.uint32), keys.shape[1]))
    row, other = index.find(keys, most=len(keys))
    row, other = row[other < row], other[other < row]
    alike = measure.similarity(sketches[row], sketches[other]) if len(row) else likeness[:0]
    good = alike >= measure.least(sketches.shape[1]) if len(row) else np.zeros(0, dtype=bool)
    # by row, then by other
    for a, b, how in zip(row[good].tolist(), other[good].tolist(), alike[good].tolist(), strict=True):
        if head[a] == a and head[b] == b:
            head[a], likeness[a] = b, how
    return head, likeness


class Postings:
    """Numbers of records by key: sorted runs, each longer than the next (the logarithmic method of Bentley
    and Saxe 1980)."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, keys: np.ndarray, numbers: np.ndarray) -> None:
        """`keys`: uint64 [m]; `numbers`: uint32 [m], ascending, of the record that has each."""
        if not len(keys):
            return
        while self._runs and len(self._runs[-1][0]) < 2 * len(keys):
            before = self._runs.pop()
            keys, numbers = np.concatenate([before[0], keys]), np.concatenate([before[1], numbers])
        self._runs.append(by_key(keys, numbers))

    def find(self, keys: np.ndarray, most: int = LOOK_AT) -> tuple[np.ndarray, np.ndarray]:
        """Pairs (row of `keys` [n, bands], number) that share a key, each once, sorted; of a key at most
        `most` a run."""
        flat, rows = keys.ravel(), np.repeat(np.arange(len(keys), dtype=np.int64), keys.shape[1])
        found = [np.zeros(0, dtype=np.int64)]
        for sorted_keys, numbers in self._runs:
            found.append(pairs_of_key(sorted_keys, numbers, flat, rows, most))
        pairs = distinct(np.concatenate(found))
        return pairs >> 32, pairs & 0xFFFFFFFF


@dataclass
class _Kept:
    """The records that went through, by number."""

    unit: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    _names: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    _sketches: np.ndarray | None = None
    _keys: np.ndarray | None = None
    _who: list[pa.Table] = field(default_factory=lambda: [_NOBODY])  # id, source and digest of all, in pieces
    _count: int = 0
    _by_unit: dict[int, list[np.ndarray]] = field(default_factory=dict)
    _awaited: dict[int, int] = field(default_factory=dict)  # name to number of those that will be shown again
    _postings: Postings = field(default_factory=Postings)

    def keep(self, names: np.ndarray, unit: np.ndarray, sketches: np.ndarray, keys: np.ndarray,
             who: pa.Table) -> None:
        if not len(names):
            return
        first, self._count = self._count, self._count + len(names)
        numbers = np.arange(first, self._count, dtype=np.uint32)
        for name, values in (("unit", unit), ("_names", names), ("_sketches", sketches), ("_keys", keys)):
            setattr(self, name, grown(getattr(self, name), first, values))
        self._who.append(who)
        if len(self._who) > 256:
            self._who = [pa.concat_tables(self._who).combine_chunks()]
        self._postings.add(keys.ravel(), np.repeat(numbers, keys.shape[1]))
        for one in np.unique(unit).tolist():
            self._by_unit.setdefault(one, []).append(numbers[unit == one])

    def match(self, keys: np.ndarray, sketches: np.ndarray, rows: np.ndarray, total: int,
              measure: Any) -> tuple[np.ndarray, np.ndarray]:
        """For each of `total` rows the first record kept that is similar (-1: none), and how similar it is.

        Raises:
            InputError: signatures or vectors of different widths.
        """
        number, likeness = np.full(total, -1, dtype=np.int64), np.zeros(total, dtype=np.float32)
        if not len(rows) or self._sketches is None:
            return number, likeness
        if sketches.shape[1] != self._sketches.shape[1]:
            raise InputError("what is compared must all have one width: some records have sketches of "
                             f"{self._sketches.shape[1]} bytes, others of {sketches.shape[1]}")
        at, other = self._postings.find(keys)
        alive = self.unit[other] != NOBODY
        at, other = at[alive], other[alive]
        for start in range(0, len(at), 1 << 16):
            some, these = at[start:start + (1 << 16)], other[start:start + (1 << 16)]
            alike = measure.similarity(sketches[some], self._sketches[these])
            good = (alike >= measure.least(sketches.shape[1])) & (number[rows[some]] < 0)
            first = np.unique(some[good], return_index=True)[1]
            number[rows[some[good][first]]], likeness[rows[some[good][first]]] = these[good][first], alike[good][first]
        return number, likeness

    def who(self, numbers: np.ndarray) -> pa.Table:
        """Id, source and digest of each; nulls for -1."""
        return pa.concat_tables(self._who).take(pa.array(numbers, mask=numbers < 0))

    # -- units ----------------------------------------------------------------------------------------------

    def of_unit(self, unit: int) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype=np.uint32), *self._by_unit.get(unit, ())])

    def awaited(self, names: np.ndarray, unit: np.ndarray, present: np.ndarray) -> np.ndarray:
        """The number of each row that is a record shown again, as was said; -1 for others, and for a second
        one like it."""
        found, seen = np.full(len(names), -1, dtype=np.int64), set()
        if self._awaited:
            for row in np.flatnonzero(present).tolist():
                number = self._awaited.get(int(names[row]), -1)
                if number >= 0 and number not in seen and self.unit[number] == unit[row]:
                    found[row] = number
                    seen.add(number)
        return found

    def seen_again(self, numbers: np.ndarray) -> None:
        for number in numbers.tolist():
            self._awaited.pop(int(self._names[number]), None)

    def await_all(self, unit: int) -> None:
        self._awaited |= {int(self._names[number]): int(number) for number in self.of_unit(unit)}

    def discard(self, unit: int) -> None:
        for number in self.of_unit(unit):
            self.unit[number] = NOBODY
            self._awaited.pop(int(self._names[number]), None)
        self._by_unit.pop(unit, None)

    def table(self, unit: int) -> pa.Table:
        numbers = self.of_unit(unit)
        sketches, keys = (pa.array([] if array is None else [row.tobytes() for row in array[numbers]],
                                   pa.binary()) for array in (self._sketches, self._keys))
        return self.who(numbers.astype(np.int64)).append_column("name",
                                                                pa.array(self._names[numbers])).append_column(
    "sketch", sketches).append_column("keys", keys)

    def keep_table(self, unit: int, state: pa.Table) -> None:
        if state.num_rows:
            sketches, keys = (np.frombuffer(b"".join(state.column(c).to_pylist()),
                                            dtype=kind).reshape(state.num_rows, -1)
                              for c, kind in (("sketch", np.uint8), ("keys", np.uint64)))
            self.keep(state.column("name").to_numpy(), np.full(state.num_rows, unit, dtype=np.int32),
                      sketches, keys,
                      state.select(_NOBODY.column_names))
