"""Of equal records let the first one through, as they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.findings import Finding
from curator.api.keys import record_keys, units
from curator.api.stage import Context, Contract, Outputs, Snapshot, Stateful, setting
from curator_dedup.shared.findings import findings_of_duplicates
from curator_dedup.shared.hash_index import HashIndex
from curator_dedup.shared.values import columns_of_copies, scoped_hashes

# in place of a unit, where the record that was kept is void and the next equal one takes its place
NOBODY = -1


@dataclass(kw_only=True)
class ExactStream(Stateful):
    """Let one of equal records through, the first to arrive; the others go to `duplicate`, naming it in
    `duplicate_of`.

    `column`, `normalize`, `scope`: as in `DedupExact`. Memory: about 70 bytes a record that is let through,
    plus its id; twice that while its tables grow.
    """

    count_by = ("source",)

    column: list[str]
    normalize: bool | str = False
    scope: str | None = None
    alarm_above: Mapping[str, float] = setting(default_factory=dict)

    def contract(self) -> Contract:
        return Contract(needs={*self.column, *([self.scope] if self.scope else [])})

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        return findings_of_duplicates(step, counts, self.alarm_above)

    def setup(self, ctx: Context) -> None:
        self._kept = _Kept()
        self._by_unit: dict[int, list[np.ndarray]] = {}  # numbers of the records that a unit brought
        self._depends: dict[int, set[int]] = {}  # units that brought what a unit's duplicates are equal to

    def process(self, batch: Batch) -> Outputs:
        hashes, present = scoped_hashes(batch, self.column, self.normalize, self.scope)
        keys, unit = record_keys(batch), units(batch)
        numbers = self._kept.index.find(hashes)
        known = present & (numbers >= 0)
        known[known] = self._kept.unit[numbers[known]] != NOBODY
        head = _first_rows(hashes, present & ~known)
        passes = ~known & (head == np.arange(len(batch)))
        same = np.flatnonzero(known & self._kept.awaited(numbers, keys, unit))
        # a second one in this call was never shown before
        same = same[np.unique(numbers[same], return_index=True)[1]]
        passes[same] = True
        copies = np.flatnonzero(~passes)
        of, owner = self._originals(batch, numbers[copies], known[copies], head[copies], unit)
        answer = Outputs(out=batch.filter(passes),
                         duplicate=batch.take(copies).with_columns(columns_of_copies(of, hashes[copies])))
        # Nothing is learned before nothing can fail: a call that raised is repeated, and must find things as
        # they were.
        self._kept.pending[numbers[same]] = False
        new = np.flatnonzero(passes & present & ~known)
        self._learn(unit[new], numbers[new], hashes[new], keys[new], _ids(batch, new))
        for one, other in set(zip(unit[copies].tolist(), owner.tolist(), strict=True)):
            if one != other:
                self._depends.setdefault(one, set()).add(other)
        return answer

    def _originals(self, batch: Batch, numbers: np.ndarray, known: np.ndarray, head: np.ndarray,
                   unit: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Id and unit of the records that copies are equal to: kept before, or rows of this batch
        (`head`)."""
        owner = np.where(known, self._kept.unit[numbers], unit[head])
        before = iter(self._kept.ids(numbers[known]))
        now = iter(_ids(batch, head[~known]))
        return pa.array([next(before if is_known else now).decode() for is_known in known.tolist()],
                        pa.string()), owner

    def _learn(self, unit: np.ndarray, numbers: np.ndarray, hashes: np.ndarray, keys: np.ndarray,
               ids: list[bytes]) -> None:
        taken = self._kept.keep(numbers, hashes, keys, unit, ids)
        for one in np.unique(unit):
            self._by_unit.setdefault(int(one), []).append(taken[unit == one].astype(np.uint32))

    # -- units ----------------------------------------------------------------------------------------------

    def snapshot(self, unit: int) -> Snapshot:
        """Hash, id and key of each record that the unit brought."""
        numbers = np.concatenate([np.empty(0, np.uint32), *self._by_unit.get(unit, ())])
        return Snapshot(self._kept.table(numbers), frozenset(self._depends.get(unit, ())))

    def restore(self, unit: int, state: pa.Table) -> None:
        hashes = np.frombuffer(b"".join(state.column("hash").to_pylist()), dtype=np.uint64).reshape(-1, 2)
        absent = np.flatnonzero(self._kept.index.find(hashes) < 0)
        rows, keys = state.take(pa.array(absent)), state.column("key").to_numpy()[absent]
        ids = rows.column("id").cast(pa.large_binary()).to_pylist()
        self._learn(np.full(len(absent), unit), np.full(len(absent), -1), hashes[absent], keys, ids)

    def replay(self, unit: int) -> None:
        """Each record that the unit brought passes once more; until then it still stands for its equals."""
        for numbers in self._by_unit.get(unit, ()):
            self._kept.pending[numbers] = True

    def discard(self, unit: int) -> None:
        for numbers in self._by_unit.pop(unit, ()):
            self._kept.unit[numbers] = NOBODY
        self._depends.pop(unit, None)


