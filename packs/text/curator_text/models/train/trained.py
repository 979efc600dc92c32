"""Classifiers in folders: the weights, what they belong to, and a card.

`classifier.json` says how texts become numbers and what the outputs are; `model.safetensors` has `weight`
[outputs, width] and `bias` [outputs]; `README.md` is for people.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curator.api.errors import CuratorError
from curator.models.heads import softmax
from curator_text.models.train.card import card
from curator_text.models.train.fit import Linear
from curator_text.models.train.ngrams import hashed_ngrams
from curator_text.models.train.rows import Dense, Rows
from curator_text.models.train.safetensors import packed, read_arrays

SAYS, WEIGHTS, CARD = "classifier.json", "model.safetensors", "README.md"
FORMAT = "curator linear classifier"


@dataclass(frozen=True)
class Features:
    """`ngrams`: of up to so many words, hashed to 2^`bits` columns; 0 where records have vectors, of `width`
    numbers."""

    ngrams: int
    bits: int
    max_chars: int | None
    width: int

    def rows(self, values: Sequence[str] | np.ndarray) -> Rows:
        if self.ngrams:
            return hashed_ngrams(list(values), self.ngrams, self.bits, self.max_chars)
        return Dense(np.asarray(values, np.float32))


@dataclass(frozen=True)
class Trained:
    """`labels`: names of the outputs; none of a regression. `about`: what the card says of data and
    metrics."""

    features: Features
    labels: list[str]
    linear: Linear
    about: dict[str, Any]

    @property
    def regression(self) -> bool:
        return not self.labels

    def scores(self, values: Sequence[str] | np.ndarray) -> np.ndarray:
        """float32 [rows, outputs]: probabilities, or the number of a regression."""
        found = self.linear.outputs(self.features.rows(values))
        return (found if self.regression else softmax(found)).astype(np.float32)

    def save(self, folder: str | Path) -> None:
        """Into a folder that is empty, is not there, or holds such a classifier. Each file is whole or not
        there."""
        check_free(folder)
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        says = {"format": FORMAT, "version": 1, "labels": self.labels, "features": vars(self.features),
                **self.about}
        for name, data in ((WEIGHTS, packed({"weight": self.linear.weight, "bias": self.linear.bias})),
                           (CARD, card(says).encode()),
                           (SAYS, json.dumps(says, indent=1, ensure_ascii=False).encode())):
            part = place / f"{name}.part"
            part.write_bytes(data)
            os.replace(part, place / name)


def check_free(folder: str | Path) -> None:
    """Raises:
    CuratorError: the folder holds something else than such a classifier."""
    place = Path(folder)
    if place.exists() and not is_trained(folder) and not (place.is_dir() and not any(place.iterdir())):
        raise CuratorError(f"{str(folder)!r} is there and holds no classifier of text.train_classifier: name "
                           "another folder for it, or empty this one")


def is_trained(folder: str | Path) -> bool:
    """Whether a folder has such a classifier."""
    return _says(folder) is not None


def digest_of(folder: str | Path) -> str:
    """A hash of the files that decide what such a classifier answers."""
    content = b"".join((Path(folder) / name).read_bytes() for name in (SAYS, WEIGHTS))
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _says(folder: str | Path) -> dict[str, Any] | None:
    try:
        says = json.loads((Path(folder) / SAYS).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return says if isinstance(says, dict) and says.get("format") == FORMAT else None


def read_trained(folder: str | Path) -> Trained:
    """Raises:
    CuratorError: the files do not fit each other, or are damaged."""
    says = _says(folder) or {}
    arrays = read_arrays(Path(folder) / WEIGHTS)
    try:
        features = Features(**{name: says["features"][name] for name in Features.__dataclass_fields__})
        labels, weight, bias = says["labels"], arrays["weight"], arrays["bias"]
        outputs, width = len(labels) or 1, 2**features.bits if features.ngrams else features.width
        if says["version"] != 1 or weight.shape != (outputs, width) or bias.shape != (outputs,):
            raise ValueError(f"version {says['version']}, weights of {weight.shape} for {outputs} outputs and "
                             f"{width} columns")
    except (KeyError, TypeError, ValueError) as error:
        raise CuratorError(f"the files in {str(folder)!r} do not fit each other: {error!r}") from error
    return Trained(features, labels, Linear(weight, bias), says)
