"""How well a text fits a clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import scattered
from curator_video.models.embed import XCLIP, seen


@dataclass(kw_only=True)
class TextMatch(Stage):
    """Score how well a text (a caption, a title) fits its clip, by X-CLIP or VideoPrism.

    Reads `frames`. Adds `text_match` (float32, the cosine that the model gives the pair, -1 to 1; null where there are no
    frames or no words) and `text_match_truncated` (bool: the text is longer than the model reads, 77 tokens of X-CLIP, 64 of
    VideoPrism, and was judged by its beginning; null where it has no words).

    What is high depends on the model: compare clips of one data set. Of an image model, frame by frame, take
    `image.alignment` inside `each`.

    `text`: the column of texts. `model`: a hub id, `id@revision` or a folder. `into`: the name of the columns.

    Source: X-CLIP (Ni et al. 2022, https://arxiv.org/abs/2208.02816); VideoPrism (Zhao et al. 2024,
    https://arxiv.org/abs/2402.13217).
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 16

    text: str = "caption"
    model: str = XCLIP
    into: str = "text_match"

    def __post_init__(self) -> None:
        for name in ("text", "model", "into"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; video.text_match wants a name there")

    def contract(self) -> Contract:
        return Contract(needs={self.text: pa.string(), "frames": None},
                        adds={self.into: pa.float32(), f"{self.into}_truncated": pa.bool_()})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_video.models.encoder import ClipEncoder

        self._encoder = ClipEncoder(self.model, ctx, texts=True)

    def process(self, batch: VideoBatch) -> VideoBatch:
        texts = batch.column(self.text)
        worded = {row for row, text in enumerate(texts) if text and not text.isspace()}
        clips = {row: frames for row, frames in seen(batch).items() if row in worded}
        both = np.array(list(clips), np.int64)
        cosines = np.zeros(0, np.float32)
        truncated = np.full(len(batch), None, object)
        if worded:
            rows = sorted(worded)
            truncated[rows] = self._encoder.too_long([texts[row] for row in rows])
        if len(both):
            cosines = self._encoder.cosines(list(clips.values()), [texts[row] for row in both])
        return batch.with_columns({self.into: scattered(cosines, both, len(batch)),
                                   f"{self.into}_truncated": pa.array(truncated, pa.bool_())})
