"""Who speaks, as a vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import VECTOR, vector_column
from curator_audio.sound.waves import pieces_of, waves_of

SHORTEST_S = 0.5


@dataclass(kw_only=True)
class EmbedSpeaker(Stage):
    """Embed the voice of a recording: records of one speaker lie close, by cosine.

    Adds `speaker_embedding` (list of float32, length 1). Null without samples, and under half a second. A record with several
    speakers has a vector between them: cut it first (`audio.speakers`, `audio.segment`).

    `model`: a model with an x-vector head (`microsoft/wavlm-base-plus-sv`): an id of the hub, `id@revision`, or a folder.
    `longest_s`: of longer records the middle is heard. `into`: the column of the vector.

    Source: Snyder et al. 2018 (x-vectors); Chen et al. 2022 (arXiv:2110.13900), WavLM, whose card takes 0.86 for one speaker.
    """

    model: str
    longest_s: float = 20.0
    into: str = "speaker_embedding"

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if self.longest_s < SHORTEST_S:
            raise ValueError(f"longest_s is {SHORTEST_S} or more, got {self.longest_s}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds={self.into: VECTOR})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_audio.models.hearing import Voice

        self._voice = Voice(self.model, ctx)

    def process(self, batch: AudioBatch) -> AudioBatch:
        rate = self._voice.rate
        heard: dict[int, np.ndarray] = {}
        for row, wave in waves_of(batch, rate):
            if len(wave) >= SHORTEST_S * rate:
                heard[row], = pieces_of(wave, int(self.longest_s * rate), "middle")
        vectors = self._voice.embed(list(heard.values()))
        return batch.with_columns({self.into: vector_column(vectors, np.array(list(heard), int), len(batch))})
