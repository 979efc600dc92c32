"""Records with MinHash signatures, as a pack would make them, and which of them are alike."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HASHES = 64


def signature(words: list[str], hashes: int = HASHES) -> np.ndarray:
    """MinHash of the words as a set, uint32 [hashes]."""
    rng = np.random.Generator(np.random.PCG64(1))
    factors = rng.integers(1, 1 << 62, hashes, dtype=np.uint64) | np.uint64(1)
    values = np.array([random.Random(w).getrandbits(64) for w in sorted(set(words))], dtype=np.uint64)
    return ((values[:, None] * factors[None, :]) >> np.uint64(32)).astype(np.uint32).min(axis=0)


def jaccard(a: str, b: str) -> float:
    one, other = set(a.split()), set(b.split())
    return len(one & other) / len(one | other)


def corpus(seed: int = 0, families: int = 30, copies: int = 4, alone: int = 40, words: int = 100) -> list[dict]:
    """Families of texts that differ in a word or two, and texts that are like no other; in random order, with unique ids."""
    rng = random.Random(seed)
    rows = []
    for family in range(families + alone):
        text = [f"w{rng.randrange(5000)}" for _ in range(words)]
        for copy in range(rng.randint(2, copies) if family < families else 1):
            mine = list(text)
            for _ in range(copy and rng.randint(0, 3)):
                mine[rng.randrange(words)] = f"x{rng.randrange(5000)}"
            rows.append({"text": " ".join(mine), "family": family, "quality": rng.random(), "lang": rng.choice(["de", "en"])})
    rng.shuffle(rows)
    return [{"id": f"r{number:04}", "source": f"s{number % 3}", **row} for number, row in enumerate(rows)]


def table(rows: list[dict]) -> pa.Table:
    """As a table with the column `minhash`; a text that is empty has none."""
    made = pa.Table.from_pylist(rows)
    signatures = [signature(r["text"].split()) if r["text"] else None for r in rows]
    return made.append_column("minhash", pa.array(signatures, pa.list_(pa.uint32(), HASHES)))


def write(rows: list[dict], folder: Path, files: int = 3) -> Path:
    """As Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        part = rows[number::files]
        if part:
            pq.write_table(table(part).drop_columns(["source"]), folder / f"part{number}.parquet")
    return folder
