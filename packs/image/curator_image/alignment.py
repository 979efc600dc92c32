"""How well captions fit their images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Context, Contract, Stage
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import scattered, unit
from curator_image.embed import CLIP


@dataclass(kw_only=True)
class Alignment(Stage):
    """Score how well a caption fits its image, by CLIP or SigLIP.

    Adds `alignment` (float32, the cosine of the embeddings of image and caption, -1 to 1; null where there
    are no pixels, or no embedding, or no words in the caption) and `alignment_truncated` (bool: the caption
    is longer than the model reads, 77 tokens of CLIP, 64 of SigLIP, and was judged by its beginning; null
    where it has no words).

    What is high depends on the model: LAION-5B kept English pairs of 0.28 and more by CLIP B/32.
    `probability`: the sigmoid that SigLIP was trained with, 0 to 1, instead of the cosine.

    `caption`: the column of texts. `model`: a hub id, `id@revision` or a folder. `into`: the name of the
    columns. `embedding`: a column that `image.embed` made with the same model, instead of the pixels.

    Source: CLIPScore, Hessel et al. 2021, https://arxiv.org/abs/2104.08718 (2.5 times the cosine, 0 for
    negative ones); LAION-5B, Schuhmann et al. 2022, https://arxiv.org/abs/2210.08402, section 3.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 64

    caption: str = "txt"
    model: str = CLIP
    into: str = "alignment"
    probability: bool = False
    embedding: str | None = None

    def contract(self) -> Contract:
        return Contract(needs={self.caption: pa.string(), self.embedding or "pixels": None},
                        adds={self.into: pa.float32(), f"{self.into}_truncated": pa.bool_()})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_image.embedder import Embedder

        self._embedder = Embedder(self.model, ctx, images=self.embedding is None, texts=True)
        if self.probability and not self._embedder.sigmoid:
            raise CuratorError(f"{self.model!r} gives no probability for a single pair (SigLIP does): leave "
                               "`probability` out "
                               "to get the cosine")

    def process(self, batch: Batch) -> Batch:
        captions = batch.rows.column(self.caption).to_pylist()
        worded = np.array([row for row, text in enumerate(captions) if text and not text.isspace()], np.int64)
        cut, scores, both = np.zeros(0, bool), np.zeros(0, np.float32), worded[:0]
        if len(worded):
            words, cut = self._embedder.texts([captions[row] for row in worded])
            seen = batch.take(worded)
            at, images = self._embedder.images_of(seen, self.embedding, width=words.shape[1])
            both, cosines = worded[at], (unit(images) * unit(words[at])).sum(axis=1)
            scores = self._embedder.probabilities(cosines[:, None])[:, 0] if self.probability else cosines
        truncated = np.full(len(batch), None, object)
        truncated[worded] = cut
        return batch.with_columns({self.into: scattered(scores, both, len(batch)),
                                   f"{self.into}_truncated": pa.array(truncated, pa.bool_())})
