"""The hashes of KenLM's files, for many words at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_M, _R = np.uint64(0xC6A4A7935BD1E995), np.uint64(47)
_KEY, _WORD = np.uint64(8978948897894561157), np.uint64(17894857484156487943)


def word_hashes(words: Sequence[bytes]) -> np.ndarray:
    """MurmurHash64A with the seed 0 of each word, uint64. Source: Appleby's MurmurHash2.cpp."""
    lengths = np.array([len(word) for word in words], np.int64)
    blocks = -(-lengths // 8)
    starts = np.cumsum(blocks) - blocks
    padded = b"".join(word + b"\0" * (-len(word) % 8) for word in words)
    parts = np.frombuffer(padded, "<u8").astype(np.uint64)
    found = lengths.astype(np.uint64) * _M
    for at in range(int((lengths // 8).max(initial=0))):
        there = np.flatnonzero(lengths // 8 > at)
        part = parts[starts[there] + at] * _M
        found[there] = (found[there] ^ ((part ^ (part >> _R)) * _M)) * _M
    rest = np.flatnonzero(lengths % 8)
    found[rest] = (found[rest] ^ parts[starts[rest] + lengths[rest] // 8]) * _M
    found = (found ^ (found >> _R)) * _M
    return found ^ (found >> _R)


def longer_keys(keys: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The keys of n-grams that begin a word earlier, uint64. The key of a word alone is its number; an n-gram
    is read from its last word to its first."""
    return (keys * _KEY) ^ ((words.astype(np.uint64) + np.uint64(1)) * _WORD)
