"""What both modes of exact deduplication share: the hash that records are compared by, and what is said of equal ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator_dedup.shared.values import hash_values

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio


def scoped_hashes(batch: Batch, names: Collection[str], normalize: Any, scope: str | None) -> tuple[np.ndarray, np.ndarray]:
    """As `hash_values`; rows that differ in the column `scope` have different hashes (null is a value there)."""
    hashes, present = hash_values(batch, names, normalize=normalize)
    if scope is not None:
        within, _ = hash_values(batch, [scope])
        hashes = hashes ^ (within * _ODD)  # multiplied: a value that equals its scope must not cancel it out
    return hashes, present


def told_of_equals(of: pa.Array | pa.ChunkedArray, hashes: np.ndarray) -> dict[str, Any]:
    """The columns of the port `duplicate`: equal records are alike altogether, and their hash is the name of their cluster."""
    return {"duplicate_of": of, "similarity": pa.array(np.ones(len(hashes), dtype=np.float32)),
            "cluster": pa.array([f"{key:016x}" for key in hashes[:, 0].tolist()], pa.string())}
