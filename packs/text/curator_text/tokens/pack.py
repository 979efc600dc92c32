"""Documents packed into sequences of one length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch, concat_tables
from curator.api.stage import Context, Contract, Reduce, setting
from curator.stages.sample import digests

SEQUENCES_AT_ONCE = 1024


@dataclass(kw_only=True)
class PackTokens(Reduce):
    """Join the tokens of documents, in a random order, and cut them into sequences of `length` tokens.

    Sees all documents first; they are absorbed, and sequences go on instead. A sequence has `id` and `source`
    (those of its first document, `#` and a number), `token_ids` (list of int32), and `document_ends` (list of
    int32: where in the sequence each of its documents ends; the last one may go on in the next sequence),
    which is what masks between documents are made of. All have `length` tokens but the last one of each
    shard. No token is lost, and none comes twice.

    `shards`: into how many parts documents go, each joined by itself; one must fit into memory. `seed`: of
    the order.
    """

    length: int
    column: str = "token_ids"
    seed: int = 0
    shards: int = setting(default=16)

    key = "id"

    def __post_init__(self) -> None:
        self.at_least(1, "length", "shards")
        self.columns = (self.column,)

    def contract(self) -> Contract:
        numbers = pa.list_(pa.int32())
        return Contract(needs={self.column: None}, adds={"token_ids": numbers, "document_ends": numbers})

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._documents: list[pa.Table] = []

    def absorb(self, batch: Batch) -> None:
        self._documents.append(batch.rows.select(["id", "source", self.column]))

    def finish(self) -> Iterator[Batch]:
        if not self._documents:
            return
        documents = concat_tables(self._documents).combine_chunks()
        self._documents = []
        order = np.lexsort((documents.column("id").to_numpy(), digests(documents.column("id"), self.seed)))
        tokens = documents.column(self.column).cast(pa.list_(pa.int32())).combine_chunks()
        lengths = np.nan_to_num(tokens.value_lengths().to_numpy(zero_copy_only=False)).astype(np.int64)
        order = order[lengths[order] > 0]
        ends = np.cumsum(lengths[order])
        total = int(ends[-1]) if len(ends) else 0
        starts = np.arange(0, total, self.length)
        first = np.searchsorted(ends, starts, side="right")  # the document in which each sequence begins
        for at in range(0, len(starts), SEQUENCES_AT_ONCE):
            chosen = slice(at, at + SEQUENCES_AT_ONCE)
            yield self._sequences(documents, tokens, order, ends, starts[chosen], first[chosen], total)

    def _sequences(self, documents: pa.Table, tokens: pa.Array, order: np.ndarray, ends: np.ndarray,
                   starts: np.ndarray,
                   first: np.ndarray, total: int) -> Batch:
        stop = min(total, int(starts[-1]) + self.length)
        last = int(np.searchsorted(ends, stop, side="left"))
        inside = slice(int(first[0]), last + 1)
        flat = tokens.take(pa.array(order[inside])).flatten().to_numpy(zero_copy_only=False)
        begin = int(ends[first[0] - 1]) if first[0] else 0
        flat = flat[int(starts[0]) - begin:stop - begin]
        cut = np.append(starts, stop) - starts[0]
        sequences = pa.ListArray.from_arrays(pa.array(cut.astype(np.int32)), pa.array(flat.astype(np.int32)))
        borders = ends[inside]
        borders = borders[borders <= stop]
        of = np.searchsorted(starts, borders, side="left") - 1
        counts = np.bincount(of, minlength=len(starts))
        marks = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)),
                                         pa.array((borders - starts[of]).astype(np.int32)))
        head = documents.select(["id", "source"]).take(pa.array(order[first]))
        # of the sequences that begin in one document
        number = (starts - np.concatenate([[0], ends])[first]) // self.length
        ids = pa.array([f"{i}#{n}" for i, n in zip(head.column("id").to_pylist(), number.tolist(),
                                                   strict=True)], pa.string())
        return Batch(pa.table({"id": ids, "source": head.column("source"), "token_ids": sequences,
                               "document_ends": marks}))
