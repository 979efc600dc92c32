"""What an image classifier says of images."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import present, scattered


@dataclass(kw_only=True)
class Classify(Stage):
    """Classify images by any image classifier of transformers.

    Adds `label` (string, the most probable class) and `label_score` (float32, its probability); or with
    `labels` a column for each class that is named there (float32, its probability). Null where there are no
    pixels.

    `model`: a hub id, `id@revision` or a folder. `into`: the name of the columns. `labels`: columns by the
    model's names of classes, `{nsfw: nsfw_score}`. Probabilities add up to 1 over all classes, unless the
    model's configuration says that an image may have several.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 64

    model: str
    into: str = "label"
    labels: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and not self.labels:
            raise ValueError("labels names no class; leave it out to get the most probable one")
        if self.labels and len(set(self.labels.values())) < len(self.labels):
            raise ValueError(f"labels gives two classes one column: {self.labels}")

    def contract(self) -> Contract:
        columns = {self.into: pa.string(), f"{self.into}_score": pa.float32()}
        if self.labels is not None:
            columns = dict.fromkeys(self.labels.values(), pa.float32())
        return Contract(needs={"pixels"}, adds=columns)

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_image.classifier import Classifier

        self._classifier = Classifier(self.model, ctx)
        self._wanted = {column: self._classifier.class_of(label)
                        for label, column in (self.labels or {}).items()}

    def process(self, batch: ImageBatch) -> ImageBatch:
        at, names = present(batch.pixels), self._classifier.labels
        scores = np.zeros((0, len(names)), np.float32)
        if images := [image for image in batch.pixels or () if image is not None]:
            scores = self._classifier(images)
        if self.labels is not None:
            return batch.with_columns({column: scattered(scores[:, k], at, len(batch))
                                       for column, k in self._wanted.items()})
        best, labels = scores.argmax(axis=1), np.full(len(batch), None, object)
        labels[at] = [names[k] for k in best]
        return batch.with_columns({self.into: pa.array(labels, pa.string()),
                                   f"{self.into}_score": scattered(scores.max(axis=1), at, len(batch))})


@dataclass(kw_only=True)
class Nsfw(Classify):
    """Score how probably an image is pornographic or otherwise not safe for work, by a small ViT.

    Adds `nsfw_score` (float32, 0 to 1; null where there are no pixels). It is `image.classify` with these
    parameters.

    Source: https://huggingface.co/Falconsai/nsfw_image_detection (85.8 million weights; classes `normal` and
    `nsfw`).
    """

    model: str = "Falconsai/nsfw_image_detection"
    labels: dict[str, str] | None = field(default_factory=lambda: {"nsfw": "nsfw_score"})
