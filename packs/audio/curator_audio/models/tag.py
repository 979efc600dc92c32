"""What is heard, by a classifier of sounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.format import listing
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import scattered
from curator_audio.sound.waves import pieces_of, waves_of


@dataclass(kw_only=True)
class Tag(Stage):
    """Tag recordings by any audio classifier of transformers (AST and its 527 classes of AudioSet, keywords, emotions, languages).

    Adds `tag` (string, the most probable class) and `tag_score` (float32, its probability); or with `labels` a column for each class
    that is named there. Null without samples. A long record is heard in windows.

    `model`: an id of the hub (`MIT/ast-finetuned-audioset-10-10-0.4593`), `id@revision`, or a folder. `labels`: columns by
    the model's names of classes: `{Music: music, Speech: speech_tag}`. `window_s`: seconds that are heard at once. `pool`: a class
    has the `mean` of its windows, or the `max`. `into`: the name of the columns.

    Source: Gong et al. 2021 (arXiv:2104.01778) for AST. Stable Audio Open sends records with `Music` above 0.15 to a check of rights.
    """

    model: str
    labels: dict[str, str] | None = None
    window_s: float = 10.24
    pool: Literal["mean", "max"] = "mean"
    into: str = "tag"

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if self.labels is not None and not self.labels:
            raise ValueError("labels names no class; leave it out to get the most probable one")
        if self.labels and len(set(self.labels.values())) < len(self.labels):
            raise ValueError(f"labels gives two classes one column: {self.labels}")
        if self.pool not in ("mean", "max"):
            raise ValueError(f"pool is mean or max, got {self.pool!r}")
        if self.window_s <= 0:
            raise ValueError(f"window_s is above 0, got {self.window_s}")

    def contract(self) -> Contract:
        columns = {self.into: pa.string(), f"{self.into}_score": pa.float32()}
        if self.labels is not None:
            columns = dict.fromkeys(self.labels.values(), pa.float32())
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds=columns)

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_audio.models.hearing import Tagger

        self._tagger = Tagger(self.model, ctx)
        known = self._tagger.labels
        unknown = [label for label in self.labels or () if label not in known]
        if unknown:
            raise CuratorError(f"{self.model!r} has no class {unknown[0]!r}; it has {listing(known, 12)}")
        self._wanted = {column: known.index(label) for label, column in (self.labels or {}).items()}

    def process(self, batch: AudioBatch) -> AudioBatch:
        pieces: list[tuple[int, np.ndarray]] = []
        length = int(self.window_s * self._tagger.rate)
        for row, wave in waves_of(batch, self._tagger.rate):
            pieces += [(row, piece) for piece in pieces_of(wave, length, "all")]
        owners = np.array([row for row, _ in pieces], int)
        at = np.unique(owners)
        heard, pool = self._tagger.scores([piece for _, piece in pieces]), np.mean if self.pool == "mean" else np.max
        scores = np.stack([pool(heard[owners == row], axis=0) for row in at]) if len(at) else heard
        if self.labels is not None:
            return batch.with_columns({column: scattered(scores[:, k], at, len(batch)) for column, k in self._wanted.items()})
        names: list[str | None] = [None] * len(batch)
        for row, best in zip(at, scores.argmax(axis=1), strict=True):
            names[row] = self._tagger.labels[best]
        return batch.with_columns({self.into: pa.array(names, pa.string()),
                                   f"{self.into}_score": scattered(scores.max(axis=1) if len(at) else scores[:, 0], at, len(batch))})
