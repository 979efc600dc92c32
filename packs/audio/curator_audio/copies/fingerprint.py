"""Fingerprints of recordings, to find copies by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator_audio.copies import landmarks
from curator_audio.sound.waves import mono_at


@dataclass(kw_only=True)
class Fingerprint(Stage):
    """Fingerprint what a recording sounds like, so that `dedup.near` finds its copies.

    Adds `minhash` (fixed_size_list<uint32>, a signature as `dedup.near` compares them by) and `fingerprint_count` (int32, how many
    different landmarks it rests on, about 180 a second of speech). `minhash` is null for a recording with fewer than
    `min_count` of them, such as silence, hum, a held tone, or a single short word: it is never taken for a copy. Both are null
    where there are no samples.

    Copies are found by `dedup.near: {threshold: 0.3}`: at another loudness, rate, channel count or bit rate, shifted by up to a
    second, with noise at 20 dB, and most with all of these together. Of pieces of a few seconds, or at very low bit rates, more
    are found by `{threshold: 0.2, bands: 56, rows: 2}`. Others have less than 0.1 in common. A piece is as similar to the whole as
    its share of it. Not found: another speed or pitch, another take of the same words.

    `hashes`: values of a signature.
    `seed`: which; only signatures of the same `hashes` and `seed` can be compared.
    `min_count`: landmarks.

    Source: see `curator_audio.copies.landmarks`: Wang 2003.
    """

    hashes: int = 112
    seed: int = 1
    min_count: int = 20

    version = 2

    def __post_init__(self) -> None:
        if not 1 <= self.hashes <= 4096:
            raise ValueError(f"hashes must be from 1 to 4096, got {self.hashes}")
        self.at_least(1, "min_count")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()},
                        adds={"minhash": pa.list_(pa.uint32(), self.hashes), "fingerprint_count": pa.int32()})

    def setup(self, ctx: Context) -> None:
        import soxr  # noqa: F401  (a missing one is an error now, not in the first batch)

    def process(self, batch: AudioBatch) -> AudioBatch:
        signatures = np.zeros((len(batch), self.hashes), np.uint32)
        counts: list[int | None] = []
        for row, (samples, rate) in enumerate(zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True)):
            if samples is None or not rate:
                counts.append(None)
                continue
            found = landmarks.hashes_of(mono_at(samples, rate, landmarks.RATE))
            counts.append(len(found))
            signatures[row] = landmarks.minhash(found, self.hashes, self.seed)
        few = pa.array([count is None or count < self.min_count for count in counts], pa.bool_())
        values = pa.FixedSizeListArray.from_arrays(pa.array(signatures.reshape(-1)), self.hashes, mask=few)
        return batch.with_columns({"minhash": values, "fingerprint_count": pa.array(counts, pa.int32())})