def _first_rows(hashes: np.ndarray, among: np.ndarray) -> np.ndarray:
    """For each of these rows the first one of them with its hash; for any other row itself."""
    rows = np.arange(len(hashes))
    first: dict[bytes, int] = {}
    values = hashes.tobytes()
    for row in np.flatnonzero(among).tolist():
        rows[row] = first.setdefault(values[row * 16:row * 16 + 16], row)
    return rows


def _ids(batch: Batch, rows: np.ndarray) -> list[bytes]:
    return batch.rows.column("id").take(pa.array(rows)).cast(pa.large_binary()).to_pylist()


class _Kept:
    """The records that were let through, by number: the hash of the value, who the record is, its unit and
    its id."""

    def __init__(self) -> None:
        self.index = HashIndex()
        self.unit = np.empty(1024, dtype=np.int32)
        self._key = np.empty(1024, dtype=np.uint64)
        self._start = np.empty(1024, dtype=np.uint64)  # where the id stands in `_text`
        self._size = np.empty(1024, dtype=np.uint32)
        self.pending = np.zeros(1024, dtype=bool)  # will be shown again
        self._text = bytearray()

    @property
    def nbytes(self) -> int:
        arrays = (self.unit, self._key, self._start, self._size, self.pending, self.index)
        return sum(array.nbytes for array in arrays) + len(self._text)

    def keep(self, numbers: np.ndarray, hashes: np.ndarray, keys: np.ndarray, unit: np.ndarray,
             ids: list[bytes]) -> np.ndarray:
        """Keep records; their numbers. A number of -1 is a new value, any other one that nobody holds."""
        numbers = np.array(numbers, dtype=np.int64)
        sizes = np.fromiter(map(len, ids), dtype=np.uint64, count=len(ids))
        starts = np.uint64(len(self._text)) + np.cumsum(sizes) - sizes
        self._text += b"".join(ids)
        while len(self.index) + len(ids) > len(self.unit):
            for name in ("unit", "_key", "_start", "_size", "pending"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
        numbers[numbers < 0] = self.index.add(hashes[numbers < 0])
        self._start[numbers], self._size[numbers], self._key[numbers], self.unit[numbers] = starts, sizes, keys, unit
        self.pending[numbers] = False
        return numbers

    def awaited(self, numbers: np.ndarray, keys: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """Whether these rows are the very records that were kept, shown again as was said."""
        return (numbers >= 0) & self.pending[numbers] & (self._key[numbers]
                                                         == keys) & (self.unit[numbers] == unit)

    def ids(self, numbers: np.ndarray) -> list[bytes]:
        spans = zip(self._start[numbers].tolist(), self._size[numbers].tolist(), strict=True)
        return [bytes(self._text[start:start + size]) for start, size in spans]

    def table(self, numbers: np.ndarray) -> pa.Table:
        hashes = pa.array([row.tobytes() for row in self.index.hashes(numbers)], pa.binary(16))
        ids = pa.array([i.decode() for i in self.ids(numbers)], pa.string())
        return pa.table({"hash": hashes, "id": ids, "key": pa.array(self._key[numbers])})
