"""Embeddings of clips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import VECTOR, unit, vector_column

XCLIP = "microsoft/xclip-base-patch32"


@dataclass(kw_only=True)
class Embed(Stage):
    """Embed clips as vectors, by X-CLIP, VideoPrism, VideoMAE, TimeSformer, ViViT, V-JEPA 2 or any other model of clips that
    transformers has.

    Reads `frames`. Adds `embedding` (a list of float32 at length 1, as wide as the model makes it; null where there are no
    frames). For `dedup.semantic`.

    A model looks at a fixed number of frames (X-CLIP 8, VideoMAE and VideoPrism 16, ViViT 32, V-JEPA 2 64). They are taken
    from the middle of as many equal parts of `frames`, some several times where there are fewer: let `video.decode` give
    about so many. Of models trained on clips with texts it is the vector in the space of both, of a backbone its
    pooled output, the token that it has for the whole (TimeSformer, ViViT), or the mean of its tokens (VideoMAE, V-JEPA 2).

    For the mean of what an image model makes of each frame take `image.embed` inside `each`.

    `model`: a hub id, `id@revision` or a folder. `into`: the column. `normalize`: false leaves the length as the model gives
    it.

    Source: X-CLIP (Ni et al. 2022, https://arxiv.org/abs/2208.02816); VideoPrism (Zhao et al. 2024,
    https://arxiv.org/abs/2402.13217); V-JEPA 2 (Assran et al. 2025, https://arxiv.org/abs/2506.09985).
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 16

    model: str = XCLIP
    into: str = "embedding"
    normalize: bool = True

    def __post_init__(self) -> None:
        for name in ("model", "into"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; video.embed wants a name there")

    def contract(self) -> Contract:
        return Contract(needs={"frames"}, adds={self.into: VECTOR})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_video.models.encoder import ClipEncoder

        self._encoder = ClipEncoder(self.model, ctx)

    def process(self, batch: VideoBatch) -> VideoBatch:
        clips = seen(batch)
        at = np.array(list(clips), np.int64)
        made = self._encoder.clips(list(clips.values())) if clips else np.zeros((0, 0), np.float32)
        return batch.with_columns({self.into: vector_column(unit(made) if self.normalize else made, at, len(batch))})


def seen(batch: VideoBatch) -> dict[int, np.ndarray]:
    """The frames of the rows that have one."""
    return {row: frames for row, frames in enumerate(batch.frames or ()) if frames is not None and len(frames)}
