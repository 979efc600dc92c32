"""Batches of recordings and utterances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.batch import Batch, payload


@dataclass
class AudioBatch(Batch):
    """Recordings. `encoded`: the file's bytes. `samples`: float32 in [-1, 1], [n] mono or [channels, n].

    `sample_rate`: Hz, one a row.
    """

    encoded: list[bytes | None] | None = payload()
    samples: list[np.ndarray | None] | None = payload()
    sample_rate: list[int | None] | None = payload()
