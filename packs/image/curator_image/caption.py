"""Captions of images by a vision-language model in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch
from curator.models.loading import MODELS, need_models


@dataclass(kw_only=True)
class Caption(Stage):
    """Describe an image by a vision-language model (Qwen-VL, LLaVA, Gemma, InternVL, Idefics, Florence-2 and
    others).

    Adds `caption` (string), `caption_tokens` (int32, how many tokens the model made, its end mark included)
    and `caption_finish_reason` (`stop`, or `length` where the caption was cut off at `max_new_tokens`). All
    are null for a row without pixels. The likeliest token is taken each time, so that an image gets the same
    caption again; in 16 bits, on a GPU, some words may still depend on the images that it shares a batch
    with.

    `model`: a hub id, `id@revision` or a folder that transformers' `AutoModelForImageTextToText` takes, with
    a chat template. `prompt`: what the model is asked; for Florence-2, which has no template, its task:
    `<MORE_DETAILED_CAPTION>`. `system`: a system message before it, None for none. `into`: the name of the
    column, and how the names of the others begin. `image_options`: settings of the model's image processor,
    to say how large it sees an image, and so how long it takes: `size: {shortest_edge: 3136, longest_edge:
    501760}` (Qwen-VL: the fewest and the most pixels), `max_patches: 4` (InternVL: tiles),
    `do_image_splitting: false` (Idefics3). `trust_remote_code`: run the code that comes with the model.
    """

    model: str
    prompt: str = "Describe this image in one paragraph. Say only what can be seen."
    system: str | None = None
    into: str = "caption"
    max_new_tokens: int = 256
    image_options: dict[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False

    resources = Resources(cpus=1, gpus=1)
    requires = MODELS
    batch_size = 16

    def __post_init__(self) -> None:
        for name in ("model", "prompt", "into"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty; image.caption wants a text there")
        self.at_least(1, "max_new_tokens")

    def contract(self) -> Contract:
        return Contract(needs={"pixels"}, adds={self.into: pa.string(), f"{self.into}_tokens": pa.int32(),
                                                f"{self.into}_finish_reason": pa.string()})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator.models.captioner import Captioner, Question, load_captioner

        model, processor = load_captioner(self.model, ctx, trust_remote_code=self.trust_remote_code)
        self._captioner = Captioner(model, processor, system=self.system, max_new_tokens=self.max_new_tokens,
                                    image_options=self.image_options)
        self._question = Question

    def process(self, batch: ImageBatch) -> ImageBatch:
        images = batch.pixels or [None] * len(batch)
        questions = [self._question(self.prompt, [pixels]) for pixels in images if pixels is not None]
        answers = iter(self._captioner.answers(questions) if questions else ())
        replies = [None if pixels is None else next(answers) for pixels in images]
        return batch.with_columns({
            self.into: pa.array([answer and answer.text for answer in replies], pa.string()),
            f"{self.into}_tokens": pa.array([answer and answer.tokens for answer in replies], pa.int32()),
            f"{self.into}_finish_reason": pa.array([answer and answer.finish_reason for answer in replies],
                                                   pa.string())})
