"""The last part of a deduplication: every record goes on or to `duplicate`, as the verdict over it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch, concat_tables
from curator.api.counts import Counts
from curator.api.findings import Finding
from curator.api.keys import record_keys
from curator.api.stage import Context, Contract, Outputs, Reduce, setting
from curator_dedup.shared.findings import findings_of_duplicates
from curator_dedup.shared.rows import VERDICT, VerdictBatch, digests

ADDED = ("duplicate_of", "similarity", "cluster")  # columns on the port `duplicate`
_OF_VERDICT = ["id", "source", "digest", "reference", "cluster_size", *ADDED]


@dataclass(kw_only=True)
class Split(Reduce):
    """Records of which a verdict says that they are duplicates go to `duplicate`, the others on.

    Takes records and `VerdictBatch` rows; absorbs the latter. `measure`: what was compared; a record is known
    again by its id, its source and what was compared of it. Of records that have all three in common the
    first one that comes goes on; if they are references, all. `copies`: a column for how many were alike, the
    record with them, so 1 of one that was alone. `alarm_above`: the shares of all records in one
    `cluster`, and of a `source` lost, above which the run raises an alarm. Memory: about 100 bytes a verdict.
    """

    measure: Any
    copies: str | None = None
    shards: int = setting(default=16)
    alarm_above: Mapping[str, float] = setting(default_factory=dict)

    name = "split"
    key = "id"
    absorbs = VerdictBatch
    count_by = ("source",)

    def contract(self) -> Contract:
        return Contract(needs=self.measure.needs(), adds={self.copies: pa.int32()} if self.copies else {})

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        return findings_of_duplicates(step, counts, self.alarm_above)

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._verdicts = _Verdicts()

    def absorb(self, batch: Batch) -> None:
        self._verdicts.add(batch.rows)

    def process(self, batch: Batch) -> Outputs:
        if isinstance(batch, VerdictBatch):
            return Outputs(absorbed=batch)
        present, sketches = self.measure.encode(batch)
        found = self._verdicts.find(record_keys(batch), digests(sketches), present)
        same, columns = self._verdicts.duplicates(found, batch.rows.column("id"))
        if self.copies:
            batch = batch.with_columns({self.copies: self._verdicts.copies(found)})
        answer = Outputs(out=batch.filter(~same), duplicate=batch.filter(same).with_columns(columns))
        self._verdicts.saw(found)  # last, when nothing can raise: a call that raised is repeated
        return answer


@dataclass
class _Verdicts:
    """The verdicts of a shard, sorted by the name of the record."""

    tables: list[pa.Table] = field(default_factory=list)
    # sorted by the first `find`, when all verdicts are there
    names: np.ndarray = field(init=False)
    reference: np.ndarray = field(init=False)
    sizes: np.ndarray = field(init=False)  # of their clusters
    shown: np.ndarray = field(init=False)  # of verdicts to keep: the record has gone on
    sorted: bool = False

    def add(self, verdicts: pa.Table) -> None:
        self.tables.append(verdicts.select(_OF_VERDICT))

    def find(self, keys: np.ndarray, digest: np.ndarray, present: np.ndarray) -> np.ndarray:
        """The number of the verdict over each record, -1 where there is none."""
        if not self.sorted:
            self._sort()
        if not len(self.names):
            return np.full(len(keys), -1)
        names = keys ^ digest
        at = np.minimum(np.searchsorted(self.names, names), len(self.names) - 1)
        return np.where(present & (self.names[at] == names), at, -1)

    def _sort(self) -> None:
        self.sorted = True
        table = concat_tables(self.tables or [VERDICT.empty_table().select(_OF_VERDICT)]).combine_chunks()
        names = record_keys(VerdictBatch(table)) ^ table.column("digest").to_numpy()
        reference = table.column("reference").to_numpy()
        order = np.lexsort((~reference, names))  # of several with one name, that of a reference first
        self.names, self.reference, self.shown = (names[order], reference[order],
                                                  np.zeros(len(order), dtype=bool))
        self.sizes = table.column("cluster_size").to_numpy()[order]
        self.tables = [table.take(pa.array(order)).select(list(ADDED))]
        self.kept = self.tables[0].column("duplicate_of").is_null().to_numpy(zero_copy_only=False)

    def saw(self, found: np.ndarray) -> None:
        """These have been answered: whoever has the same name from now on is there once more."""
        self.shown[found[found >= 0]] = True

    def copies(self, found: np.ndarray) -> pa.Array:
        """How large the cluster of each record is, 1 where it is in none."""
        sizes = self.sizes[found] if len(self.sizes) else np.ones(len(found))
        return pa.array(np.where(found >= 0, sizes, 1), pa.int32())

    def duplicates(self, found: np.ndarray,
                   ids: pa.ChunkedArray) -> tuple[np.ndarray, dict[str, pa.ChunkedArray]]:
        """Which records are duplicates, and what these are given."""
        judged = found >= 0
        keeps = judged & self.kept[found] if len(self.kept) else judged
        # a reference stays as often as it is there
        once = keeps & ~self.reference[found] if len(self.kept) else keeps
        replay = np.zeros(len(found), dtype=bool)  # it is kept, and one like it went on before
        rows = np.flatnonzero(once)
        _, first = np.unique(found[rows], return_index=True)
        repeated = np.ones(len(rows), dtype=bool)
        repeated[first] = self.shown[found[rows[first]]]
        replay[rows[repeated]] = True
        same = (judged & ~keeps) | replay
        taken = self.tables[0].take(pa.array(found[same]))
        columns = {name: taken.column(name) for name in ADDED}
        twin = pa.array(replay[same])
        columns["duplicate_of"] = pc.if_else(twin, ids.filter(pa.array(same)), columns["duplicate_of"])
        columns["similarity"] = pc.if_else(twin, pa.scalar(1.0, pa.float32()), columns["similarity"])
        return same, columns
