"""Every measure of samples, by the columns that it fills."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from curator_audio.measures import levels, loudness, noise, rhythm, spectrum, stereo
from curator_audio.measures.kind import kind
from curator_audio.measures.levels import Values
from curator_audio.measures.room import decay
from curator_audio.measures.views import Views

MEASURES: dict[tuple[str, ...], Callable[[Views], Values]] = {
    ("peak_db", "rms_db", "crest_db"): levels.level,
    ("clipped_ratio",): levels.clipping,
    ("dc_offset",): levels.offset,
    ("zero_ratio", "silence_ratio"): levels.silence,
    ("dropouts",): levels.gaps,
    ("loudness", "loudness_range"): loudness.loudness,
    ("true_peak",): loudness.true_peak,
    ("snr_db",): noise.snr,
    ("snr_range",): noise.level_range,
    ("hum_ratio",): noise.hum,
    ("bandwidth", "rolloff", "centroid"): spectrum.shape,
    ("flatness", "flux_std"): spectrum.texture,
    ("zcr", "zcr_std"): rhythm.crossings,
    ("low_energy_ratio", "modulation_4hz"): rhythm.envelope,
    ("kind_guess",): kind,
    ("decay_s",): decay,
    ("stereo_correlation", "fake_stereo"): stereo.stereo,
}


def measure(samples: np.ndarray | None, rate: int | None, wanted: Collection[str]) -> Values:
    """The wanted scores of a recording, channels x n, None for those that it has not; others may be among them."""
    values: Values = dict.fromkeys(wanted)
    if samples is None or samples.size == 0 or not rate or rate < 1:
        return values
    views = Views(samples, rate)
    if not np.isfinite(views.peak):
        return values
    for columns, function in MEASURES.items():
        if not set(wanted).isdisjoint(columns):
            values |= views.once(function)
    return values
