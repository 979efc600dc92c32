"""A classifier of images. Imported in workers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.heads import sigmoid, softmax
from curator.models.loading import load_model, place_of
from curator.models.vectors import finite
from curator_image.inputs import ImageInputs


class Classifier:
    """`labels`: the names of the classes, in the order of the model's outputs."""

    def __init__(self, model: str, ctx: Context) -> None:
        self.name, place = model, place_of(ctx)
        loaded, _ = load_model("AutoModelForImageClassification", model, place)
        self._model, self._inputs = loaded.to(place.device), ImageInputs(model, place)
        config = loaded.config
        self.labels = [config.id2label[k] for k in range(config.num_labels)]
        self._each = config.problem_type == "multi_label_classification" or config.num_labels == 1

    @torch.inference_mode()
    def __call__(self, images: Sequence[np.ndarray]) -> np.ndarray:
        """The probability of each class for images (H x W x 3 uint8), float32 [n, classes]."""
        logits = finite(self._model(**self._inputs(images)).logits, self.name)
        return sigmoid(logits) if self._each else softmax(logits)

    def class_of(self, label: str) -> int:
        """The number of a class.

        Raises:
            CuratorError: the model knows no such class.
        """
        if label not in self.labels:
            known = ", ".join(self.labels[:20]) + (f" and {len(self.labels) - 20} others" if self.labels[20:]
                                                   else "")
            raise CuratorError(f"{self.name!r} knows no class {label!r}; its classes are {known}")
        return self.labels.index(label)
