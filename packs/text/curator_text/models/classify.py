"""What a text classifier says of texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import present, vectors_of
from curator_text.models.scores import ScoreColumns
from curator_text.models.train.trained import Trained, digest_of, is_trained, read_trained


@dataclass(kw_only=True)
class Classify(Stage):
    """Classify texts by any sequence classifier of transformers, or by one of text.train_classifier: quality,
    domain, education, toxicity, language.

    Adds `label` (string, the most probable class) and `label_score` (float32, its probability); with
    `regression` `label_score` alone, as the model gives it; or with `labels` a column for each class that is
    named there (float32). Null where there is no text.

    `model`: a hub id, `id@revision` or a folder; also those that NVIDIA saved as a backbone with a layer
    (`nvidia/quality-classifier-deberta`, `nvidia/domain-classifier`,
    `nvidia/multilingual-domain-classifier`). A folder of text.train_classifier needs neither torch nor a GPU;
    where it was trained on embeddings `column` is theirs. `into`: the name of the columns. `labels`: columns
    by the model's names of classes, `{High: high_score}`. `regression`: the model gives a number and no
    classes (`HuggingFaceFW/fineweb-edu-classifier`, 0 to 5). `long`: `first` reads as much of a text as the
    model takes, `windows` all of it, and tells the mean over the windows by their lengths. `max_tokens`: how
    many are taken, special ones included; null: as many as the model can take. `max_chars`: so many
    characters of a text are looked at; null: all.

    Texts of a call are sorted by length, and padded to the longest of a batch only.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 1024  # the more are sorted together, the less is padded

    model: str
    column: str = "text"
    into: str = "label"
    labels: dict[str, str] | None = None
    long: str = "first"
    max_tokens: int | None = None
    max_chars: int | None = None
    regression: bool = False

    def __post_init__(self) -> None:
        self._score_columns = ScoreColumns(self.into, self.regression, self.labels)
        if self.long not in ("first", "windows"):
            raise ValueError(f"long must be first or windows, got {self.long!r}")
        self.at_least(1, "max_tokens", "max_chars")
        if is_trained(self.model):
            self.resources, self.requires = Resources(cpus=1), {}

    def parameters(self) -> dict[str, Any]:
        """With what a classifier of text.train_classifier has learned: trained again, it is another stage."""
        return super().parameters() | ({"trained": digest_of(self.model)} if is_trained(self.model) else {})

    def contract(self) -> Contract:
        return Contract(needs={self.column}, adds=self._score_columns.adds())

    def setup(self, ctx: Context) -> None:
        if is_trained(self.model):
            trained = read_trained(self.model)
            self._scores = partial(self._scores_of_trained, trained)
            self._classes, regression = trained.labels, trained.regression
        else:
            need_models()
            from curator_text.models.encoders import TextClassifier

            model = TextClassifier(self.model, ctx, self.max_tokens)
            self._scores = partial(self._scores_of_texts, model)
            self._classes, regression = model.labels, model.regression
        if regression != self.regression:
            what, set_it = ("a number", "true") if regression else ("classes", "false")
            raise CuratorError(f"{self.model!r} gives {what}: set regression: {set_it}")
        for label in self.labels or ():
            if label not in self._classes:
                raise CuratorError(f"{self.model!r} knows no class {label!r}; its classes are "
                                   f"{', '.join(self._classes[:20])}")

    def process(self, batch: Batch) -> Batch:
        at, scores = self._scores(batch)
        return batch.with_columns(self._score_columns.columns(scores, at, len(batch), self._classes))

    def _scores_of_texts(self, model: Callable[[list[str], bool], np.ndarray],
                         batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The rows with a text, and the scores of these."""
        texts = batch.column(self.column)
        at = present(texts)
        if not len(at):
            return at, np.zeros((0, len(self._classes)), np.float32)
        return at, model([texts[row][:self.max_chars] for row in at], self.long == "windows")

    def _scores_of_trained(self, trained: Trained, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """The same of a classifier of text.train_classifier, which reads texts or embeddings."""
        if not trained.features.ngrams:
            at, vectors = vectors_of(batch, self.column, trained.features.width)
            return at, trained.scores(vectors)
        texts = batch.column(self.column)
        at = present(texts)
        return at, trained.scores([texts[row][:self.max_chars] for row in at])
