"""The rows that go between the parts of a deduplication. They are kinds of their own, so that a part tells
them from records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash

from curator.api.batch import Batch

# A record is named by its id, its source and `digest`, a hash of its sketch: two that share an id are not
# always one.
SKETCH = pa.schema([
    ("id", pa.string()), ("source", pa.string()), ("digest", pa.uint64()),
    ("shard", pa.int64()),  # a value that leads to the shard
    ("keys", pa.list_(pa.uint64())),  # the buckets of this shard that the record is in
    ("sketch", pa.large_binary()),  # what similarity is computed from; all are equally long
    # keep order: smaller is better, from left to right, then by id, then source
    ("rank", pa.list_(pa.float64())),
    ("reference", pa.bool_())])  # never removed
# beside these where similarity is to be exact: sorted, each once
SHINGLES = pa.field("shingles", pa.list_(pa.uint32()))
EDGE = pa.schema([
    ("id", pa.string()), ("source", pa.string()), ("digest", pa.uint64()),
    ("other_id", pa.string()), ("other_source", pa.string()), ("other_digest", pa.uint64()),
    ("similarity", pa.float32()), ("rank", pa.list_(pa.float64())), ("other_rank", pa.list_(pa.float64())),
    ("reference", pa.bool_()), ("other_reference", pa.bool_())])
VERDICT = pa.schema([
    ("id", pa.string()), ("source", pa.string()), ("digest", pa.uint64()),
    ("cluster", pa.string()),  # 16 hex digits: a hash of the (id, source) of its best record
    ("duplicate_of", pa.string()),  # null: this one is kept
    ("similarity", pa.float32()),  # to the record that is kept
    ("reference", pa.bool_()),
    ("cluster_size", pa.int32()),
    # "2", "3-4", "5-8", …: few values, so that the stats have them as a histogram
    ("cluster_sizes", pa.string())])


@dataclass
class SketchBatch(Batch):
    """What is compared of each record: a row for each shard that the record has a bucket in. Columns:
    `SKETCH`."""


@dataclass
class EdgeBatch(Batch):
    """Pairs that are similar, the one that is better in keep order first. Columns: `EDGE`."""


@dataclass
class VerdictBatch(Batch):
    """What becomes of each record of a cluster. Columns: `VERDICT`."""


def digests(sketches: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each sketch (uint8 [n, width]), uint64 [n]."""
    width = sketches.shape[1]
    flat = np.ascontiguousarray(sketches).tobytes()
    starts = range(0, len(flat), width) if width else [0] * len(sketches)
    return np.array([xxhash.xxh3_64_intdigest(flat[at:at + width]) for at in starts], dtype=np.uint64)
