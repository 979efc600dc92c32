"""What a model hears of a record: mono at its rate, in windows that it can take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from curator.api.tasks import AudioBatch


def mono_at(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """The mean of the channels at another rate, float32 [n]; filtered, so that nothing is folded down."""
    wave = samples[0] if len(samples) == 1 else samples.mean(axis=0, dtype=np.float32)
    if rate == wanted or not len(wave):
        return wave
    import soxr

    return soxr.resample(wave, rate, wanted, quality="HQ")


def waves_of(batch: AudioBatch, wanted: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rows that have sound, each with what is heard of it: mono at a rate. Not those whose own rate is not known."""
    for row, (samples, rate) in enumerate(zip(batch.samples or (), batch.column("sample_rate"), strict=False)):
        if samples is not None and samples.shape[1] and rate:
            yield row, mono_at(samples, rate, wanted)


def windows(wave: np.ndarray, rate: int, longest_s: float, search_s: float = 5.0) -> list[tuple[int, int]]:
    """Spans of at most `longest_s`, which end at the quietest 50 ms of their last `search_s` seconds: between words, mostly."""
    longest, search, step = int(longest_s * rate), int(search_s * rate), max(1, rate // 20)
    spans, start = [], 0
    while len(wave) - start > longest:
        tail = wave[start + longest - search:start + longest]
        energy = (tail[:len(tail) // step * step].reshape(-1, step).astype(np.float64) ** 2).sum(axis=1)
        stop = start + longest - search + int(energy.argmin()) * step + step // 2
        spans.append((start, stop))
        start = stop
    return [*spans, (start, len(wave))]


def calls(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Positions, the longest first, in groups of at most `most` samples with padding to the longest of each; one at least."""
    order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
    group: list[int] = []
    for at in order:
        if group and (len(group) + 1) * lengths[group[0]] > most:
            yield group
            group = []
        group.append(at)
    if group:
        yield group
