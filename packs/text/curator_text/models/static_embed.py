"""Embeddings of texts without a network: the mean of the vectors of their tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curator.api.errors import CuratorError
from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.loading import fetch
from curator.models.vectors import VECTOR, present, unit, vector_column
from curator_text.models.train.safetensors import read_arrays
from curator_text.tokens.tokenizers import EXTRA, open_tokenizer

_TOKENS_AT_ONCE = 1 << 16  # some 64 MB of vectors
_NAMES = ("embeddings", "embedding.weight")  # of the table: model2vec's, and that of sentence-transformers


@dataclass(kw_only=True)
class StaticEmbed(Stage):
    """Embed texts as vectors by a table with a vector for each token (model2vec, potion), at a hundredth of
    the cost of an encoder; neither torch nor a GPU is needed.

    Adds `embedding` (a list of float32, at length 1 if the model says so; null where there is no text, or
    none of its tokens is known). For `dedup.semantic`, and as what small heads are trained on.

    `model`: a hub id, `id@revision` or a folder, with `model.safetensors` (a table `embeddings` or
    `embedding.weight`; `weights` of tokens and their `mapping` to rows, if it has them), `tokenizer.json` and
    `config.json`. `max_tokens`: how many are read of a text; of longer ones so many times the median length
    of a token, in characters, is looked at. `normalize`: null as the model says, else true.

    Wants `pip install 'curator-text[tokens]'`. Known difference: model2vec gives zeros where no token is
    known. Source: Tulkens and van Dongen 2024, Model2Vec, github.com/MinishLab/model2vec.
    """

    resources = Resources(cpus=1)
    batch_size = 256
    requires = {"tokenizers": EXTRA}

    model: str = "minishlab/potion-base-8M"
    column: str = "text"
    into: str = "embedding"
    max_tokens: int = 512
    normalize: bool | None = None

    def __post_init__(self) -> None:
        self.at_least(1, "max_tokens")

    def contract(self) -> Contract:
        return Contract(needs={self.column}, adds={self.into: VECTOR})

    def setup(self, ctx: Context) -> None:
        self._model = StaticModel(self.model, self.max_tokens, self.normalize)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        at = present(texts)
        made, known = self._model([texts[row] for row in at])
        return batch.with_columns({self.into: vector_column(made[known], at[known], len(batch))})


class StaticModel:
    """A table, a weight for each token, and the tokenizer."""

    def __init__(self, model: str, max_tokens: int, normalize: bool | None) -> None:
        arrays = read_arrays(fetch(f"{model}:model.safetensors"))
        table = next((arrays[name] for name in _NAMES if name in arrays), None)
        path = fetch(f"{model}:tokenizer.json")
        told, config = _json(path), _json(fetch(f"{model}:config.json"))
        try:
            vocabulary = told["model"]["vocab"]
            words = [word if isinstance(word, str) else word[0] for word in vocabulary]
            unknown = told["model"].get("unk_token") or words[told["model"]["unk_id"]]
        except (KeyError, TypeError, IndexError):
            words, unknown = ["token"], None  # a tokenizer that knows every text
        self._tokenizer = open_tokenizer(str(path), 1)
        self._unknown = None if unknown is None else self._tokenizer.number_of(unknown)
        size = self._tokenizer.size
        mapping = arrays.get("mapping")
        rows = np.arange(size) if mapping is None else mapping.astype(np.int64)
        weights = arrays.get("weights", np.ones(size, np.float32))
        if table is None or table.ndim != 2 or len(rows) < size or len(weights) < size \
                or not 0 <= rows.min(initial=0) <= rows.max(initial=0) < len(table):
            has = ", ".join(f"{name} {values.shape}" for name, values in arrays.items())
            raise CuratorError(f"{model!r} is no table of embeddings for its tokenizer of {size:,} tokens: "
                               f"its model.safetensors has {has}")
        self._table, self._rows, self._weights = table, rows, weights
        self._tokens_max, self._chars_max = max_tokens, max_tokens * int(np.median([len(w) for w in words]))
        self._unit = normalize if normalize is not None else bool(config.get("normalize", True))

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """float32 [texts, width], and which of the texts have a token that is known."""
        tokens = [[token for token in found if token != self._unknown][:self._tokens_max]
                  for found in self._tokenizer.encode([text[:self._chars_max] for text in texts])]
        lengths = np.array([len(found) for found in tokens], np.int64)
        made = np.zeros((len(texts), self._table.shape[1]), np.float32)
        parts = (np.cumsum(lengths) - lengths) // _TOKENS_AT_ONCE
        for part in np.unique(parts):
            of = np.flatnonzero((parts == part) & (lengths > 0))
            if len(of):
                ids = np.concatenate([np.array(tokens[row], np.int64) for row in of])
                vectors = self._table[self._rows[ids]] * self._weights[ids, None]
                sums = np.add.reduceat(vectors, np.cumsum(lengths[of]) - lengths[of])
                made[of] = sums / lengths[of, None]
        return unit(made) if self._unit else made, lengths > 0


def _json(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CuratorError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(told, dict):
        raise CuratorError(f"{str(path)!r} is no object in JSON")
    return told
