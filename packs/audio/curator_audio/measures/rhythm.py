"""How a sound goes on in time, which tells speech from music and noise."""

from __future__ import annotations

import numpy as np

from curator_audio.measures.levels import Values
from curator_audio.measures.views import STEPS_A_SECOND, Views

STEADY = 1e-6  # of the squared mean level: changes below are those of rounding


def crossings(views: Views) -> Values:
    """Changes of sign a sample; the standard deviation of those of frames of 20 ms within a second, mean over the seconds."""
    length = views.samples.shape[1]
    values: Values = {"zcr": None, "zcr_std": None}
    if length > 1:
        values["zcr"] = views.crossings[1] / ((length - 1) * len(views.samples))
    steps = views.crossings[0]
    windows = views.windows(np.append((steps[1:] + steps[:-1]) / (2 * views.step), 0.0))[:, :-1]
    if len(windows):
        values["zcr_std"] = float(windows.std(axis=1).mean())
    return values


def envelope(views: Views) -> Values:
    """Within seconds: frames of less than half of the mean level; power of the level's changes at 3 to 5 Hz among all."""
    level = np.sqrt(views.frame_power)
    windows = views.windows(np.append(level, 0.0))[:, :-1]
    if not len(windows):
        return {"low_energy_ratio": None, "modulation_4hz": None}
    means = windows.mean(axis=1, keepdims=True)
    changes = np.square(np.abs(np.fft.rfft(windows - means, STEPS_A_SECOND)))[:, 1:]
    total = changes.sum(axis=1)
    shares = changes[:, 2:5].sum(axis=1) / np.maximum(total, STEADY * (STEPS_A_SECOND * means[:, 0]) ** 2)
    return {"low_energy_ratio": float(np.mean(windows < means / 2)),
            "modulation_4hz": float(shares.mean())}
