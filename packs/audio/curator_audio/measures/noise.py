"""How far speech lies above the noise, and mains hum."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from curator_audio.measures.levels import Values
from curator_audio.measures.views import Views

# WADA: ln E|z| - E ln|z| of speech, whose amplitudes are distributed as Gamma(0.4), with Gaussian noise at -20, -18, ... 100 dB.
# Numbers by integration; a test does it again.
WADA_DB = np.arange(-20, 101, 2)
WADA = np.array([
    0.40943, 0.40950, 0.40964, 0.40997, 0.41069, 0.41215, 0.41497, 0.42007, 0.42865, 0.44213, 0.46184, 0.48880, 0.52342, 0.56543,
    0.61388, 0.66735, 0.72419, 0.78278, 0.84167, 0.89965, 0.95582, 1.00954, 1.06039, 1.10814, 1.15269, 1.19406, 1.23234, 1.26763,
    1.30010, 1.32992, 1.35727, 1.38231, 1.40523, 1.42619, 1.44534, 1.46284, 1.47882, 1.49341, 1.50673, 1.51888, 1.52997, 1.54009,
    1.54932, 1.55774, 1.56543, 1.57243, 1.57882, 1.58465, 1.58997, 1.59482, 1.59924, 1.60328, 1.60696, 1.61031, 1.61337, 1.61616,
    1.61871, 1.62103, 1.62315, 1.62508, 1.62684,
])
FEWEST = 1600            # samples that are not 0, for a distribution
LOW_RATE = 2000          # hum is looked for at about this rate
HUM_SPAN = (10.0, 500.0)  # Hz
HUM_WINDOW_S = 0.5
HUM_WITHIN = 2.25        # Hz: a bin on either side, whose places are not quite whole numbers at all rates


def snr(views: Views) -> Values:
    """Signal to noise from the distribution of amplitudes, without exact zeros; offsets are taken off before."""
    count = views.samples.size - views.zeros
    if count < FEWEST:
        return {"snr_db": None}
    total = logs = 0.0
    for channel, mean in zip(views.samples, views.means, strict=True):
        one = Views(channel[None], views.rate)
        for block in one.blocks():
            sizes = block[block != 0] if views.zeros else block
            sizes = np.maximum(np.abs(sizes - np.float32(mean)), np.float32(1e-9))
            total += float(sizes.sum(dtype=np.float64))
            logs += float(np.log(sizes).sum(dtype=np.float64))
    return {"snr_db": float(np.interp(np.log(total / count) - logs / count, WADA, WADA_DB))}


def level_range(views: Views) -> Values:
    """From the 10th to the 95th percentile of frames of 20 ms, without those that are all zeros."""
    frames = views.frame_power[views.frame_power > 0]
    if len(frames) < 10:
        return {"snr_range": None}
    low, high = np.percentile(frames, (10, 95))
    return {"snr_range": float(10 * np.log10(high / low))}


def hum(views: Views) -> Values:
    """The share of the lasting power from 10 to 500 Hz that lies within 2 Hz of 50 or 60 Hz and three harmonics.

    Lasting: of each frequency what nine in ten windows of half a second reach, so that what comes and goes does not count.
    Windows of zeros are left out.
    """
    by = max(1, views.rate // LOW_RATE)
    rate = views.rate / by
    length = round(rate * HUM_WINDOW_S)
    spectra = []
    for channel in views.samples:
        low = decimated(channel, by)
        if len(low) < length or rate < 2 * HUM_SPAN[1]:
            return {"hum_ratio": None}
        windows = np.lib.stride_tricks.sliding_window_view(low, length)[:: length // 2]
        taper = np.hanning(length + 1)[:-1].astype(np.float32)
        spectra.append(np.square(np.abs(np.fft.rfft((windows - windows.mean(axis=1, keepdims=True)) * taper))))
    windows = np.mean(spectra, axis=0)
    windows = windows[windows.any(axis=1)]
    if not len(windows):
        return {"hum_ratio": None}
    power = np.percentile(windows, 10, axis=0)
    frequency = np.arange(len(power)) * rate / length
    total = power[(frequency >= HUM_SPAN[0]) & (frequency <= HUM_SPAN[1])].sum()
    if total <= 0:
        return {"hum_ratio": None}
    shares = [sum(power[np.abs(frequency - mains * k) <= HUM_WITHIN].sum() for k in range(1, 5)) / total for mains in (50, 60)]
    return {"hum_ratio": float(max(shares))}


def decimated(channel: np.ndarray, by: int) -> np.ndarray:
    """Every `by`-th sample after a low-pass; what is below a quarter of the new rate is kept, and nothing folds onto it."""
    if by == 1:
        return channel
    taps = _low_pass(by)
    rows = len(channel) // by
    pieces = channel[: rows * by].reshape(rows, by) @ taps
    count = rows - taps.shape[1] + 1
    return np.sum([pieces[at : at + count, at] for at in range(taps.shape[1])], axis=0) if count > 0 else channel[:0]


@lru_cache(maxsize=16)
def _low_pass(by: int) -> np.ndarray:
    """A Kaiser-windowed sinc of 8 x `by` taps that ends halfway between a quarter and three quarters of the new rate, as by x 8."""
    count = 8 * by
    distance = np.arange(count) - (count - 1) / 2
    taps = np.sinc(distance / by) * np.kaiser(count, 6.0)
    return np.ascontiguousarray((taps / taps.sum()).reshape(8, by).T.astype(np.float32))
