"""The rows that go between the parts of a deduplication. They are kinds of their own, so that a part tells them from records."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.tasks.batch import Batch

SKETCH = pa.schema([
    ("id", pa.string()), ("source", pa.string()),
    ("shard", pa.int64()),  # a value that leads to the shard
    ("keys", pa.list_(pa.uint64())),  # the buckets of this shard that the record is in
    ("sketch", pa.large_binary()),  # what similarity is computed from; all are equally long
    ("rank", pa.list_(pa.float64())),  # keep order: smaller is better, from left to right, then by id, then source
    ("reference", pa.bool_())])  # never removed
SHINGLES = pa.field("shingles", pa.list_(pa.uint32()))  # beside these where similarity is to be exact: sorted, each once
EDGE = pa.schema([
    ("id", pa.string()), ("source", pa.string()), ("other_id", pa.string()), ("other_source", pa.string()),
    ("similarity", pa.float32()), ("rank", pa.list_(pa.float64())), ("other_rank", pa.list_(pa.float64())),
    ("reference", pa.bool_()), ("other_reference", pa.bool_())])
VERDICT = pa.schema([
    ("id", pa.string()), ("source", pa.string()),
    ("cluster", pa.string()),  # 16 hex digits: a hash of the (id, source) of its best record
    ("duplicate_of", pa.string()),  # null: this one is kept
    ("similarity", pa.float32()),  # to the record that is kept
    ("cluster_size", pa.int32()),
    ("cluster_sizes", pa.string())])  # "2", "3-4", "5-8", …: few values, so that the stats have them as a histogram


@dataclass
class SketchBatch(Batch):
    """What is compared of each record: a row for each shard that the record has a bucket in. Columns: `SKETCH`."""


@dataclass
class EdgeBatch(Batch):
    """Pairs that are similar, the one that is better in keep order first. Columns: `EDGE`."""


@dataclass
class VerdictBatch(Batch):
    """What becomes of each record of a cluster. Columns: `VERDICT`."""
