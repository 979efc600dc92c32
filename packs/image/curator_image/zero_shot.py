"""Labels that are given in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Context, Contract, Stage
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import VECTOR, scattered, unit, vector_column
from curator_image.embed import CLIP


@dataclass(kw_only=True)
class ZeroShot(Stage):
    """Tell which of some descriptions fits an image best, by CLIP or SigLIP: classes without training.

    Adds `label` (string, the one that fits best) and `label_score` (float32, its probability: of CLIP among
    these labels, which add up to 1; of SigLIP by itself, 0 to 1 each). Null where there are no pixels, or no
    embedding.

    `labels`: two or more, in words. `templates`: sentences with `{}` for the label; the embedding of a label
    is the mean over them. `scores`: add `label_scores` as well, a list of float32 in the order of `labels`.
    `model`: a hub id, `id@revision` or a folder. `into`: the name of the columns. `embedding`: a column that
    `image.embed` made with the same model, instead of the pixels: then the images are not looked at again.

    Source: Radford et al. 2021, https://arxiv.org/abs/2103.00020, section 3.1.4 (templates and their mean);
    Zhai et al. 2023, https://arxiv.org/abs/2303.15343 (sigmoid).
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 64

    labels: list[str]
    model: str = CLIP
    templates: list[str] | str = "a photo of a {}."
    into: str = "label"
    scores: bool = False
    embedding: str | None = None

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels):
            raise ValueError("labels must be two or more that differ, as one of them always wins; got "
                             f"{self.labels}")
        if not self._templates() or any("{}" not in template for template in self._templates()):
            raise ValueError(f"each of templates must have {{}} where the label goes, got {self.templates!r}")

    def contract(self) -> Contract:
        adds = {self.into: pa.string(), f"{self.into}_score": pa.float32()}
        if self.scores:
            adds[f"{self.into}_scores"] = VECTOR
        return Contract(needs={self.embedding or "pixels"}, adds=adds)

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_image.embedder import Embedder

        self._embedder = Embedder(self.model, ctx, images=self.embedding is None, texts=True)
        texts = [template.replace("{}", label) for label in self.labels for template in self._templates()]
        vectors, cut = self._embedder.texts(texts)
        if cut.any():
            raise CuratorError(f"{self.model!r} reads no text that is as long as "
                               f"{texts[int(cut.argmax())]!r}: shorten the "
                               "label or the template")
        grouped = unit(vectors).reshape(len(self.labels), len(self._templates()), -1)
        self._words = unit(grouped.mean(axis=1))

    def process(self, batch: Batch) -> Batch:
        at, vectors = self._embedder.images_of(batch, self.embedding, width=self._words.shape[1])
        chances = self._embedder.probabilities(unit(vectors) @ self._words.T)
        labels = np.full(len(batch), None, object)
        labels[at] = [self.labels[k] for k in chances.argmax(axis=1)]
        columns = {self.into: pa.array(labels, pa.string()),
                   f"{self.into}_score": scattered(chances.max(axis=1), at, len(batch))}
        if self.scores:
            columns[f"{self.into}_scores"] = vector_column(chances, at, len(batch))
        return batch.with_columns(columns)

    def _templates(self) -> list[str]:
        return [self.templates] if isinstance(self.templates, str) else list(self.templates)
