"""Train a small classifier in a run, and let it judge all records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import CuratorError, InputError
from curator.api.findings import Alarm, Finding, Line
from curator.api.stage import Context, Contract, Outputs, Reduce, setting
from curator.models.heads import softmax
from curator.models.vectors import present, vectors_of
from curator.stages.sample import chance
from curator_text.models.scores import ScoreColumns
from curator_text.models.train import metrics
from curator_text.models.train.fit import chosen, fit
from curator_text.models.train.rows import Dense, Rows, Sparse
from curator_text.models.train.trained import Features, Trained, check_free

TRAINED_MIN = 10  # records; with less nothing is learned
LABELS_MAX = 100
_SHARE = 10_000  # shares are counted as so many


@dataclass(kw_only=True)
class TrainClassifier(Reduce):
    """Train a small classifier on the records that have an annotation, and let it judge all of them.

    Sees all records first. Adds `predicted` (string, the most probable label) and `predicted_score` (float32,
    its probability); with `regression` `predicted_score` alone; or with `labels` a column for each label that
    is named there (float32, its probability; 0 of one that no annotation had). Null where there is no
    text, or where there were too few annotations to learn from: fewer than 10 records to train on, or a
    single label; an alarm says so.

    `label`: the column of annotations, null where there is none: labels (texts, truth values or whole
    numbers, at most 100 different ones), or numbers with `regression`. `column`: texts, which become hashed
    n-grams of up to `ngrams` words in 2^`bits` columns; or embeddings, as text.embed makes them. `save`: a
    folder for the classifier, with a card; `text.classify: {model: FOLDER}` then judges other records. `into`:
    the name of the columns. `held_out`: the share of annotated records that are not trained on, but tell how
    right the classifier is. `sample`: the most annotated records, chosen by a hash of `seed` and id. `l2`: the
    weight of the squared weights in the loss; null: that of 0.001 to 0.000001 with which a tenth of the
    training records comes out best. `max_chars`: so many characters of a text are looked at; null: all.

    Logistic regression for labels, ridge regression for numbers. No chance is in it: the same records make
    the same classifier. All records go through one worker, some 20,000 texts of 1,300 characters a second: for
    a large corpus train on a part, and use text.classify for the rest. Memory: 8 bytes an n-gram of each
    annotated text.

    Source: FineWeb-Edu (arXiv 2406.17557, section 4), which trains a linear layer on annotations of a
    language model; the n-grams are those of fastText's classifiers (arXiv 1607.01759), in DCLM's place.
    """

    label: str
    column: str = "text"
    into: str = "predicted"
    labels: dict[str, str] | None = None
    regression: bool = False
    save: str | None = setting(default=None)
    ngrams: int = 2
    bits: int = 18
    held_out: float = 0.1
    sample: int = 50_000
    l2: float | None = None
    max_chars: int | None = 10_000
    seed: int = 0

    key = None

    def __post_init__(self) -> None:
        self._score_columns = ScoreColumns(self.into, self.regression, self.labels)
        if not 1 <= self.ngrams <= 5 or not 10 <= self.bits <= 24:
            raise ValueError("ngrams must be from 1 to 5 and bits from 10 to 24, got "
                             f"{self.ngrams} and {self.bits}")
        if not 0 <= self.held_out <= 0.9 or self.sample < TRAINED_MIN:
            raise ValueError(f"held_out is a share from 0 to 0.9, and sample {TRAINED_MIN} or more, got "
                             f"{self.held_out} and {self.sample}")
        if self.l2 is not None and not self.l2 > 0:
            raise ValueError(f"l2 must be above 0, got {self.l2}")
        self.at_least(1, "max_chars")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2**63 - 1, got {self.seed}")
        if taken := {self.label, self.column} & self._score_columns.adds().keys():
            raise ValueError(f"{', '.join(taken)} is read, and would be written over: choose another `into`")
        self.columns = (self.column, self.label)

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.label}, adds=self._score_columns.adds())

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        told = counts.extra
        if told.get("unlearned"):
            yield Alarm("error", f"{step} learned nothing: {told.get('annotated', 0):,} records have a value "
                        f"in {self.label!r}, and {TRAINED_MIN} to train on, with two different values, are "
                        "the least")
        elif told.get("trained"):
            right = ""
            if told.get("held_out"):
                right = f"; on {told['held_out']:,} others " + " and ".join(
                    f"{name.replace('_', ' ')} {told[name] / _SHARE:.3g}"
                    for name in ("accuracy", "macro_f1", "rmse", "spearman") if name in told)
            yield Line(f"trained on {told['trained']:,} records{right}")

    # -- pass one ----------------------------------------------------------------------------------------

    def setup(self, ctx: Context) -> None:
        if self.save is not None:
            check_free(self.save)
        self.clear()

    def clear(self) -> None:
        self._features = Features(self.ngrams, self.bits, self.max_chars, 0)
        self._parts: list[tuple[Rows, np.ndarray, np.ndarray, np.ndarray]] = []  # rows, values, chances, ids
        self._held = self._sorted_out = 0
        self._trained: Trained | None = None

    def absorb(self, batch: Batch) -> None:
        values = self._annotations(batch)
        annotated = np.flatnonzero([value is not None for value in values])
        at, rows = self._rows(batch.take(annotated))
        if not len(at):
            return
        ids = batch.rows.column("id").take(pa.array(annotated[at]))
        self._parts.append((rows, values[annotated[at]], chance(ids, self.seed),
                            ids.to_numpy(zero_copy_only=False)))
        self._held += len(at)
        if self._held > 2 * max(self.sample, self._sorted_out):
            self._sort_out()

    def _annotations(self, batch: Batch) -> np.ndarray:
        """Numbers, or labels as text; None where there is none."""
        column = batch.rows.column(self.label)
        if not self.regression:
            return np.array([value if value is None else _as_text(value) for value in column.to_pylist()],
                            object)
        try:
            found = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"a regression wants numbers in {self.label!r}, and there is {column.type}: "
                             f"{error}") from error
        return np.array([value if np.isfinite(value) else None for value in found.tolist()], object)

    def _rows(self, batch: Batch) -> tuple[np.ndarray, Rows]:
        """The rows that have a text, or a vector, and what is known of them."""
        at, values = self._values(batch)
        return at, self._features.rows(values)

    def _values(self, batch: Batch) -> tuple[np.ndarray, Any]:
        kind = batch.rows.column(self.column).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
            texts = batch.column(self.column)
            at = present(texts)
            return at, [texts[row] for row in at]
        if not self._features.width and hasattr(kind, "value_type"):
            lengths = pc.max(pc.list_value_length(batch.rows.column(self.column))).as_py()
            self._features = Features(0, 0, None, lengths or 0)
        return vectors_of(batch, self.column, self._features.width)

    def _sort_out(self) -> None:
        """Keep the records with the lowest chances, in their order."""
        rows, values, chances, ids = zip(*self._parts, strict=True)
        values, chances, ids = np.concatenate(values), np.concatenate(chances), np.concatenate(ids)
        order = np.lexsort((ids, chances))[:self.sample]
        joined = (Sparse if isinstance(rows[0], Sparse) else Dense).joined(rows).take(order)
        self._parts = [(joined, values[order], chances[order], ids[order])]
        self._held = self._sorted_out = len(order)

    # -- training ----------------------------------------------------------------------------------------

    def finish(self) -> Iterator[Outputs]:
        counts = {"annotated": self._held}
        if self._parts:
            self._sort_out()
            rows, values, _, ids = self._parts.pop()
            apart = chance(pa.chunked_array([pa.array(ids, pa.string())]), self.seed ^ 1 << 62)
            counts |= self._learn(rows, values, apart)
        if self._trained is None:
            counts["unlearned"] = 1
        elif self.save is not None:
            self._trained.save(self.save)
        yield Outputs(counts=counts)

    def _learn(self, rows: Rows, values: np.ndarray, apart: np.ndarray) -> dict[str, int]:
        held, labels = apart < self.held_out, []
        if self.regression:
            targets = values.astype(np.float64)[:, None]
        else:
            labels = sorted(set(values[~held].tolist()))
            if len(labels) > LABELS_MAX:
                raise CuratorError(f"{self.label!r} has {len(labels):,} different labels, and {LABELS_MAX} "
                                   "are the most; set regression: true if they are numbers")
            targets = (values[:, None] == np.array(labels, object)).astype(np.float64)
        train = np.flatnonzero(~held)
        held &= targets.any(axis=1) | self.regression  # a label that was never seen tells nothing
        if len(train) < TRAINED_MIN or len(np.unique(targets[train], axis=0)) < 2:
            return {}
        taught, known = rows.take(train), targets[train]
        l2 = self.l2
        if l2 is None:
            l2 = chosen(taught, known, apart[train] < self.held_out + 0.1 * (1 - self.held_out))
        linear = fit(taught, known, l2)
        found = linear.outputs(rows.take(np.flatnonzero(held)))
        right: dict[str, Any] = {}
        if held.any():
            right = (metrics.of_numbers(found[:, 0], targets[held, 0]) if self.regression
                     else metrics.of_labels(softmax(found), targets[held].argmax(axis=1), labels))
        data = {"label": self.label, "column": self.column, "annotated": len(values),
                "trained": len(train), "held_out": int(held.sum()), "seed": self.seed, "l2": l2}
        self._trained = Trained(self._features, labels, linear, {"data": data, "metrics": right})
        return {"trained": len(train), "held_out": int(held.sum())} | {
            name: round(_SHARE * value) for name, value in right.items() if isinstance(value, float)}

    # -- pass two ----------------------------------------------------------------------------------------

    def process(self, batch: Batch) -> Batch:
        at, scores, names = np.zeros(0, np.int64), np.zeros((0, 1), np.float32), []
        if self._trained is not None:
            at, values = self._values(batch)
            names = self._trained.labels
            scores = self._trained.scores(values) if len(at) else np.zeros((0, len(names)), np.float32)
        return batch.with_columns(self._score_columns.columns(scores, at, len(batch), names))


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
