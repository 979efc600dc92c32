"""One channel of several, and how alike two are."""

from __future__ import annotations

import numpy as np

MODES = ("mix", "first", "all", "loudest", "split")
_BLOCK = 1 << 15  # samples that are multiplied at once: they stay in the cache
_NOTHING = 1e-14  # mean square: -140 dB, below what 24 bits hold
ANTI_PHASE = -0.5  # correlation of two channels below which their mean loses most of the sound


def chosen(block: np.ndarray, mode: str, loudest: int = 0) -> np.ndarray:
    """The channels of a block, float32 [channels, n], that a mode keeps; a block of one channel is given back as it is."""
    if len(block) == 1 or mode in ("all", "split"):
        return block
    if mode == "mix":
        return mixed(block)
    at = loudest if mode == "loudest" else 0
    return block[at:at + 1]


def mixed(samples: np.ndarray) -> np.ndarray:
    """The mean of the channels, [1, n]; exact where there are two and neither is near the limits of float32."""
    if len(samples) == 1:
        return samples
    if len(samples) == 2:
        return (samples[0] * np.float32(0.5) + samples[1] * np.float32(0.5))[None]
    return samples.mean(axis=0, dtype=np.float32, keepdims=True)


def energies(block: np.ndarray) -> np.ndarray:
    """The sum of squares of each channel, float64 [channels]."""
    return np.array([np.dot(row, row) for row in block.astype(np.float64)])


def correlation(samples: np.ndarray) -> float | None:
    """Of the first two channels: 1 equal, -1 inverted, 0 unrelated or one silent; None with one channel, or where both are."""
    if len(samples) < 2 or samples.shape[1] < 2:
        return None
    means = samples[:2].mean(axis=1, dtype=np.float64, keepdims=True)
    products = np.zeros((2, 2))
    for start in range(0, samples.shape[1], _BLOCK):
        centred = samples[:2, start:start + _BLOCK] - means
        products += centred @ centred.T
    heard = products.diagonal() > _NOTHING * samples.shape[1]
    if not heard.all():
        return 0.0 if heard.any() else None
    return float(np.clip(products[0, 1] / np.sqrt(products[0, 0] * products[1, 1]), -1, 1))
