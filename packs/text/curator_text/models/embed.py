"""Embeddings of texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import VECTOR, present, unit, vector_column


@dataclass(kw_only=True)
class Embed(Stage):
    """Embed texts as vectors, by any encoder of transformers.

    Adds `embedding` (a list of float32 at length 1, as wide as the model makes it; null where there is no
    text). For `dedup.semantic`, and as what small heads are trained on.

    `model`: a hub id, `id@revision` or a folder. `pooling`: `mean` over the tokens, `cls` (the first one) or
    `last`; null: as the folder `1_Pooling` beside the model says, which models of sentence-transformers have,
    else `mean`. `prefix`: put before each text, as some models want it (`"query: "`). `max_tokens`: how many
    of a text are read; null: as many as the model takes. `normalize`: false leaves the length as the model
    gives it. `max_chars`: so many characters of a text are looked at; null: all.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 1024  # the more are sorted together, the less is padded

    model: str = "sentence-transformers/all-MiniLM-L6-v2"
    column: str = "text"
    into: str = "embedding"
    pooling: str | None = None
    prefix: str = ""
    max_tokens: int | None = None
    max_chars: int | None = None
    normalize: bool = True

    def __post_init__(self) -> None:
        if self.pooling not in (None, "mean", "cls", "last"):
            raise ValueError(f"pooling must be mean, cls or last, got {self.pooling!r}")
        self.at_least(1, "max_tokens", "max_chars")

    def contract(self) -> Contract:
        return Contract(needs={self.column}, adds={self.into: VECTOR})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_text.models.encoders import TextEmbedder

        self._embedder = TextEmbedder(self.model, ctx, self.max_tokens, self.pooling)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        at = present(texts)
        made = self._embedder([self.prefix + texts[row][:self.max_chars]
                               for row in at]) if len(at) else np.zeros((0, 0), np.float32)
        return batch.with_columns({self.into: vector_column(unit(made) if self.normalize else made, at,
                                                            len(batch))})
