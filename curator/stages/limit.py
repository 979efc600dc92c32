"""Stop after so many records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.keys import record_keys, units
from curator.api.stage import Context, Contract, Outputs, Snapshot, Stateful

REASON = "limit"


@dataclass(kw_only=True)
class Limit(Stateful):
    """Let the first `records` records through; the others are dropped with the reason `limit`.

    First by arrival: which ones these are may differ from run to run; for a choice that stays the same take
    `sample`. When the limit is reached, input that has not been read stays unread where nothing else needs
    it.
    """

    records: int

    def __post_init__(self) -> None:
        self.at_least(0, "records")

    def contract(self) -> Contract:
        return Contract()

    def setup(self, ctx: Context) -> None:
        self._let_through: dict[int, list[int]] = {}  # keys of records, by unit
        self._count = 0
        self._turned_away: set[int] = set()  # units that lost records
        self._awaited: dict[int, Counter[int]] = {}  # keys of records that will be shown again, by unit

    def process(self, batch: Batch) -> Outputs:
        keys, unit = record_keys(batch).tolist(), units(batch).tolist()
        awaited = {one: self._awaited[one].copy() for one in set(unit) if one in self._awaited}
        room = self.records - self._count
        passes = np.zeros(len(batch), dtype=bool)
        fresh: list[int] = []
        for row, (key, one) in enumerate(zip(keys, unit, strict=True)):
            if one in awaited and awaited[one][key] > 0:
                awaited[one][key] -= 1
                passes[row] = True
            elif len(fresh) < room:
                fresh.append(row)
                passes[row] = True
        answer = Outputs(out=batch.filter(passes), dropped=batch.filter(~passes).with_reason(REASON))
        # Nothing is learned before nothing can fail: a call that raised is repeated, and must find things as
        # they were.
        self._awaited |= awaited
        self._turned_away |= {one for one, passed in zip(unit, passes, strict=True) if not passed}
        self._learn((unit[row], keys[row]) for row in fresh)
        return answer

    def exhausted(self) -> bool:
        return self._count >= self.records

    def snapshot(self, unit: int) -> Snapshot:
        """The keys of the records that the unit got through; it rests on all others that got any through if
        it lost some."""
        others = len(self._let_through) - (unit in self._let_through)
        keys = pa.array(self._let_through.get(unit, []), pa.uint64())
        return Snapshot(pa.table({"key": keys}), rests_on=others if unit in self._turned_away else 0)

    def restore(self, unit: int, state: pa.Table) -> None:
        self._learn((unit, key) for key in state.column("key").to_pylist())

    def replay(self, unit: int) -> None:
        """The records that the unit got through pass again and are not counted twice."""
        self._awaited[unit] = Counter(self._let_through.get(unit, ()))

    def discard(self, unit: int) -> None:
        self._count -= len(self._let_through.pop(unit, ()))
        self._awaited.pop(unit, None)
        self._turned_away.discard(unit)

    def _learn(self, records: Iterable[tuple[int, int]]) -> None:
        for unit, key in records:
            self._let_through.setdefault(unit, []).append(key)
            self._count += 1
