"""Where somebody speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator_audio.cut import engines
from curator_audio.cut.spans import SPANS, Smoothing, as_lists, spans_of
from curator_audio.sound.waves import mono_at

COLUMNS: dict[str, pa.DataType | None] = {"speech": SPANS, "speech_ratio": pa.float32(), "speech_seconds": pa.float64()}
ENGINES = ("webrtc", "silero", "energy")
LEAVE_BELOW = 0.15  # a span ends where the score is by this below what it began with; Source: Silero VAD


@dataclass(kw_only=True)
class Vad(Stage):
    """Find where somebody speaks: spans of speech, and how much of it there is.

    Adds `speech` (list of `start` and `end`, seconds from the record's first sample, in order, never overlapping),
    `speech_seconds` (their sum) and `speech_ratio` (of the duration, 0 to 1). A record without speech has an empty list and 0; null
    only where there are no samples (`speech_ratio` also where there are none to divide by).

    The channels are mixed, brought to 16 kHz behind a low-pass filter, and to one level (the loud parts to -20 dB), so that a
    quiet recording is heard like a loud one. What is below -70 dB is silence.

    `engine`: `webrtc`, which is fast; `silero`, a small network (`pip install 'curator-audio[models]'`), the one to take where there
    is music; or `energy`, for whatever is louder than what is around it.
    `mode`: of webrtc, 0 lets most through, 3 least.
    `frame_ms`: of webrtc, 10, 20 or 30.
    `threshold`: of silero, the probability from which it is speech.
    `gate_db`: what is not louder than the noise floor by so many dB is no speech, whatever the engine says; null for no gate.
    `min_speech`: seconds; a shorter span is none.
    `min_pause`: seconds; a shorter pause is none.
    `pad`: seconds added at both ends of a span, no further than half of the pause.

    Known: WebRTC alone calls nearly all music speech, and hiss as well. The gate takes away what is steady (hiss, hum, a held
    tone or chord), nothing that rises and falls: music with a beat, clicks, a barking dog remain, and so they do with `energy`.
    Speech that goes on for 30 s without a pause, over steady noise less than 3 dB below it, is lost by the gate.

    Source: Silero VAD (https://github.com/snakers4/silero-vad), whose defaults `threshold`, `min_speech` and `pad` are; WebRTC
    (https://webrtc.googlesource.com/src/+/main/common_audio/vad).
    """

    engine: Literal["webrtc", "silero", "energy"] = "webrtc"
    mode: int = 3
    frame_ms: int = 10
    threshold: float = 0.5
    gate_db: float | None = 3.0
    min_speech: float = 0.25
    min_pause: float = 0.2
    pad: float = 0.03

    version = 2

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ValueError(f"engine is one of {', '.join(ENGINES)}, got {self.engine!r}")
        if self.engine == "silero":
            self.requires = dict.fromkeys(("onnxruntime", "silero_vad"), engines.EXTRA)
        if self.mode not in (0, 1, 2, 3):
            raise ValueError(f"mode is 0, 1, 2 or 3, got {self.mode!r}")
        if self.frame_ms not in (10, 20, 30):
            raise ValueError(f"frame_ms is 10, 20 or 30, got {self.frame_ms!r}")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold is a probability above 0 and below 1, got {self.threshold}")
        for name in ("min_speech", "min_pause", "pad", "gate_db"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        if self.engine == "webrtc":
            self._engine: engines.Engine = engines.WebRtc(self.mode, self.frame_ms)
        else:
            self._engine = engines.Silero() if self.engine == "silero" else engines.Energy()
        leave = max(self.threshold - LEAVE_BELOW, 0.01)
        self._smoothing = Smoothing(self.threshold, leave, self.min_speech, self.min_pause, self.pad)

    def process(self, batch: AudioBatch) -> AudioBatch:
        found: list[np.ndarray | None] = []
        ratios: list[float | None] = []
        for samples, rate in zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True):
            if samples is None or not rate:
                found.append(None)
                ratios.append(None)
                continue
            duration = samples.shape[1] / rate
            spans = self._spans(samples, rate, duration)
            found.append(spans)
            ratios.append(spoken_s(spans) / duration if duration else None)
        seconds = [None if one is None else spoken_s(one) for one in found]
        return batch.with_columns({"speech": as_lists(found), "speech_ratio": pa.array(ratios, pa.float32()),
                                   "speech_seconds": pa.array(seconds, pa.float64())})

    def _spans(self, samples: np.ndarray, rate: int, duration: float) -> np.ndarray:
        mono = mono_at(samples, rate, engines.RATE)
        found = engines.levels(mono)
        scores = self._engine.scores(mono, engines.gain_for(found))
        loud = None if self.gate_db is None else engines.loud_stretches(found, self.gate_db)
        return spans_of(scores, self._engine.frame / engines.RATE, self._smoothing, duration, loud)


def spoken_s(spans: np.ndarray) -> float:
    """The sum of the lengths of spans."""
    return float((spans[:, 1] - spans[:, 0]).sum())
