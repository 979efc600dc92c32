"""Sound and text in one space: embeddings by CLAP, and how well a caption fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import VECTOR, scattered, unit, vector_column
from curator_audio.sound.waves import pieces_of, waves_of

WINDOW_S = 10.0  # what CLAP was trained on; its own extractor takes a random part of what is longer


@dataclass(kw_only=True)
class Embed(Stage):
    """Embed recordings by CLAP: what sounds alike lies close, and a text that describes a sound lies near it.

    Adds `embedding` (list of float32, length 1) and with `caption` also `alignment` (float32, -1 to 1: cosine of sound and caption; null
    without a caption). Null without samples. `dedup.semantic` finds copies by it.

    `model`: an id of the hub (`laion/clap-htsat-unfused`), `id@revision`, or a folder. `crop`: what is heard of more than 10 s:
    the `middle`, the `first`, or `all`, whose windows are averaged. `caption`: a column with texts. `into`: the column of the vector.

    Source: Wu et al. 2023 (arXiv:2211.06687).
    """

    model: str
    crop: Literal["middle", "first", "all"] = "middle"
    caption: str | None = None
    into: str = "embedding"

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if self.crop not in ("middle", "first", "all"):
            raise ValueError(f"crop is middle, first or all, got {self.crop!r}")

    def contract(self) -> Contract:
        needs = {"samples": None, "sample_rate": pa.int32()} | ({self.caption: pa.string()} if self.caption else {})
        return Contract(needs=needs, adds={self.into: VECTOR} | ({"alignment": pa.float32()} if self.caption else {}))

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_audio.models.hearing import Clap

        self._clap = Clap(self.model, ctx)

    def process(self, batch: AudioBatch) -> AudioBatch:
        pieces: list[tuple[int, np.ndarray]] = []
        length = int(WINDOW_S * self._clap.rate)
        for row, wave in waves_of(batch, self._clap.rate):
            pieces += [(row, piece) for piece in pieces_of(wave, length, self.crop)]
        owners = np.array([row for row, _ in pieces], int)
        at = np.unique(owners)
        heard = self._clap.sound([piece for _, piece in pieces])
        vectors = unit(np.stack([heard[owners == row].mean(axis=0) for row in at])) if len(at) else heard
        columns = {self.into: vector_column(vectors, at, len(batch))}
        if self.caption:
            columns["alignment"] = self._alignment(vectors, at, batch.column(self.caption))
        return batch.with_columns(columns)

    def _alignment(self, vectors: np.ndarray, at: np.ndarray, captions: list[str | None]) -> pa.Array:
        both = np.array([k for k, row in enumerate(at) if captions[row] is not None], int)
        words = self._clap.text([captions[at[k]] or "" for k in both])
        return scattered((vectors[both] * words).sum(axis=1), at[both], len(captions))
