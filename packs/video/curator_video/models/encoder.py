"""Models that make vectors of clips, and of texts where they were trained on pairs. Imported in workers only."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.loading import load, load_model, place_of
from curator.models.vectors import finite
from curator_video.models.inputs import ClipInputs
from curator_video.models.windows import spread

PIXELS_AT_ONCE = 64 * 224 * 224  # of all frames of the clips that a model is given at a time
CHARS_MAX = 10_000  # of a text; the models read 64 or 77 tokens
FIRST = ("timesformer", "vivit")  # have a token of their own for the whole clip, the first


class ClipEncoder:
    """X-CLIP, VideoPrism and other pairs, or a backbone (VideoMAE, TimeSformer, ViViT, V-JEPA 2, …) alone.

    `texts`: whether texts are compared with clips; else the tower for them does not stay in memory.
    """

    def __init__(self, model: str, ctx: Context, *, texts: bool = False) -> None:
        self.name, self.place = model, place_of(ctx)
        self.model, headless = load_model("AutoModel", model, self.place, optional=("pooler.",))
        config = self.model.config
        self.paired = hasattr(self.model, "get_video_features")
        frames = frames_of(config)
        if frames is None:
            raise CuratorError(f"{model!r} ({type(self.model).__name__}) reads no clips: name a model of videos (X-CLIP, VideoPrism, "
                               "VideoMAE, V-JEPA 2), or take image.embed inside `each` for the mean of its frames")
        self.frames = frames
        if texts and not (self.paired and hasattr(self.model, "get_text_features")):
            raise CuratorError(f"{model!r} ({type(self.model).__name__}) knows no texts: name a model trained on clips with texts, such "
                               "as X-CLIP or VideoPrism")
        if headless:  # the checkpoint was made for something else: its pooler would be random
            self.model.pooler = None
        if self.paired and not texts and hasattr(self.model, "text_model"):
            self.model.text_model = None
        self.model.to(self.place.device)
        takes = inspect.signature(self.model.forward).parameters
        self._pixels = "pixel_values_videos" if "pixel_values_videos" in takes else "pixel_values"
        self._extra = {"skip_predictor": True} if "skip_predictor" in takes else {}  # V-JEPA 2: half of the work, for nothing
        self._inputs = ClipInputs(model, self.place)
        self._tokenizer: Any = load("AutoTokenizer", model) if texts else None

    @torch.inference_mode()
    def clips(self, clips: Sequence[np.ndarray]) -> np.ndarray:
        """The embeddings of clips (T x H x W x 3 uint8), float32 [n, d], at the length that the model gives them."""
        return np.concatenate([self._clips(self._given(part)) for part in self._parts(clips)])

    @torch.inference_mode()
    def cosines(self, clips: Sequence[np.ndarray], texts: Sequence[str]) -> np.ndarray:
        """How alike each clip and its text are, float32 [n].

        By the model's own forward: X-CLIP's vector of a text depends on the clip that it is compared with.
        """
        found, done = [], 0
        for part in self._parts(clips):
            made = self.model(**{self._pixels: self._given(part)}, **self._tokens(texts[done:done + len(part)]))
            words = made.text_embeds
            if words.ndim == 3:  # [clip, text, d]
                words = words[torch.arange(len(part)), torch.arange(len(part))]
            found.append(torch.nn.functional.cosine_similarity(made.video_embeds.float(), words.float(), dim=-1))
            done += len(part)
        return finite(torch.cat(found), self.name)

    def too_long(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are longer than the model reads."""
        ids = self._tokenizer([text[:CHARS_MAX] for text in texts], truncation=False)["input_ids"]
        return [len(one) > self._room or len(text) > CHARS_MAX for one, text in zip(ids, texts, strict=True)]

    def _given(self, clips: Sequence[np.ndarray]) -> torch.Tensor:
        return self._inputs([clip[spread(len(clip), self.frames)] for clip in clips])

    def _clips(self, values: torch.Tensor) -> np.ndarray:
        if self.paired:
            return finite(self.model.get_video_features(**{self._pixels: values}).pooler_output.flatten(1), self.name)
        made = self.model(**{self._pixels: values}, **self._extra)
        pooled = getattr(made, "pooler_output", None)
        if pooled is None:
            tokens = made.last_hidden_state
            pooled = tokens[:, 0] if self.model.config.model_type in FIRST else tokens.mean(dim=1)
        return finite(pooled, self.name)

    def _parts(self, clips: Sequence[np.ndarray]) -> list[Sequence[np.ndarray]]:
        """The clips in parts of so many pixels of the model's input."""
        height, width = self._inputs.form.crop or self._inputs.form.scaled(0, 0)  # without a crop there is one size
        at_once = max(1, PIXELS_AT_ONCE // (self.frames * height * width))
        return [clips[at:at + at_once] for at in range(0, len(clips), at_once)]

    @property
    def _room(self) -> int:
        return min(self._tokenizer.model_max_length, self.model.config.text_config.max_position_embeddings)

    def _tokens(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        # VideoPrism was trained on texts filled up to the full length.
        padding = "max_length" if self.model.config.model_type == "videoprism" else True
        tokens = self._tokenizer([text[:CHARS_MAX] for text in texts], padding=padding, truncation=True, max_length=self._room,
                                 return_tensors="pt").to(self.place.device)
        return {name: tokens[name] for name in ("input_ids", "attention_mask")}


def frames_of(config: Any) -> int | None:
    """How many frames of a clip a model looks at, None if it is no model of clips."""
    for part in (config, getattr(config, "vision_config", None)):
        for name in ("num_frames", "frames_per_clip"):
            found = getattr(part, name, None)
            if isinstance(found, int):
                return found
    return None
