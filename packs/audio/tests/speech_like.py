"""Sound with the measures of clean speech: syllables of a buzzing or hissing source through resonances, and pauses."""

from __future__ import annotations

import numpy as np

VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))  # Peterson and Barney 1952


def speech_like(seconds: float = 10.0, rate: int = 16_000, seed: int = 0, floor_db: float = -75.0) -> np.ndarray:
    """Float32 [n], a peak of 0.5, over white noise of `floor_db` dBFS."""
    rng = np.random.default_rng(seed)
    count = round(seconds * rate)
    sound = np.zeros(count + rate)
    at = rate // 10
    while at < count:
        length = int(rate * rng.uniform(0.1, 0.22))
        if rng.random() < 0.35:
            piece = _hiss(rng.standard_normal(length // 2), rate)
            piece *= 0.25 / np.abs(piece).max()
        else:
            pitch = rng.uniform(95, 140) * (1 + 0.1 * np.sin(np.linspace(0, 3, length)))
            pulses = np.diff(np.floor(np.cumsum(pitch) / rate), prepend=0) + 0.003 * rng.standard_normal(length)
            piece = _shaped(pulses, rate, [(f, 60 + 0.04 * f) for f in VOWELS[rng.integers(len(VOWELS))]])
            piece *= rng.uniform(0.4, 1.0) / np.abs(piece).max()
        piece *= np.hanning(len(piece)) ** 0.5
        room = min(len(piece), len(sound) - at)
        sound[at : at + room] += piece[:room]
        at += len(piece) + int(rate * (rng.uniform(0.3, 0.7) if rng.random() < 0.15 else rng.uniform(0.02, 0.07)))
    sound = sound[:count]
    return (sound * 0.5 / np.abs(sound).max() + rng.standard_normal(count) * 10 ** (floor_db / 20)).astype(np.float32)


def _shaped(source: np.ndarray, rate: int, resonances: list[tuple[float, float]]) -> np.ndarray:
    """The source through resonances of (frequency, bandwidth) in a row, with a tilt of 6 dB an octave."""
    frequency = np.fft.rfftfreq(2 * len(source), 1 / rate)
    answer = 1 / (1 + 1j * frequency / 400)
    for centre, width in resonances:
        answer = answer * centre**2 / (centre**2 - frequency**2 + 1j * frequency * width)
    return np.fft.irfft(np.fft.rfft(source, 2 * len(source)) * answer)[: len(source)]


def _hiss(source: np.ndarray, rate: int) -> np.ndarray:
    """White noise without what is far below 4 kHz and far above 14 kHz."""
    frequency = np.fft.rfftfreq(len(source), 1 / rate)
    answer = (frequency / 4000) ** 2 / (1 + (frequency / 4000) ** 2) / (1 + (frequency / 14_000) ** 8)
    return np.fft.irfft(np.fft.rfft(source) * answer, len(source))


def in_a_room(samples: np.ndarray, seconds: float, rate: int, seed: int = 0) -> np.ndarray:
    """The samples with reverberation that falls by 60 dB in so many seconds, 3 dB above the direct sound; the same peak."""
    count = round(seconds * rate)
    tail = np.random.default_rng(seed).standard_normal(count) * 10 ** (-3 * np.arange(count) / count)
    tail *= np.sqrt(2 / np.square(tail).sum())
    tail[0] += 1
    size = len(samples) + count
    wet = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(tail, size), size)[: len(samples)]
    return (wet * np.abs(samples).max() / np.abs(wet).max()).astype(np.float32)
