"""Who speaks when: voices of short windows, put together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator_audio.sound.waves import waves_of
from curator_audio.voices.clusters import clusters
from curator_audio.voices.turns import TURNS, Turn, merged

COLUMNS = {"turns": TURNS, "speaker_count": pa.int32(), "speaker_purity": pa.float32()}


@dataclass(kw_only=True)
class Speakers(Stage):
    """Tell who speaks when in a recording: windows of speech are embedded, and those of one voice put together.

    Adds `turns` (list of start, end, speaker; seconds of the record, speakers numbered `s0`, `s1`, … as they come), `speaker_count`
    (int32; 0 without speech) and `speaker_purity` (float32, 0 to 1: mean cosine of the windows to the mean of their speaker). Null
    without samples; purity also without speech. `audio.segment` with `by: turns` cuts by them.

    Numbers hold within a record: of the parts of a long file each has its own. Speech of two at once goes to one of them. Good enough to
    find records with one voice; for exact turns take a diarisation model and read its RTTM (`audio.rttm`).

    `model`: a model with an x-vector head, as of `audio.embed_speaker`. `window_s`, `hop_s`: what is embedded. `distance`: windows whose
    mean cosine distance is at most this are one voice; it rests on the model, so look at some records before you trust it.
    `speech`: the column with spans of speech (`audio.vad`). `gap_s`: turns of one voice with less between them are one.

    Source: average linkage over x-vectors, as in Landini et al. 2020 (arXiv:2012.14952), before its resegmentation.
    """

    model: str
    window_s: float = 1.5
    hop_s: float = 0.75
    distance: float = 0.5
    speech: str = "speech"
    gap_s: float = 0.5

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if not 0 < self.hop_s <= self.window_s:
            raise ValueError(f"hop_s is above 0 and at most window_s, got {self.hop_s} and {self.window_s}")
        if not 0 <= self.distance <= 2:
            raise ValueError(f"distance is a cosine distance, 0 to 2, got {self.distance}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32(), self.speech: None}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_audio.models.hearing import Voice

        self._voice = Voice(self.model, ctx)

    def process(self, batch: AudioBatch) -> AudioBatch:
        speech = batch.column(self.speech)
        found: list[tuple[Any, ...]] = [(None, None, None)] * len(batch)
        for row, wave in waves_of(batch, self._voice.rate):
            found[row] = self._speakers(wave, speech[row] or [])
        columns = zip(*found, strict=True) if found else ([], [], [])
        return batch.with_columns({name: pa.array(values, kind)
                                   for (name, kind), values in zip(COLUMNS.items(), columns, strict=True)})

    def _speakers(self, wave: np.ndarray, speech: list[dict[str, float]]) -> tuple[Any, ...]:
        rate = self._voice.rate
        spans = [span for one in speech for span in spread(one["start"], one["end"], self.window_s, self.hop_s)]
        spans = [(start, end) for start, end in spans if int(end * rate) - int(start * rate) >= rate // 2 and int(end * rate) <= len(wave)]
        if not spans:
            return [], 0, None
        vectors = self._voice.embed([wave[int(start * rate):int(end * rate)] for start, end in spans])
        voices = clusters(vectors, self.distance)
        centres = np.stack([vectors[voices == k].mean(axis=0) for k in range(voices.max() + 1)])
        centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
        turns = merged([Turn(*own, f"s{voice}") for own, voice in zip(owned(spans), voices, strict=True)], self.gap_s)
        return [turn.as_dict() for turn in turns], len(Counter(voices.tolist())), float((vectors * centres[voices]).sum(axis=1).mean())


def spread(start: float, end: float, window_s: float, hop_s: float) -> list[tuple[float, float]]:
    """Windows over a span, `hop_s` apart, the last one at its end; one of what is shorter."""
    if end - start <= window_s:
        return [(start, end)]
    starts = np.append(np.arange(start, end - window_s, hop_s), end - window_s)
    return [(float(one), float(one) + window_s) for one in starts]


def owned(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What each of overlapping windows stands for: up to the middle of what it shares with its neighbour."""
    edges = [list(span) for span in spans]
    for one, other in pairwise(edges):
        if other[0] < one[1]:
            one[1] = other[0] = (one[1] + other[0]) / 2
    return [(start, end) for start, end in edges]
