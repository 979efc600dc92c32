"""What a text classifier says of texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.loading import MODEL_RESOURCES, need_models
from curator.models.vectors import present, scattered


@dataclass(kw_only=True)
class Classify(Stage):
    """Classify texts by any sequence classifier of transformers: quality, domain, education, toxicity,
    language.

    Adds `label` (string, the most probable class) and `label_score` (float32, its probability); with
    `regression` `label_score` alone, as the model gives it; or with `labels` a column for each class that is
    named there (float32). Null where there is no text.

    `model`: a hub id, `id@revision` or a folder; also those that NVIDIA saved as a backbone with a layer
    (`nvidia/quality-classifier-deberta`, `nvidia/domain-classifier`,
    `nvidia/multilingual-domain-classifier`). `into`: the name of the columns. `labels`: columns by the
    model's names of classes, `{High: high_score}`. `regression`: the model gives a number and no classes
    (`HuggingFaceFW/fineweb-edu-classifier`, 0 to 5). `long`: `first` reads as much of a text as the model
    takes, `windows` all of it, and tells the mean over the windows by their lengths. `max_tokens`: how many
    are taken, special ones included; null: as many as the model can take. `max_chars`: so many characters of
    a text are looked at; null: all.

    Texts of a call are sorted by length, and padded to the longest of a batch only.
    """

    resources = MODEL_RESOURCES
    batch_size = 256

    model: str
    column: str = "text"
    into: str = "label"
    labels: dict[str, str] | None = None
    long: str = "first"
    max_tokens: int | None = None
    max_chars: int | None = None
    regression: bool = False

    def __post_init__(self) -> None:
        if self.labels is not None and not self.labels:
            raise ValueError("labels names no class; leave it out to get the most probable one")
        if self.labels and (self.regression or len(set(self.labels.values())) < len(self.labels)):
            raise ValueError("labels names classes, each with a column of its own, and a regression has "
                             f"none: {self.labels}")
        if self.long not in ("first", "windows"):
            raise ValueError(f"long must be first or windows, got {self.long!r}")
        for name in ("max_tokens", "max_chars"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    def contract(self) -> Contract:
        score = {f"{self.into}_score": pa.float32()}
        columns = score if self.regression else {self.into: pa.string()} | score
        if self.labels is not None:
            columns = dict.fromkeys(self.labels.values(), pa.float32())
        return Contract(needs={self.column: pa.string()}, adds=columns)

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_text.models.encoders import TextClassifier

        self._classifier = TextClassifier(self.model, ctx, self.max_tokens)
        if self._classifier.regression != self.regression:
            what, set_it = ("a number", "true") if self._classifier.regression else ("classes", "false")
            raise CuratorError(f"{self.model!r} gives {what}: set regression: {set_it}")
        known = self._classifier.labels
        for label in self.labels or ():
            if label not in known:
                raise CuratorError(f"{self.model!r} knows no class {label!r}; its classes are "
                                   f"{', '.join(known[:20])}")

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        at, names = present(texts), self._classifier.labels
        scores = np.zeros((0, len(names)), np.float32)
        if len(at):
            scores = self._classifier([texts[row][:self.max_chars] for row in at], self.long == "windows")
        if self.labels is not None:
            return batch.with_columns({column: scattered(scores[:, names.index(label)], at, len(batch))
                                       for label, column in self.labels.items()})
        told = {f"{self.into}_score": scattered(scores.max(axis=1, initial=-np.inf), at, len(batch))}
        if not self.regression:
            labels = np.full(len(batch), None, object)
            labels[at] = [names[k] for k in scores.argmax(axis=1)] if len(at) else []
            told[self.into] = pa.array(labels, pa.string())
        return batch.with_columns(told)
