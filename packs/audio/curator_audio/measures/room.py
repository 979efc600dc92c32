"""How fast sound fades, which in a room is its reverberation."""

from __future__ import annotations

import numpy as np

from curator_audio.measures.levels import Values
from curator_audio.measures.spectrum import BANDS_HZ, spectra
from curator_audio.measures.views import Views

SMOOTH = 3         # frames of 32 ms, every 16 ms, that a level is the mean of
FALLING = 6        # frames that a decay lasts at least,
FALL_DB = 8.0      # in which it falls by so much,
ABOVE_DB = 6.0     # and stays so far above the 10th percentile of its band, which is noise,
LOWEST = 1e-10     # and above -100 dBFS
FEWEST = 10        # decays that a quartile is told of
QUARTILE = 25


def decay(views: Views) -> Values:
    """Seconds for 60 dB at the pace of decays in eight bands from 200 to 3800 Hz: the lower quartile of all.

    Source: Wen, Habets and Naylor 2008, who tell the time by the distribution of such slopes.
    """
    found = spectra(views)
    if found is None or views.rate <= 2 * BANDS_HZ[-1] or len(found.bands) < SMOOTH + FALLING:
        return {"decay_s": None}
    sums = np.concatenate([np.zeros((1, found.bands.shape[1])), np.cumsum(found.bands, axis=0, dtype=np.float64)])
    level = 10 * np.log10(np.maximum((sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH, LOWEST * 1e-2))
    floor = np.maximum(np.percentile(level, 10, axis=0) + ABOVE_DB, 10 * np.log10(LOWEST))
    times = np.concatenate([_times(band, least) for band, least in zip(level.T, floor, strict=True)])
    return {"decay_s": float(np.percentile(times, QUARTILE) * found.hop_s) if len(times) >= FEWEST else None}


def _times(level: np.ndarray, floor: float) -> np.ndarray:
    """Of each decay of one band the frames that it would take for 60 dB."""
    falling = np.zeros(len(level) + 1, bool)
    falling[1:-1] = (np.diff(level) < 0) & (level[1:] > floor)
    turns = np.flatnonzero(falling[1:] != falling[:-1])
    first, last = turns[::2], turns[1::2]
    fall = level[first] - level[last]
    long = (last - first >= FALLING) & (fall >= FALL_DB)
    return 60 * (last - first)[long] / fall[long]
