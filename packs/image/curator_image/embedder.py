"""Models that make vectors of images, and of texts where they were trained on pairs. Imported in workers
only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.heads import sigmoid, softmax
from curator.models.loading import load, load_model, place_of
from curator.models.vectors import finite, present, vectors_of
from curator_image.inputs import ImageInputs

TEXTS_AT_ONCE = 64
CHARS_MAX = 10_000  # of a text; the models read 64 or 77 tokens


class Embedder:
    """CLIP, SigLIP and other pairs of towers, or a vision backbone (ViT, DINOv2, …) alone.

    `images`, `texts`: which tower is wanted; the other one does not stay in memory.
    """

    def __init__(self, model: str, ctx: Context, *, images: bool = True, texts: bool = False) -> None:
        self.name, self.place = model, place_of(ctx)
        self.model, headless = load_model("AutoModel", model, self.place, optional=("pooler.",))
        self.paired = hasattr(self.model, "get_text_features") and hasattr(self.model, "get_image_features")
        if texts and not self.paired:
            raise CuratorError(f"{model!r} ({type(self.model).__name__}) knows no texts: name a model "
                               "trained on images with "
                               "texts, such as CLIP or SigLIP")
        if headless:  # the checkpoint was made for something else: its pooler would be random
            self.model.pooler = None
        for wanted, tower in ((images, "vision_model"), (texts, "text_model")):
            if self.paired and not wanted and hasattr(self.model, tower):
                setattr(self.model, tower, None)
        self.model.to(self.place.device)
        # either is called only where its tower was asked for
        self._inputs: Any = ImageInputs(model, self.place) if images else None
        self._tokenizer: Any = load("AutoTokenizer", model) if texts else None

    @torch.inference_mode()
    def images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """The embeddings of images (H x W x 3 uint8), float32 [n, d], at the length that the model gives
        them.

        A backbone's is its pooled output; the first token where it has none.
        """
        inputs = self._inputs(images)
        if self.paired:
            return finite(self.model.get_image_features(**inputs).pooler_output, self.name)
        made = self.model(**inputs)
        pooled = getattr(made, "pooler_output", None)
        return finite(made.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1), self.name)

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The embeddings of texts, float32 [n, d], and which texts were longer than the model reads, bool
        [n]."""
        parts = [self._texts(texts[at:at + TEXTS_AT_ONCE]) for at in range(0, len(texts), TEXTS_AT_ONCE)]
        return np.concatenate([vectors for vectors, _ in parts]), np.concatenate([cut for _, cut in parts])

    def images_of(self, batch: Batch, column: str | None, *, width: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a batch that have an image, and their embeddings [m, width]: from a column, or with
        None of the pixels."""
        if column is not None:
            return vectors_of(batch, column, width)
        pixels = batch.payloads().get("pixels", [])
        images = [image for image in pixels if image is not None]
        return present(pixels), self.images(images) if images else np.zeros((0, width), np.float32)

    @property
    def sigmoid(self) -> bool:
        """Whether the model was trained to judge each pair by itself: SigLIP was, CLIP was not."""
        return hasattr(self.model, "logit_bias")

    def probabilities(self, cosines: np.ndarray) -> np.ndarray:
        """Of cosines of images with texts [n, texts]: of each pair by itself, or of each text among all."""
        logits = cosines * float(self.model.logit_scale.float().exp())
        return sigmoid(logits + float(self.model.logit_bias)) if self.sigmoid else softmax(logits)

    def _texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        config, tokenizer = self.model.config, self._tokenizer
        room = min(tokenizer.model_max_length, config.text_config.max_position_embeddings)
        lengths = [len(ids) for ids in tokenizer([text[:CHARS_MAX] for text in texts],
                                                 truncation=False)["input_ids"]]
        # SigLIP was trained on texts filled up to the full length; it answers differently without.
        padding = "max_length" if config.model_type.startswith("siglip") else True
        tokens = tokenizer([text[:CHARS_MAX] for text in texts], padding=padding, truncation=True,
                           max_length=room,
                           return_tensors="pt").to(self.place.device)
        cut = [length > room or len(text) > CHARS_MAX for length, text in zip(lengths, texts, strict=True)]
        return finite(self.model.get_text_features(**tokens).pooler_output, self.name), np.array(cut)
