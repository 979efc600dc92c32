"""Texts as hashed n-grams of words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from curator.ngrams.hashing import groups, mixed, word_grams
from curator_text.models.train.rows import Sparse


def hashed_ngrams(texts: Sequence[str], ngrams: int, bits: int, max_chars: int | None) -> Sparse:
    """A row a text, at length 1: of each n-gram of 1 to `ngrams` words 1 + log(how often it is there), in one
    of 2^`bits` columns. Words are compared without case, punctuation and diacritics (see
    `curator.ngrams.folding`)."""
    short = [text[:max_chars] for text in texts]
    found = [np.zeros(0, np.uint64)]
    for rows in groups(short):
        some = [short[row] for row in rows]
        for n in range(1, ngrams + 1):
            grams = word_grams(some, n)
            of = np.repeat(np.array(rows, np.uint64), np.diff(grams.of))
            places = mixed(grams.hashes + np.uint64(n)) >> np.uint64(64 - bits)
            found.append(of << np.uint64(bits) | places)
    keys, counts = np.unique(np.concatenate(found), return_counts=True)
    of = (keys >> np.uint64(bits)).astype(np.int64)
    values = 1 + np.log(counts)
    lengths = np.sqrt(np.bincount(of, values * values, minlength=len(texts)))
    ends = np.searchsorted(of, np.arange(len(texts) + 1))
    return Sparse((keys & np.uint64(2**bits - 1)).astype(np.uint32),
                  (values / lengths[of]).astype(np.float32), ends, 2**bits)
