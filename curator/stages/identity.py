"""What makes a record: the columns that every record has, and which record a row is."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import xxhash

from curator.api.batch import UNIT, Batch
from curator.api.errors import RecipeError
from curator.registry.names import suggestion

IDENTITY = ("id", "source")  # in every record, always


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


def require(names: Collection[str], batch: Batch) -> None:
    """Refuse a batch without these columns or payloads; the plan has seen to that wherever columns are known before."""
    there = [*batch.columns, *batch.payloads()]
    for name in names:
        if name not in there:
            hint = suggestion(name, there, f"there are {', '.join(there)}", quoted=True)
            raise RecipeError(f"there is no column {name!r}; {hint}")
