"""All records in a random order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Composite, Context, Contract, Reduce, Stage
from curator.stages.sample import check_seed, digests

PLACE = "shuffle_place"
BATCH_BYTES = 8 << 20


@dataclass(kw_only=True)
class Shuffle(Composite):
    """Put all records into a random order: each goes to a random shard, and each shard into a random order.

    The order rests on `seed` and the ids alone, so it is the same in each run. Write one file a shard to have
    it: files in the order of their names are the whole in a random order.

    `shards`: into how many parts records go. Two shards must fit into a worker's memory, with all their
    columns; the spool holds the rest, on disk.
    """

    seed: int = 0
    shards: int = 64

    def __post_init__(self) -> None:
        self.at_least(1, "shards")
        check_seed(self)

    def contract(self) -> Contract:
        return Contract()

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        return rows >> Place(seed=self.seed) >> Shuffled(shards=self.shards)


@dataclass(kw_only=True)
class Place(Stage):
    """Gives each record its place in the random order: a hash of seed and id."""

    seed: int

    def contract(self) -> Contract:
        return Contract(adds={PLACE: pa.uint64()})

    def process(self, batch: Batch) -> Batch:
        return batch.with_columns({PLACE: pa.array(digests(batch.rows.column("id"), self.seed))})


@dataclass(kw_only=True)
class Shuffled(Reduce):
    """Records by their place, a shard at a time."""

    shards: int

    key = PLACE

    def contract(self) -> Contract:
        return Contract(needs={PLACE}, removes={PLACE})

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {name: kind for name, kind in columns.items() if name != PLACE}

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._records: list[Batch] = []

    def absorb(self, batch: Batch) -> None:
        self._records.append(batch)

    def finish(self) -> Iterator[Batch]:
        if not self._records:
            return
        records = Batch.concat(self._records)
        self._records = []
        order = np.lexsort((records.rows.column("id").to_numpy(), records.array(PLACE)))
        size = max(1, len(records) * BATCH_BYTES // max(BATCH_BYTES, records.nbytes))
        records = records.without([PLACE])
        for start in range(0, len(order), size):
            yield records.take(order[start:start + size])
