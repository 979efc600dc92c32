"""Embeddings of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import VECTOR, present, unit, vector_column

# the model whose embeddings the public heads (aesthetics, NSFW) were trained on
CLIP = "openai/clip-vit-large-patch14"


@dataclass(kw_only=True)
class Embed(Stage):
    """Embed images as vectors, by CLIP, SigLIP, DINOv2 or any vision model of transformers.

    Adds `embedding` (a list of float32 at length 1, as wide as the model makes it; null where there are no
    pixels). For `dedup.semantic`, and for `image.aesthetic`, `image.head`, `image.zero_shot` and
    `image.alignment`, which then need no pixels.

    `model`: a hub id, `id@revision` or a folder. The default (CLIP L/14, 768 numbers) is the one whose
    vectors the public heads read. Of CLIP, SigLIP and SigLIP 2 it is the vector in the space of images and
    texts; of a backbone its pooled output, or the first token where it was trained without one. `into`: the
    column. `normalize`: false leaves the length as the model gives it.

    Pixels that have the size of the model's input are not scaled again: with `image.resize: {size: 224, crop:
    center}` before it the workers with the model have more time for it, and the embeddings of CLIP stay the
    same.

    Source: CLIP (Radford et al. 2021, https://arxiv.org/abs/2103.00020); SigLIP (Zhai et al. 2023,
    https://arxiv.org/abs/2303.15343); inputs as in transformers' image processors.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 64

    model: str = CLIP
    into: str = "embedding"
    normalize: bool = True

    def contract(self) -> Contract:
        return Contract(needs={"pixels"}, adds={self.into: VECTOR})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_image.embedder import Embedder

        self._embedder = Embedder(self.model, ctx)

    def process(self, batch: ImageBatch) -> ImageBatch:
        at = present(batch.pixels)
        images = [image for image in batch.pixels or () if image is not None]
        made = self._embedder.images(images) if images else np.zeros((0, 0), np.float32)
        return batch.with_columns({self.into: vector_column(unit(made) if self.normalize else made, at,
                                                            len(batch))})
