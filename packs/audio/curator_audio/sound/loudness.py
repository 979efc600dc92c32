"""One loudness for all recordings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Contract, Stage
from curator.api.tasks import AudioBatch
from curator_audio.measures.measured import measure

DIGITS = 4  # of what is measured in dB: matrix products have other last digits with other numbers of threads, and the gain changes samples


@dataclass(kw_only=True)
class Loudness(Stage):
    """Bring each recording to one loudness by a single gain, without clipping.

    Changes the samples; adds `gain_db` (float32; null where there is no loudness: no samples, less than 0.4 s, silence: such
    samples stay as they are). Measures made before are those of before.

    `target`: LUFS; -23 is broadcast (EBU R 128), -16 to -14 are usual for podcasts and streaming. `gain_max`: dB that a quiet
    recording is raised by at most, so that noise is not blown up. `peak_max`: dBTP that the true peak has at most afterwards;
    a recording that would be above comes out quieter than `target`, nothing is compressed.

    Source: ITU-R BS.1770-4; EBU R 128 (-23 LUFS, -1 dBTP).
    """

    target: float = -23.0
    gain_max: float = 20.0
    peak_max: float = -1.0

    def __post_init__(self) -> None:
        if not -70 <= self.target <= 0:
            raise ValueError(f"target is -70 to 0 LUFS, got {self.target}")
        if self.gain_max < 0:
            raise ValueError(f"gain_max is 0 or more dB, got {self.gain_max}; recordings that are too loud are always turned down")
        if self.peak_max > 0:
            raise ValueError(f"peak_max is 0 dBTP or below, or samples would clip, got {self.peak_max}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds={"samples": None, "gain_db": pa.float32()})

    def process(self, batch: AudioBatch) -> AudioBatch:
        samples = list(batch.samples or [None] * len(batch))
        gains = [self.gain(one, rate) for one, rate in zip(samples, batch.column("sample_rate"), strict=True)]
        for at, (one, gain) in enumerate(zip(samples, gains, strict=True)):
            if gain and one is not None:
                samples[at] = one * np.float32(10 ** (gain / 20))
        return batch.with_payloads(samples=samples).with_columns({"gain_db": pa.array(gains, pa.float32())})

    def gain(self, samples: np.ndarray | None, rate: int | None) -> float | None:
        """The gain in dB for a recording, None where it has no loudness."""
        found = measure(samples, rate, ("loudness", "true_peak"))
        loudness, peak = found["loudness"], found["true_peak"]
        if loudness is None or peak is None:
            return None
        return min(self.target - round(float(loudness), DIGITS), self.gain_max, self.peak_max - round(float(peak), DIGITS))
