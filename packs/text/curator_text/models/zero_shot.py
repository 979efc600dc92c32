"""Labels that no classifier was trained for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.heads import softmax
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator.models.vectors import present
from curator_text.models.scores import ScoreColumns


@dataclass(kw_only=True)
class ZeroShot(Stage):
    """Ask a model of transformers that tells whether one sentence follows from another (NLI) which of some
    labels fits a text.

    Adds `label` (string, the label that fits best) and `label_score` (float32, its probability); or with
    `scores` a column for each label that is named there (float32). Null where there is no text.

    `labels`: those to choose from. `template`: the sentence that should follow from the text, with `{}` for
    the label. `multi_label`: each label is judged by itself, so that several or none may fit; else their
    probabilities sum to 1. `scores`: columns by label, `{science: science_score}`. `model`: a hub id,
    `id@revision` or a folder. `max_tokens`: how many are read of text and sentence; null: as many as the
    model takes; the text is cut. `max_chars`: so many characters of a text are looked at; null: all.

    A text is read once for each label. Pairs of a call are sorted by length, and padded to the longest of a
    batch only. Source: Yin et al. 2019, arXiv 1909.00161; probabilities as the pipeline of transformers
    reckons them.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 64

    labels: list[str]
    model: str = "MoritzLaurer/deberta-v3-base-zeroshot-v2.0"
    column: str = "text"
    into: str = "label"
    template: str = "This text is about {}."
    multi_label: bool = False
    scores: dict[str, str] | None = None
    max_tokens: int | None = None
    max_chars: int | None = 4000

    def __post_init__(self) -> None:
        self._score_columns = ScoreColumns(self.into, False, self.scores)
        least = 1 if self.multi_label else 2
        if len(set(self.labels)) < max(least, len(self.labels)):
            raise ValueError(f"labels must be {least} or more different ones, got {self.labels}")
        if self.template.count("{}") != 1:
            raise ValueError(f"template must have {{}} once, where the label stands, got {self.template!r}")
        if unknown := set(self.scores or ()) - set(self.labels):
            raise ValueError(f"scores names {', '.join(sorted(unknown))}, which is none of the labels")
        self.at_least(1, "max_tokens", "max_chars")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds=self._score_columns.adds())

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_text.models.pairs import Entailment

        self._model = Entailment(self.model, ctx, self.max_tokens)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        at = present(texts)
        found: np.ndarray = np.zeros((0, len(self.labels)))
        if len(at):
            logits = self._model([texts[row][:self.max_chars] for row in at],
                                 [self.template.format(label) for label in self.labels])
            if self.multi_label:
                found = softmax(logits.reshape(-1, 2))[:, 1].reshape(logits.shape[:2])
            else:
                found = softmax(logits[..., 1])
        return batch.with_columns(self._score_columns.columns(found, at, len(batch), self.labels))
