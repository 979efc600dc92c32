"""Which record a row is, and which shard a value belongs to: the same in every process, and in every run."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from curator.api.batch import UNIT, Batch


def record_keys(batch: Batch) -> np.ndarray:
    """A 64-bit key for each row, uint64: equal for rows with the same id and source."""
    sources = batch.rows.column("source").combine_chunks().dictionary_encode()
    seeds = [xxhash.xxh3_64_intdigest(str(source).encode()) for source in sources.dictionary.to_pylist()]
    of_row = sources.indices.fill_null(0).to_pylist()
    ids = batch.rows.column("id").cast(pa.large_binary()).to_pylist()
    return np.array([xxhash.xxh3_64_intdigest(i, seeds[at] if seeds else 0)
                     for i, at in zip(ids, of_row, strict=True)], dtype=np.uint64)


def units(batch: Batch) -> np.ndarray:
    """The unit of each row, int32; 0 outside a run."""
    if UNIT not in batch.rows.column_names:
        return np.zeros(len(batch), dtype=np.int32)
    return batch.rows.column(UNIT).to_numpy()


def shard_of(values: pa.ChunkedArray, shards: int) -> np.ndarray:
    """The shard of each value, int64: equal values share one, whatever type their column has in which file,
    and so do up to 100 neighbours of a record's children (`film#200` to `film#299`), so that who comes behind
    opens their file once; nulls are in 0."""
    coded = pa.concat_arrays(values.unify_dictionaries().chunks) if values.num_chunks else pa.array(
        [], values.type)
    if not pa.types.is_dictionary(coded.type):
        try:
            coded = coded.dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, structs
            coded = pa.array([json.dumps(v, sort_keys=True, default=str)
                              for v in coded.to_pylist()]).dictionary_encode()
    hashed = [xxhash.xxh3_64_intdigest(_bytes(v)) % shards for v in coded.dictionary.to_pylist()]
    places = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy()
    return np.array([*hashed, 0], dtype=np.int64)[places]


@cache
def shard_values(shards: int) -> np.ndarray:
    """For each shard the smallest number, 0 or more, that `shard_of` sends there, int64 [shards]."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < shards:
        found.setdefault(xxhash.xxh3_64_intdigest(_bytes(number)) % shards, number)
        number += 1
    return np.array([found[shard] for shard in range(shards)], dtype=np.int64)


def _bytes(value: Any) -> bytes:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    before, mark, number = data.rpartition(b"#")
    return before + mark + number[:-2] if mark and number.isdigit() else data
