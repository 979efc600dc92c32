"""Scores that a small network reads off embeddings: aesthetics, NSFW, watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Stage
from curator.models.vectors import scattered, unit, vectors_of


@dataclass(kw_only=True)
class Head(Stage):
    """Score embeddings by a linear layer or an MLP from a file of weights, on the CPU.

    Adds `score` (float32, what the network gives; null where the embedding is null, or has a number that is
    not finite).

    `weights`: a safetensors file or a PyTorch state dict (read without pickle's code), as a path or as
    `repository:file` on the Hugging Face hub. The layers are the matrices in it in the order of their names;
    `mean` and `variance`, if there, standardise the input. `into`: the column, or a list of one for each
    output. `activation`: between layers. `output`: what is done to the last layer's. `normalize`: bring
    embeddings to length 1 first, as these heads were trained.

    LAION's NSFW head, `norm.mean`, `norm.variance`, `linear_1.weight` …, wants `activation: relu, output:
    sigmoid`.

    Source: NSFW: https://github.com/LAION-AI/CLIP-based-NSFW-Detector.
    """

    weights: str
    into: str | list[str] = "score"
    embedding: str = "embedding"
    activation: Literal["none", "relu", "gelu"] = "none"
    output: Literal["none", "sigmoid", "softmax"] = "none"
    normalize: bool = True

    def __post_init__(self) -> None:
        if self.activation not in ("none", "relu", "gelu"):
            raise ValueError(f"activation must be none, relu or gelu, got {self.activation!r}")
        if self.output not in ("none", "sigmoid", "softmax"):
            raise ValueError(f"output must be none, sigmoid or softmax, got {self.output!r}")
        if not self._columns() or len(set(self._columns())) < len(self._columns()):
            raise ValueError("into must name a column, or a different one for each output, got "
                             f"{self.into!r}")
        if self.output == "softmax" and len(self._columns()) < 2:
            raise ValueError("softmax of one output is always 1: name a column for each output in into, or "
                             "take sigmoid")

    def contract(self) -> Contract:
        return Contract(needs={self.embedding}, adds=dict.fromkeys(self._columns(), pa.float32()))

    def setup(self, ctx: Context) -> None:
        from curator.models.heads import Mlp

        self._mlp = Mlp.read(self.weights, self.activation, self.output, outputs=len(self._columns()))

    def process(self, batch: Batch) -> Batch:
        at, vectors = vectors_of(batch, self.embedding, self._mlp.width)
        scores = self._mlp(unit(vectors) if self.normalize else vectors)
        return batch.with_columns({name: scattered(scores[:, k], at, len(batch))
                                   for k, name in enumerate(self._columns())})

    def _columns(self) -> list[str]:
        return [self.into] if isinstance(self.into, str) else list(self.into)


@dataclass(kw_only=True)
class Aesthetic(Head):
    """Score how much people would like an image, 1 to 10, by LAION's predictor over CLIP embeddings.

    Adds `aesthetic` (float32; mostly between 3 and 7; 5 and more was chosen for LAION-Aesthetics; null where
    the embedding is null). It needs the embeddings of `image.embed` with its own model, CLIP L/14.

    Source: https://github.com/christophschuhmann/improved-aesthetic-predictor (sac+logos+ava1-l14-linearMSE).
    """

    weights: str = (
        "ttj/sac-logos-ava1-l14-linearMSE@1e77fa05081323d99725fc40a9bf9f88180490e7:model.safetensors")
    into: str | list[str] = "aesthetic"
