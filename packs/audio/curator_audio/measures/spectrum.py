"""What lies at which frequency, from one short-time Fourier transform."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from curator_audio.measures.levels import Values
from curator_audio.measures.views import QUIET, Views

FRAME_S = 0.032          # a frame, or what is next longer in samples whose transform is fast; half of it lies in the next
FRAMES = 32              # at a time, so that what is made on the way stays in the cache, and malloc need not ask for pages each time
DROP_DB = 50.0           # of bandwidth, below the strongest frequency
ROLLOFF = 0.85
LOWEST_BIN = 2           # the two below hold the offset
BANDS_HZ = (200, 400, 630, 920, 1270, 1720, 2320, 3150, 3800)
FLAT_HZ = 4000.0         # flatness is that of what lies below, so that recordings of all rates compare


@dataclass(frozen=True)
class Spectra:
    """Of the frames that are not silent.

    `power`: mean of each bin. `rounding`: four times what rounding to 16 bits puts into each bin. `flatness`, `flux`: a value
    a frame, flux NaN in silence. `bands`: of all frames the mean square in each band of BANDS_HZ, frames x bands.
    """

    power: np.ndarray
    rounding: float
    flatness: np.ndarray
    flux: np.ndarray
    bands: np.ndarray
    bin_hz: float
    hop_s: float


def spectra(views: Views) -> Spectra | None:
    """The spectra of a recording, None where no frame is louder than -60 dBFS. Power is the mean over the channels.

    Made in pieces, so that of a frame no more is held than its bands and two numbers.
    """
    size = frame_size(views.rate)
    channels, count = views.samples.shape
    if count < size:
        return None
    taper = np.hanning(size + 1)[:-1].astype(np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(views.samples, size, axis=1)[:, :: size // 2]
    quiet = QUIET * size * float(np.square(taper).sum()) / 2  # of a sum over the bins
    ones = np.ones(size // 2 + 1, np.float32)
    band = slice(LOWEST_BIN, min(len(ones), round(FLAT_HZ * size / views.rate) + 1))
    width = len(ones[band])
    to_bands = _bands(size, views.rate) * np.float32(QUIET / quiet)  # to mean squares
    total, flatness, flux, bands, before = np.zeros(len(ones)), [], [], [], None
    for start in range(0, frames.shape[1], FRAMES):
        power = _power(frames[0, start : start + FRAMES], taper)
        for channel in range(1, channels):
            power += _power(frames[channel, start : start + FRAMES], taper)
        power /= channels
        bands.append(power @ to_bands)
        sums = power @ ones
        sounding = sums >= quiet
        total += sounding.astype(np.float32) @ power
        unit = np.sqrt(power / np.maximum(sums, quiet * 1e-3)[:, None])
        steps = unit if before is None else np.concatenate([before, unit])
        changes = np.sqrt(np.maximum(0, 2 - 2 * np.vecdot(steps[1:], steps[:-1])))
        flux.append(np.where(sounding[len(sounding) - len(changes):], changes, np.nan))
        before = unit[-1:]
        heard = power[sounding, band] + np.float32(quiet * 1e-12)
        flatness.append(np.exp(np.log(heard) @ ones[band] / width) / (heard @ ones[band] / width))
    found = np.concatenate(flatness)
    if not len(found):
        return None
    rounding = 4 / (12 * 32768**2) * float(np.square(taper).sum())
    return Spectra(total / len(found), rounding, found, np.concatenate(flux), np.concatenate(bands), bin_hz=views.rate / size,
                   hop_s=size / 2 / views.rate)


@lru_cache(maxsize=16)
def _bands(size: int, rate: int) -> np.ndarray:
    """Bins x bands; the bands that the rate holds."""
    frequency = np.arange(size // 2 + 1) * rate / size
    held = [edge for edge in BANDS_HZ if edge < rate / 2]
    return np.array([(frequency >= low) & (frequency < high) for low, high in pairwise(held)], np.float32).reshape(-1, len(frequency)).T


def _power(frames: np.ndarray, taper: np.ndarray) -> np.ndarray:
    parts = np.fft.rfft(frames * taper).view(np.float32)
    np.square(parts, out=parts)
    return parts[:, ::2] + parts[:, 1::2]


@lru_cache(maxsize=64)
def frame_size(rate: int) -> int:
    """The smallest even number of samples of at least 32 ms that has no prime factor above 5."""
    size = max(16, int(np.ceil(rate * FRAME_S)))
    while size % 2 or not _smooth(size):
        size += 1
    return size


def _smooth(number: int) -> bool:
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


def shape(views: Views) -> Values:
    """Bandwidth, rolloff and centroid of the mean power, in Hz."""
    found = views.once(spectra)
    names = ("bandwidth", "rolloff", "centroid")
    if found is None:
        return dict.fromkeys(names)
    power = found.power.copy()
    power[:LOWEST_BIN] = 0
    if not power.any():
        return dict.fromkeys(names)
    above = np.flatnonzero(power >= max(power.max() * 10 ** (-DROP_DB / 10), found.rounding))
    if not len(above):
        return dict.fromkeys(names)
    sums = np.cumsum(power)
    bins = (above[-1], np.searchsorted(sums, ROLLOFF * sums[-1]), (np.arange(len(power)) * power).sum() / sums[-1])
    return {name: float(at * found.bin_hz) for name, at in zip(names, bins, strict=True)}


def texture(views: Views) -> Values:
    """Flatness: mean of the frames. Variation of the flux: its standard deviation within a second, mean over the seconds."""
    found = views.once(spectra)
    if found is None:
        return {"flatness": None, "flux_std": None}
    a_second = round(1 / found.hop_s)
    rows = len(found.flux) // a_second
    windows = found.flux[: rows * a_second].reshape(rows, a_second)
    heard = windows[np.mean(np.isnan(windows), axis=1) < 0.5]
    return {"flatness": float(found.flatness.mean()),
            "flux_std": float(np.nanstd(heard, axis=1).mean()) if len(heard) else None}
