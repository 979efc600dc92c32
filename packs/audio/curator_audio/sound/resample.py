"""Samples at another rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Contract, Outputs, Stage
from curator.api.tasks import AudioBatch
from curator_audio.sound.resampler import RATES, resampled


@dataclass(kw_only=True)
class Resample(Stage):
    """Bring all recordings to one sample rate, so that tones keep their height and nothing folds down from
    above.

    Replaces `samples`, `sample_rate` (Hz) and `duration` (seconds: the new samples / `rate`). n samples
    become ceil(n * rate / sample_rate); the first stays where it is. A recording that has the rate already is
    left as it is, one without samples too. Samples without a rate, or with one outside 100 Hz to 1 MHz, leave
    on `failed`.

    `rate`: in Hz. To decode and resample in one pass give `audio.decode` the rate: the answer is the same.

    Of a recording at 44,100 Hz that becomes 16,000, tones up to 7 kHz keep their level within 0.01 dB, 7.5
    kHz lose 0.4 dB, 7.9 kHz 53 dB, and of those from 8.1 kHz on less than -130 dB is left.

    Source: the SoX Resampler library at its quality HQ (20 bits), https://sourceforge.net/p/soxr.
    """

    rate: int = 16_000

    def __post_init__(self) -> None:
        if not RATES[0] <= self.rate <= RATES[1]:
            raise ValueError(f"rate is in Hz, from {RATES[0]} to {RATES[1]:,}, got {self.rate}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()},
                        adds={"samples": None, "sample_rate": pa.int32(), "duration": pa.float64()})

    def process(self, batch: AudioBatch) -> Outputs:
        rates = batch.column("sample_rate")
        samples = batch.samples or [None] * len(batch)
        good = np.array([one is None or (rate is not None and RATES[0] <= rate <= RATES[1])
                         for one, rate in zip(samples, rates, strict=True)], bool)
        made = [None if one is None else resampled(one, rate, self.rate)
                for one, rate, fits in zip(samples, rates, good, strict=True) if fits]
        answer = batch.filter(good).with_payloads(samples=made).with_columns({
            "sample_rate": pa.array([None if one is None else self.rate for one in made], pa.int32()),
            "duration": pa.array([None if one is None else one.shape[1] / self.rate for one in made], pa.float64())})
        if good.all():
            return Outputs(out=answer)
        wrong = [f"impossible sample rate: {rate} Hz" for rate, fits in zip(rates, good, strict=True) if not fits]
        return Outputs(out=answer, failed=batch.filter(~good).with_error(wrong))
