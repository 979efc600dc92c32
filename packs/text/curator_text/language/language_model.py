"""py3langid's model, asked about many texts at once.

The library walks a text byte by byte in Python. Here many stretches of text are walked side by side in numpy:
the automaton forgets what is further back than its longest n-gram, so that a stretch may begin anywhere if it
begins a few bytes early. The answers are the library's own; it takes about a fourth of the time.

Source: Lui and Baldwin 2012, https://aclanthology.org/P12-3005/; https://github.com/adbar/py3langid.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

UNDETERMINED = "und"  # ISO 639-2: no language can be told
CHUNK_BYTES = 1 << 17  # of text a step: what belongs to it stays in the cache
CHUNK_TEXTS = 4096
_STRETCH_BYTES = 128
_LEAD_BYTES = 8  # the model's longest n-gram has 6
_RESET = 0xFF  # in no UTF-8, so it leads from every state to the first


class LanguageModel:
    """The model that comes with py3langid. `merge`: other names for its labels; those that share one are
    added up."""

    def __init__(self, merge: dict[str, str] | None = None) -> None:
        self._weights, self._prior, labels, self._moves, self._rows, self._outputs = _load()
        named = [(merge or {}).get(label, label) for label in labels]
        self.codes = list(dict.fromkeys(named))
        self._columns = [[i for i, name in enumerate(named) if name == code] for code in self.codes]

    def identify(self, texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
        """The most probable language of each text and its probability; `und` and 0 where there is nothing to
        go by."""
        found: list[str] = []
        scores = [np.zeros(0, np.float32)]
        for chunk in _chunks([_encode(text) for text in texts]):
            likely = self._probabilities(chunk)
            best = likely.argmax(axis=1)
            score = likely[np.arange(len(chunk)), best]
            found += [self.codes[b] if s > 0 else UNDETERMINED for b, s in zip(best, score, strict=True)]
            scores.append(score)
        return found, np.concatenate(scores)

    def _probabilities(self, texts: list[bytes]) -> np.ndarray:
        """Texts by codes; all 0 for a text without any n-gram of the model."""
        likely = np.zeros((len(texts), len(self._prior)), np.float32)
        for at, (ngrams, counts) in enumerate(self._ngrams(texts)):
            if len(ngrams):
                score = np.log1p(counts.astype(np.float32)) @ self._weights[ngrams] + self._prior
                # the library's way to stay calibrated at any length
                score /= np.sqrt(np.float32(len(texts[at])))
                score = np.exp(score - score.max())
                likely[at] = score / score.sum()
        merged = likely[:, [columns[0] for columns in self._columns]]
        for code, columns in enumerate(self._columns):
            for column in columns[1:]:
                merged[:, code] += likely[:, column]
        return merged

    def _ngrams(self, texts: list[bytes]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each text the different n-grams of the model in it, and how often each occurs."""
        ends = np.cumsum([len(text) + 1 for text in texts])
        found = self._outputs.take(self._walk(bytes([_RESET]).join([*texts, b""])))
        owner = np.repeat(np.arange(len(texts), dtype=np.int32), np.diff(ends, prepend=0))
        size = np.int32(len(self._weights))
        keys = (owner * size + found)[found >= 0]
        keys.sort()
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.diff(first, append=len(keys))
        owner, ngrams = np.divmod(keys[first], size)
        cuts = np.searchsorted(owner, np.arange(len(texts) + 1))
        for start, stop in pairwise(cuts):
            yield ngrams[start:stop], counts[start:stop]

    def _walk(self, data: bytes) -> np.ndarray:
        """The automaton's state after each byte."""
        count = -(-len(data) // _STRETCH_BYTES)
        grid = np.full((count, _STRETCH_BYTES), _RESET, np.uint8)
        grid.reshape(-1)[:len(data)] = np.frombuffer(data, np.uint8)
        columns = np.ascontiguousarray(grid.T).astype(np.int64)
        state = np.zeros(count, np.int64)
        for column in columns[-_LEAD_BYTES:]:  # the last bytes of the stretch before
            state = self._moves.take(self._rows.take(state) + np.concatenate(([_RESET], column[:-1])))
        states = np.empty(columns.shape, np.int32)
        for at, column in enumerate(columns):
            state = self._moves.take(self._rows.take(state) + column)
            states[at] = state
        return states.T.reshape(-1)[:len(data)]


@lru_cache(maxsize=1)
def _load() -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray, np.ndarray, np.ndarray]:
    """Weights of n-grams by labels, prior, labels (a language in two scripts has two), automaton. Takes 0.7
    s, 130 MB.

    The automaton's next state is `moves[rows[state] + byte]`; `outputs` is the n-gram that ends in a state,
    or -1.
    """
    from py3langid.langid import MODEL_DIR, MODEL_FILE
    from py3langid.modelio import load_model

    weights, prior, labels, moves, rows, outputs = load_model(MODEL_DIR / MODEL_FILE)
    moves, rows = np.asarray(moves), np.asarray(rows, np.int64) << 8
    if moves[rows + _RESET].any():
        raise RuntimeError("this release of py3langid has another kind of model; install py3langid 0.4")
    return np.asarray(weights, np.float32), np.asarray(prior, np.float32), labels, moves, rows, \
        np.asarray(outputs, np.int32)


def _encode(text: str) -> bytes:
    if text.isupper():  # the model has seen little of these
        text = text.lower()
    return unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")


def _chunks(texts: list[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= CHUNK_BYTES or len(chunk) == CHUNK_TEXTS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
