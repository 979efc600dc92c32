"""Silence at both ends of a recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Contract, Stage
from curator.api.tasks import AudioBatch
from curator_audio.measures.views import Views

LOUD = 95    # percentile of the level of frames that the threshold is relative to
LASTING = 3  # frames of 20 ms, every 10 ms, that sound has at least, so that a click is none
OF_THE_PLACE = ("duration", "start_s", "end_s")


@dataclass(kw_only=True)
class Trim(Stage):
    """Cut off what is silent at both ends.

    Changes the samples and with them `duration`, `start_s` and `end_s`; adds `trim_start` and `trim_end` (seconds cut off,
    float64, null where there are no samples). A recording without any sound stays as it is. Spans of `audio.vad` made before do
    not move with it: trim first.

    `threshold`: dB below the loud parts, the 95th percentile of the level of frames of 20 ms; where it is quieter it is silent.
    `floor`: dBFS; what is below is silent in any case. `pad_s`: seconds of silence that stay.

    A steady noise less than `threshold` below the speech is sound. A click of up to 20 ms is not, and is cut off.
    """

    threshold: float = 40.0
    floor: float = -70.0
    pad_s: float = 0.1

    def __post_init__(self) -> None:
        if self.threshold <= 0:
            raise ValueError(f"threshold is above 0, dB below the loud parts, got {self.threshold}; for a level in dBFS there is floor")
        if self.floor > 0:
            raise ValueError(f"floor is 0 dBFS or below, got {self.floor}")
        if self.pad_s < 0:
            raise ValueError(f"pad_s is 0 or more seconds, got {self.pad_s}")

    def contract(self) -> Contract:
        place = dict.fromkeys(OF_THE_PLACE, pa.float64())
        return Contract(needs={"samples": None, "sample_rate": pa.int32(), **place},
                        adds={"samples": None, **place, "trim_start": pa.float64(), "trim_end": pa.float64()})

    def process(self, batch: AudioBatch) -> AudioBatch:
        samples = list(batch.samples or [None] * len(batch))
        columns = {name: batch.column(name) for name in OF_THE_PLACE}
        columns |= {"trim_start": [None] * len(batch), "trim_end": [None] * len(batch)}
        for at, rate in enumerate(batch.column("sample_rate")):
            given = samples[at]
            if given is None or not rate or rate < 1:
                continue
            first, last = sounding(given, rate, self.threshold, self.floor)
            first, last = max(0, first - round(self.pad_s * rate)), min(given.shape[1], last + round(self.pad_s * rate))
            before, after = first / rate, (given.shape[1] - last) / rate
            columns["trim_start"][at], columns["trim_end"][at] = before, after
            if before or after:
                samples[at] = given[:, first:last].copy()
                columns["duration"][at] = (last - first) / rate
                columns["start_s"][at] = _moved(columns["start_s"][at], before)
                columns["end_s"][at] = _moved(columns["end_s"][at], -after)
        return batch.with_payloads(samples=samples).with_columns(
            {name: pa.array(values, pa.float64()) for name, values in columns.items()})


def sounding(samples: np.ndarray, rate: int, threshold: float, floor: float) -> tuple[int, int]:
    """The samples from the first to behind the last sound; all where there is none."""
    views = Views(samples, rate)
    level = views.frame_power
    if len(level) < LASTING or not np.all(np.isfinite(level)):
        return 0, samples.shape[1]
    bound = max(np.percentile(level, LOUD) * 10 ** (-threshold / 10), 10 ** (floor / 10))
    loud = np.convolve(level >= bound, np.ones(LASTING), "valid") == LASTING
    if not loud.any():
        return 0, samples.shape[1]
    places = np.flatnonzero(loud)
    end = int(places[-1]) + LASTING + 1
    return int(places[0]) * views.step, end * views.step if end < len(level) + 1 else samples.shape[1]


def _moved(seconds: float | None, by: float) -> float | None:
    return None if seconds is None else seconds + by
