"""Hashes of what stands out in a recording's spectrogram: pairs of peaks, as where and how far apart they are.

Loudness, codec, sampling rate and noise leave most peaks where they are, and where the recording begins makes no difference.

Source: Wang 2003, An Industrial-Strength Audio Search Algorithm. Known difference: a step of 8 ms in place of 32, so that a shift by
part of a step changes little; peaks within 20 dB of the loudest around instead of so many a second, so that noise adds few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.ngrams.hashing import mixed

RATE = 4000  # Hz: what carries speech and most of music, and no codec cuts off
WINDOW, STEP = 512, 32  # samples: 128 ms, 8 ms
NEAR_FRAMES, NEAR_BINS = 29, 8  # a peak is the highest within 232 ms before and behind, and 62 Hz below and above
AROUND_FRAMES = 62  # 0.5 s: a peak is within 20 dB of the loudest so near to it
AROUND = 10 ** (-20 / 10)  # in power
RISE = 10 ** (3 / 10)  # a peak stands out by 3 dB from the mean of its frequency: a steady tone has none
LOWEST_BIN = 13  # 100 Hz: below are hum and rumble
FAINTEST = 1e-9  # power of a sine at -90 dB of full scale, times the sum of the window squared
TARGETS, REACH = 10, 256  # a peak makes pairs with the next 10 within 2 s
TIME_STEP = 4  # in which the time between them is told: 32 ms
CHUNK = 1024  # frames worked on at once: they fit the cache
MARGIN = NEAR_FRAMES + AROUND_FRAMES


@dataclass(frozen=True)
class Peaks:
    """`frames` (in order) and `bins` of peaks, int64."""

    frames: np.ndarray
    bins: np.ndarray


def hashes_of(mono: np.ndarray) -> np.ndarray:
    """The different hashes of a recording, float32 [n] at 4 kHz; uint64, in order."""
    found = np.sort(pairs(peaks(mono)))  # `np.unique` would hash them, which is slower
    return found[np.append(True, found[1:] != found[:-1])[:len(found)]]


def peaks(mono: np.ndarray) -> Peaks:
    """What stands out, in time and in frequency."""
    mono = np.pad(mono, WINDOW // 2)  # what lies at the ends is seen as well as the rest
    windows = np.lib.stride_tricks.sliding_window_view(mono, WINDOW)[::STEP]
    found = []
    for first in range(0, len(windows), CHUNK):
        begin, stop = max(0, first - MARGIN), min(len(windows), first + CHUNK + MARGIN)
        frames, bins = _peaks(windows[begin:stop])
        inside = (frames >= first - begin) & (frames < first - begin + CHUNK)
        found.append((frames[inside] + begin, bins[inside]))
    return Peaks(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _peaks(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    spectrum = np.fft.rfft(windows * WEIGHTS, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    loudest = sliding_max(power[:, LOWEST_BIN:].max(axis=1, keepdims=True), AROUND_FRAMES)
    highest = sliding_max(sliding_max(power, NEAR_FRAMES), NEAR_BINS, axis=1)
    is_peak = (power == highest) & (power > np.maximum(loudest * AROUND, FLOOR))
    is_peak[:, :LOWEST_BIN] = False
    frames, bins = np.divmod(np.flatnonzero(is_peak), is_peak.shape[1])  # ten times as fast as `nonzero`
    near = (frames[:, None] + np.arange(-NEAR_FRAMES, NEAR_FRAMES + 1)).clip(0, len(power) - 1)
    stands_out = power[frames, bins] > RISE * power[near, bins[:, None]].mean(axis=1)
    return frames[stands_out], bins[stands_out]


def sliding_max(values: np.ndarray, reach: int, axis: int = 0) -> np.ndarray:
    """The highest of each value, 0 or more, and of `reach` before and behind it along an axis; by doubling, in log2(reach) steps.

    Worked through as one row of numbers: what is added around keeps the end of one line from the beginning of the next.
    """
    wide = np.pad(values, [(reach, reach) if n == axis else (0, 0) for n in range(values.ndim)])
    apart = wide.strides[axis] // wide.itemsize
    flat, other, size = wide.reshape(-1), np.empty(wide.size, wide.dtype), wide.size
    have, width = 1, 2 * reach + 1
    while have < width:
        step = min(have, width - have)
        size -= step * apart
        np.maximum(flat[:size], flat[step * apart:size + step * apart], out=other[:size])
        flat, other, have = other, flat, have + step
    found = flat.reshape(wide.shape)
    return found[:len(values)] if axis == 0 else found[:, :values.shape[1]]


def pairs(found: Peaks) -> np.ndarray:
    """A hash for each peak and each of the next `TARGETS` behind it, uint64: of their frequencies and the time between them."""
    frames, bins = found.frames, found.bins
    after = np.searchsorted(frames, frames, side="right")  # peaks of the same moment are no pair: their order is chance
    target = after[:, None] + np.arange(TARGETS)
    there = target < len(frames)
    target = np.minimum(target, max(len(frames) - 1, 0))
    apart = frames[target] - frames[:, None]
    there &= apart <= REACH
    keys = (bins[:, None] << 40 | bins[target] << 20 | apart // TIME_STEP)[there]
    return mixed(keys.astype(np.uint64))


def minhash(hashes: np.ndarray, count: int, seed: int) -> np.ndarray:
    """A signature of a set of hashes, uint32 [count]: in each place the least that a function of its own gives to any of them.

    Source: Broder 1997; functions by multiplying and adding modulo 2^64 (Dietzfelbinger et al. 1997).
    """
    numbers = mixed(np.arange(2 * count, dtype=np.uint64) + np.uint64((seed + 1) * 4 * count)).reshape(2, count, 1)
    least = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    for at in range(0, len(hashes), CHUNK):
        values = hashes[at:at + CHUNK] * (numbers[0] | np.uint64(1)) + numbers[1]
        np.minimum(least, values.min(axis=1), out=least)
    return (least >> np.uint64(32)).astype(np.uint32)


WEIGHTS = np.hanning(WINDOW + 1)[:-1].astype(np.float32)
FLOOR = np.float32(FAINTEST * np.sum(WEIGHTS) ** 2 / 4)
