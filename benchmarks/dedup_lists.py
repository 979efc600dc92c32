"""Near duplicates by lists of bit hashes, as `video.hash` makes of films: what `dedup.near` takes for many.

    python benchmarks/dedup_lists.py [--hashes 1000000] [--titled 4000]

Prints CPU-seconds of this process; a minute of one core, and 2 GB.

- `walks`: lists of 33 hashes of 64 bits, each 10 bits from the one before. A tenth of them are copies, of which every second hash
  differs in 2 bits: all are found, or it fails.
- `titled`: lists of 30 random hashes and one that all have. None is a copy.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa
from curator_dedup import DedupNear

from curator import Batch
from curator.testing import run_stage

NEAR = {"column": "hashes", "distance": 4, "hashes": 128, "share": 0.75, "within": 10, "shards": 1}  # as video/split has it
LENGTH, STEP = 33, 10


def swapped(bits: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """With so many of the ones of each row of bits, and as many of its zeros, turned round: half of a hash are ones."""
    order = np.argsort(rng.random(bits.shape) + bits, axis=1)  # zeros before ones
    made = bits.copy()
    turned = np.concatenate([order[:, :count], order[:, -count:]], axis=1)
    np.put_along_axis(made, turned, np.broadcast_to(np.arange(2 * count) < count, turned.shape), axis=1)
    return made


def walks(count: int, rng: np.random.Generator) -> np.ndarray:
    """bool [count, LENGTH, 64]; the last tenth are copies of the first."""
    bits = np.argsort(rng.random((count, 64)), axis=1) < 32
    lists = np.empty((count, LENGTH, 64), bool)
    for at in range(LENGTH):
        lists[:, at] = bits = swapped(bits, STEP // 2, rng)
    copies = count // 10
    lists[-copies:] = lists[:copies]
    for at in range(0, LENGTH, 2):
        lists[-copies:, at] = swapped(lists[-copies:, at], 1, rng)
    return lists


def told(name: str, lists: np.ndarray, copies: int) -> None:
    count, length = lists.shape[:2]
    values = pa.Array.from_buffers(pa.binary(8), count * length, [None, pa.py_buffer(np.packbits(lists, axis=2).tobytes())])
    ids = pa.array([f"{number:08}" for number in range(count)])
    hashes = pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * length, pa.int32()), values)
    batch = Batch(pa.table({"id": ids, "source": ids, "hashes": hashes}))
    begun = time.process_time()
    out = run_stage(DedupNear(**NEAR), batch)
    took = time.process_time() - begun
    found = len(out["duplicate"]) if "duplicate" in out else 0
    assert found == copies, f"{found} of {copies} copies are found"
    print(f"{name}: {count:,} lists, {count * length:,} hashes, {copies:,} copies found: {took:.1f} CPU-seconds, "
          f"{took / count * 1000:.2f} ms a list")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hashes", type=int, default=1_000_000)
    parser.add_argument("--titled", type=int, default=4000, help="lists")
    asked = parser.parse_args()
    rng = np.random.default_rng(7)
    count = asked.hashes // LENGTH
    told("walks", walks(count, rng), count // 10)
    titled = rng.random((asked.titled, 31, 64)) < 0.5
    titled[:, 0] = titled[0, 0]
    told("titled", titled, 0)


if __name__ == "__main__":
    main()
