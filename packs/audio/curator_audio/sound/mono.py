"""One channel of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from curator.api.stage import Contract, Stage
from curator.api.tasks import AudioBatch
from curator_audio.sound.channels import ANTI_PHASE, correlation, mixed


@dataclass(kw_only=True)
class Mono(Stage):
    """Mix all channels into one, but not where they would cancel each other out.

    Replaces `samples` (1 x n: the mean of the channels). Adds `stereo_correlation` (float32, -1 to 1: of the
    first two channels; 1 is mono in two channels, 0 unrelated, below 0 partly inverted; null with one
    channel, without samples, or where both are silent). Where recordings are not to be mixed but measured,
    take `audio.decode: {channel: all}` before.

    `anti_phase`: what is done where the correlation is below -0.5, as when one channel was inverted by
    mistake, so that the mean would be near silence: `first` takes the first channel, `mix` mixes all the
    same.

    Source: the mean of two channels of correlation r and equal power has (1 + r) / 2 of it; at -0.5 that is
    -6 dB. The threshold is our own.
    """

    anti_phase: Literal["first", "mix"] = "first"

    def __post_init__(self) -> None:
        if self.anti_phase not in ("first", "mix"):
            raise ValueError(f"anti_phase is first or mix, got {self.anti_phase!r}")

    def contract(self) -> Contract:
        return Contract(needs={"samples"}, adds={"samples": None, "stereo_correlation": pa.float32()})

    def process(self, batch: AudioBatch) -> AudioBatch:
        made, correlations = [], []
        for samples in batch.samples or [None] * len(batch):
            alike = None if samples is None else correlation(samples)
            cancels = alike is not None and alike < ANTI_PHASE and self.anti_phase == "first"
            correlations.append(alike)
            made.append(None if samples is None else samples[:1] if cancels else mixed(samples))
        return batch.with_payloads(samples=made).with_columns({"stereo_correlation": pa.array(correlations, pa.float32())})
