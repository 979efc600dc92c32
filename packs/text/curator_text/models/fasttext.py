"""Labels and probabilities of fastText's classifiers."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np
import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.loading import fetch

TEXTS_AT_ONCE = 64
_CANDIDATE = pa.struct({"label": pa.string(), "score": pa.float32()})


@dataclass(kw_only=True)
class Fasttext(Stage):
    """Ask a fastText classifier about a text: its language, its quality, its subject.

    Adds `label` and `label_score` (string, float32): the likeliest label, without `__label__`, and its
    probability; and a column for each of `scores`. Null where there is no text.

    `model`: the path of a `.bin` or `.ftz` file, or `repository:file` on the hub, such as
    `facebook/fasttext-language-identification:model.bin`, `cis-lmu/glotlid:model.bin` or
    `mlfoundations/fasttext-oh-eli5:openhermes_reddit_eli5_vs_rw_v2_bigram_200k_train.bin`. `label`: another
    name for that column (`language` gives `language` and `language_score`), null for none. `scores`: column
    to label, for the probabilities of labels (`{dclm_score: hq}`). `candidates_min`: also adds
    `label_candidates`: the labels of at least this probability, the likeliest first. `max_chars`: how much of
    a text is read; null: all of it. Line ends are read as spaces.

    Probabilities are those that fastText reports, to 1e-5, but at most 1. Memory: the model's file, once a
    machine, and 0.1 GB a worker. Source: Joulin et al. 2017, arXiv 1607.01759.
    """

    model: str
    column: str = "text"
    label: str | None = "label"
    scores: dict[str, str] = field(default_factory=dict)
    candidates_min: float | None = None
    max_chars: int | None = None

    def __post_init__(self) -> None:
        if self.label is None and not self.scores:
            raise ValueError("nothing is asked for: give `scores` ({quality: hq}), or leave `label` as it is")
        if self.candidates_min is not None and (self.label is None or not 0 <= self.candidates_min <= 1):
            raise ValueError(f"candidates_min is a probability, and wants `label`; got {self.candidates_min}")
        self.at_least(1, "max_chars")

    def contract(self) -> Contract:
        adds = {} if self.label is None else {self.label: pa.string(), f"{self.label}_score": pa.float32()}
        if self.candidates_min is not None:
            adds[f"{self.label}_candidates"] = pa.list_(_CANDIDATE)
        return Contract(needs={self.column: pa.string()},
                        adds=adds | dict.fromkeys(self.scores, pa.float32()))

    def setup_node(self, ctx: Context) -> None:
        fetch(self.model)

    def setup(self, ctx: Context) -> None:
        from curator_text.models.fasttext_file import read_fasttext
        from curator_text.models.fasttext_model import FasttextModel

        self._model = FasttextModel(read_fasttext(fetch(self.model)))
        for label in self.scores.values():
            if label.removeprefix("__label__") not in self._model.labels:
                near = get_close_matches(label, self._model.labels, n=3, cutoff=0.4) or self._model.labels[:5]
                raise CuratorError(f"{self.model!r} has no label {label!r}; it has "
                                   f"{len(self._model.labels)}, such as {', '.join(near)}")

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        short = [text and text[:self.max_chars] for text in texts]
        found = np.concatenate([np.empty((0, len(self._model.labels)), np.float32), *(
            self._model.probabilities(short[at:at + TEXTS_AT_ONCE])
            for at in range(0, len(short), TEXTS_AT_ONCE))])
        missing = np.array([text is None for text in texts], bool)
        labels, columns = self._model.labels, {}
        if self.label is not None:
            best = found.argmax(axis=1)
            columns[self.label] = pa.array([labels[number] for number in best], pa.string(), mask=missing)
            columns[f"{self.label}_score"] = pa.array(found[np.arange(len(found)), best], pa.float32(),
                                                      mask=missing)
        if self.candidates_min is not None:
            columns[f"{self.label}_candidates"] = pa.array(
                [None if gone else [{"label": labels[number], "score": row[number]}
                                    for number in np.argsort(-row, kind="stable")
                                    if row[number] >= self.candidates_min]
                 for row, gone in zip(found, missing, strict=True)],
                pa.list_(_CANDIDATE))
        for name, label in self.scores.items():
            columns[name] = pa.array(found[:, labels.index(label.removeprefix("__label__"))], pa.float32(),
                                     mask=missing)
        return batch.with_columns(columns)
