"""Records with samples, and signals whose measures are known, for the tests of the pack."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curator.api.tasks import AudioBatch


def recordings(*samples: np.ndarray | None, rate: int = 16_000, **columns) -> AudioBatch:
    """Records named 0, 1, 2, … as `audio.decode` makes them; samples are n (mono) or channels x n."""
    shaped = [None if one is None else np.atleast_2d(np.asarray(one, np.float32)) for one in samples]
    seconds = pa.array([None if one is None else one.shape[1] / rate for one in shaped], pa.float64())
    ids = pa.array([str(number) for number in range(len(shaped))], pa.string())
    made = {"duration": seconds, "sample_rate": pa.array([None if one is None else rate for one in shaped], pa.int32()),
            "channels": pa.array([None if one is None else len(one) for one in shaped], pa.int32()),
            "start_s": pa.array([None if one is None else 0.0 for one in shaped], pa.float64()), "end_s": seconds}
    return AudioBatch(rows=pa.table({"id": ids, "source": ids, **made, **columns}), samples=shaped)


def sine(frequency: float, seconds: float = 1.0, rate: int = 16_000, amplitude: float = 0.5) -> np.ndarray:
    """A sine, float32 [n]."""
    return (amplitude * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def noise(seconds: float = 1.0, rate: int = 16_000, level_db: float = -20.0, seed: int = 0) -> np.ndarray:
    """White Gaussian noise of an RMS level in dB relative to full scale, float32 [n]."""
    values = np.random.default_rng(seed).standard_normal(round(seconds * rate))
    return (values * 10 ** (level_db / 20)).astype(np.float32)


def voice(seconds: float = 1.0, rate: int = 16_000, pitch: float = 120.0, seed: int = 0) -> np.ndarray:
    """What detectors take for speech: pulses of a wavering pitch through three formants that move from vowel to vowel, four
    syllables a second, float32 [n], RMS about -20 dB."""
    chance = np.random.default_rng(seed)
    count = max(1, round(seconds * rate))
    t = np.arange(count) / rate
    syllables = max(2, round(4 * seconds) + 1)
    moving = [np.interp(t, np.linspace(0, seconds, syllables), chance.uniform(low, high, syllables))
              for low, high in ((300, 800), (900, 2200), (2300, 3000))]
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.1 * np.sin(2 * np.pi * 1.3 * t + seed))) / rate
    made = np.zeros(count)
    for harmonic in range(1, int(min(3800, rate / 2 - 200) / (1.1 * pitch))):
        around = [np.exp(-((harmonic * pitch - formant) / 150) ** 2) / number for number, formant in enumerate(moving, 1)]
        made += (0.02 + sum(around)) * np.sin(harmonic * phase)
    made *= 0.3 + 0.7 * np.abs(np.sin(2 * np.pi * 2 * t + 0.6))
    return (made * 0.1 / np.sqrt(np.mean(made**2))).astype(np.float32)
