"""How two channels belong together."""

from __future__ import annotations

import numpy as np

from curator_audio.measures.levels import Values
from curator_audio.measures.views import BLOCK, Views

SAME = 1e-6  # power of the difference, relative to that of the channels: -60 dB


def stereo(views: Views) -> Values:
    """Correlation of the first two channels, without their offsets and 0 where one is silent, and whether all channels are the same."""
    channels = views.all_channels
    if len(channels) < 2 or not np.any(views.samples):
        return {"stereo_correlation": None, "fake_stereo": None}
    if len(views.samples) == 1:
        return {"stereo_correlation": 1.0, "fake_stereo": True}
    sums = np.array([_sums(channels[0], other) for other in channels[1:]])
    means, count = views.means, channels.shape[1]
    product, left, right = sums[0] - count * np.array([means[0] * means[1], means[0] ** 2, means[1] ** 2])
    correlation = product / np.sqrt(left * right) if left > 0 and right > 0 else 0.0
    difference = sums[:, 1] + sums[:, 2] - 2 * sums[:, 0]
    return {"stereo_correlation": float(np.clip(correlation, -1, 1)),
            "fake_stereo": bool(np.all(difference <= SAME * (sums[:, 1] + sums[:, 2])))}


def _sums(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Sums of the products and of both squares."""
    total = np.zeros(3)
    for start in range(0, len(left), BLOCK):
        a, b = left[start : start + BLOCK], right[start : start + BLOCK]
        total += (np.vecdot(a, b), np.vecdot(a, a), np.vecdot(b, b))
    return total
