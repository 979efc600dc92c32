"""What a detector or a model hears of a record: mono at its rate, in pieces that it can take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from curator.api.tasks import AudioBatch

CANCELLED = 0.01  # the mean of the channels has less than this share of the power of the loudest: they cancel each other

Quietest = Callable[[int, int], int]  # the quietest place between two


def mono_at(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """The mean of the channels, [channels, n] at `rate`, as float32 [m] at another rate; by soxr HQ, so that nothing is folded down.

    Where channels cancel each other (one is the other turned over), the loudest of them.
    """
    wave = sum(samples[1:], start=samples[0]) * np.float32(1 / len(samples)) if len(samples) > 1 else samples[0]
    if len(samples) > 1 and wave.size:
        powers = [np.dot(channel, channel) for channel in samples]
        if np.dot(wave, wave) < CANCELLED * max(powers):
            wave = samples[int(np.argmax(powers))]
    wave = np.ascontiguousarray(wave, np.float32)
    if rate == wanted or not wave.size:
        return wave
    import soxr

    return soxr.resample(wave, rate, wanted, quality="HQ")


def waves_of(batch: AudioBatch, wanted: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rows that have sound, each with what is heard of it: mono at a rate. Not those whose own rate is not known."""
    for row, (samples, rate) in enumerate(zip(batch.samples or (), batch.column("sample_rate"), strict=False)):
        if samples is not None and samples.shape[1] and rate:
            yield row, mono_at(samples, rate, wanted)


def quietest_in(samples: np.ndarray, rate: int) -> Quietest:
    """Of a recording, [channels, n]: the middle of the 40 ms with the least power between two places."""
    step = max(1, rate // 200)

    def place(low: int, high: int) -> int:
        count = (high - low) // step
        if count < 2:
            return (low + high) // 2
        power = np.zeros(count + 1)
        for channel in samples[:, low:low + count * step]:
            power[1:] += np.square(channel.reshape(count, step)).sum(axis=1, dtype=np.float64)
        total, width = np.cumsum(power), min(8, count)
        around = total[width:] - total[:-width]
        return low + (int(around.argmin()) * 2 + width) * step // 2

    return place


def windows(wave: np.ndarray, rate: int, longest_s: float, search_s: float = 5.0) -> list[tuple[int, int]]:
    """Spans of at most `longest_s`, which end at the quietest place of their last `search_s` seconds: between words, mostly."""
    longest, search = int(longest_s * rate), int(search_s * rate)
    place = quietest_in(wave[None], rate)
    spans, start = [], 0
    while len(wave) - start > longest:
        stop = place(start + longest - search, start + longest)
        spans.append((start, stop))
        start = stop
    return [*spans, (start, len(wave))]


def pieces_of(wave: np.ndarray, length: int, crop: str) -> list[np.ndarray]:
    """What is heard of a wave: its `first` or `middle` part of this length, or `all` of it in parts, the last one as long as the
    others where there is enough."""
    if len(wave) <= length:
        return [wave]
    if crop == "all":
        starts = np.linspace(0, len(wave) - length, -(-len(wave) // length)).astype(int)
        return [wave[start:start + length] for start in starts]
    start = 0 if crop == "first" else (len(wave) - length) // 2
    return [wave[start:start + length]]


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
