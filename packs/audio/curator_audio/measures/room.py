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
    found = views.once(spectra)
    if found is None or views.rate <= 2 * BANDS_HZ[-1] or len(found.bands) < SMOOTH + FALLING:
        return {"decay_s": None}
    sums = np.concatenate([np.zeros((1, found.bands.shape[1])), np.cumsum(found.bands, axis=0, dtype=np.float64)])
    level = 10 * np.log10(np.maximum((sums[SMOOTH:] - sums[:-SMOOTH]) / SMOOTH, LOWEST * 1e-2))
    floor = np.maximum(np.percentile(level, 10, axis=0) + ABOVE_DB, 10 * np.log10(LOWEST))
    times = _times(level.T, floor[:, None])
    return {"decay_s": float(np.percentile(times, QUARTILE) * found.hop_s) if len(times) >= FEWEST else None}


def _times(level: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Of each decay the frames that it would take for 60 dB. The levels are bands x frames."""
    falling = np.zeros((len(level), level.shape[1] + 1), bool)  # ends with no fall, so that no decay goes on in the next band
    falling[:, 1:-1] = (np.diff(level) < 0) & (level[:, 1:] > floor)
    turns = np.flatnonzero(np.diff(falling.ravel()))
    first, last = turns[::2], turns[1::2]  # in the levels, each band with one value more
    values = np.pad(level, ((0, 0), (0, 1))).ravel()
    fall = values[first] - values[last]
    long = (last - first >= FALLING) & (fall >= FALL_DB)
    return 60 * (last - first)[long] / fall[long]
