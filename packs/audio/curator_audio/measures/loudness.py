"""Loudness by ITU-R BS.1770-4, its range by EBU Tech 3342, and the peak between samples."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from curator_audio.measures.levels import Values
from curator_audio.measures.views import PIECE, Views, decibel
from curator_audio.measures.weighting import LOWEST_RATE, weighted

ABSOLUTE_GATE, RELATIVE_GATE, RANGE_GATE = -70.0, -10.0, -20.0
INTEGRATED, SHORT_TERM = 4, 30      # windows, in steps of 100 ms
SURROUND = {5: (1, 1, 1, 1.41, 1.41), 6: (1, 1, 1, 0, 1.41, 1.41)}
PIECES = 32                         # that are looked at for true peaks at once
OVERSAMPLED, TAPS = 4, 24           # of true peaks: times the rate, and samples on which each value between rests


def loudness(views: Views) -> Values:
    """Integrated loudness in LUFS, and the range in LU."""
    values: Values = {"loudness": None, "loudness_range": None}
    power = step_power(views)
    if power is not None and len(power) >= INTEGRATED:
        values["loudness"] = integrated(sliding_mean(power, INTEGRATED))
    if power is not None and len(power) >= SHORT_TERM:
        values["loudness_range"] = spread(sliding_mean(power, SHORT_TERM))
    return values


def step_power(views: Views) -> np.ndarray | None:
    """Mean square after K weighting of each 100 ms, summed over the channels; None where the rate is too low."""
    if views.rate < LOWEST_RATE:
        return None
    hop = 10 * views.step
    block = max(size for size in range(1, 65) if hop % size == 0)
    count = views.samples.shape[1] // hop
    channels = len(views.all_channels)
    weights = SURROUND.get(channels, (1,) * channels)
    if len(views.samples) == 1:
        weights = (sum(weights),)
    total = np.zeros(count)
    for channel, weight in zip(views.samples, weights, strict=True):
        pieces = [np.vecdot(piece.reshape(-1, block), piece.reshape(-1, block))
                  for piece in weighted(channel[: count * hop], views.rate, block)]
        if pieces:
            total += weight * np.concatenate(pieces).astype(np.float64).reshape(count, -1).sum(axis=1) / hop
    return total


def sliding_mean(power: np.ndarray, length: int) -> np.ndarray:
    sums = np.concatenate([[0.0], np.cumsum(power)])
    return (sums[length:] - sums[:-length]) / length


def integrated(power: np.ndarray) -> float | None:
    """Of windows of 400 ms: those above -70 LUFS, then those above 10 LU below their mean."""
    sounding = power[power > _power(ABSOLUTE_GATE)]
    if not len(sounding):
        return None
    return _lufs(sounding[sounding > sounding.mean() * 10 ** (RELATIVE_GATE / 10)].mean())


def spread(power: np.ndarray) -> float | None:
    """Of windows of 3 s: from the 10th to the 95th percentile of those above -70 LUFS and above 20 LU below their mean."""
    sounding = power[power > _power(ABSOLUTE_GATE)]
    if not len(sounding):
        return None
    kept = sounding[sounding > sounding.mean() * 10 ** (RANGE_GATE / 10)]
    low, high = np.percentile(10 * np.log10(kept), (10, 95))
    return float(high - low)


def _power(lufs: float) -> float:
    return float(10 ** ((lufs + 0.691) / 10))


def _lufs(power: float) -> float:
    return -0.691 + 10 * math.log10(power)


def true_peak(views: Views) -> Values:
    """The highest value of the wave at four times the rate, in dB relative to full scale."""
    peak = views.peak
    for channel, (low, high) in zip(views.samples, views.piece_extremes, strict=True):
        peak = _peak_between(channel, np.maximum(-low, high), peak)
    return {"true_peak": decibel(peak**2)}


def _peak_between(channel: np.ndarray, peaks: np.ndarray, highest: float) -> float:
    """The highest value between samples, or `highest` if that is more. `peaks`: of the pieces of the channel.

    Looked at is only what could be above: no value between is above `reach` times the samples beside it. The loudest pieces go first.
    """
    between = _interpolators()
    half, row = TAPS // 2, 64
    reach = float(np.abs(between).sum(axis=0).max())
    around = np.pad(peaks, 1)
    around = np.maximum(np.maximum(around[:-2], around[2:]), peaks)  # samples beside a value may lie in the next piece
    order = np.argsort(-around)
    order = order[: np.count_nonzero(around * reach > highest)]
    for start in range(0, len(order), PIECES):
        near = order[start : start + PIECES]
        near = near[around[near] * reach > highest]
        pieces = np.zeros((len(near), PIECE + TAPS), np.float32)
        for piece, begin in zip(pieces, near * PIECE - half, strict=True):
            known = channel[max(0, begin) : begin + len(piece)]
            piece[max(0, -begin) :][: len(known)] = known
        rows = np.lib.stride_tricks.sliding_window_view(pieces, row + TAPS, axis=1)[:, ::row]
        looked = rows[np.maximum(rows.max(axis=2), -rows.min(axis=2)) * reach > highest]
        if len(looked):
            values = looked @ _banded(row)
            highest = max(highest, float(values.max()), -float(values.min()))
    return highest


@lru_cache(maxsize=1)
def _interpolators() -> np.ndarray:
    """Windowed sincs for the points a quarter, half and three quarters behind a sample: taps x 3."""
    points = np.arange(1, OVERSAMPLED) / OVERSAMPLED
    distance = np.arange(TAPS)[:, None] - (TAPS // 2 - 1) - points
    taper = np.i0(8.0 * np.sqrt(np.maximum(0, 1 - (distance / (TAPS / 2)) ** 2))) / np.i0(8.0)
    taps = np.sinc(distance) * taper
    return taps / taps.sum(axis=0)


@lru_cache(maxsize=1)
def _banded(row: int) -> np.ndarray:
    """The matrix that makes all points between of a row of samples, which has half of the taps on either side."""
    between = _interpolators()
    matrix = np.zeros((row + TAPS, row, OVERSAMPLED - 1), np.float32)
    for at in range(row):
        matrix[at : at + TAPS, at] = between
    return matrix.reshape(row + TAPS, -1)
