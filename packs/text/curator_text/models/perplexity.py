"""How likely a language model finds a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.loading import MODEL_RESOURCES, need_models
from curator.models.vectors import present


@dataclass(kw_only=True)
class Perplexity(Stage):
    """Ask a causal language model of transformers how likely a text is.

    Adds `perplexity` (float64): e to the mean negative logarithm of the probability of a token, given those
    before it. Low for what the model knows by heart or finds easy, high for broken text. Null where there is
    no text, or none but a single token.

    `model`: a hub id, `id@revision` or a folder. Texts that are longer than the model takes are read in
    windows that overlap by `stride` tokens, so that no token lacks those before it; `max_tokens` makes the
    windows shorter. `max_chars`: so many characters of a text are looked at; null: all. The text begins with
    the model's mark for that, or where it has none for the end of a text.
    """

    resources = MODEL_RESOURCES
    batch_size = 64

    model: str
    column: str = "text"
    into: str = "perplexity"
    stride: int = 256
    max_tokens: int | None = 1024
    max_chars: int | None = None

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ValueError(f"stride must be 1 or more, got {self.stride}")
        if self.max_tokens is not None and self.max_tokens < 2:
            raise ValueError(f"max_tokens must be 2 or more, got {self.max_tokens}")

    def contract(self) -> Contract:
        return Contract(needs={self.column}, adds={self.into: pa.float64()})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_text.models.encoders import LanguageModelReader

        self._reader = LanguageModelReader(self.model, ctx, self.max_tokens)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        at = present(texts)
        told, absent = np.zeros(len(batch)), np.ones(len(batch), bool)
        if len(at):
            sums, counts = self._reader([texts[row][:self.max_chars] for row in at], self.stride)
            there = counts > 0
            told[at[there]] = np.exp(-sums[there] / counts[there])
            absent[at[there]] = False
        return batch.with_columns({self.into: pa.array(told, pa.float64(), mask=absent)})
