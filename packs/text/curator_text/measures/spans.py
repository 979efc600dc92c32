"""Hashes of spans of text (words, lines, paragraphs): equal text, equal hash."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

KEY_BITS = 48  # of a hash, enough to sort by: that two spans of a group of documents share them is unlikely
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
_INVERSE = pow(_BASE, -1, 1 << 64)
_PIECE_BITS = 16
_PIECE = 1 << _PIECE_BITS  # characters summed at once, so that the sums fit the cache


class Spans:
    """Hashes any span of a text at the same cost, whatever its length.

    A hash is the polynomial of the code points in a fixed base modulo 2^64, found from sums over all
    characters before either end (8 bytes a character). An empty span has the hash 0. That two spans of real
    text differ and have one hash is very unlikely; it is no protection against text made to collide.
    """

    def __init__(self, codes: np.ndarray) -> None:
        up, _ = _powers()
        self._sums = np.zeros(len(codes) + 1, np.uint64)
        carry = np.uint64(0)
        for first in range(0, len(codes), _PIECE):
            piece = codes[first : first + _PIECE]
            sums = self._sums[first + 1 : first + 1 + len(piece)]
            np.multiply(piece, up[: len(piece)], out=sums)
            np.cumsum(sums, out=sums)
            if first:
                sums *= np.uint64(pow(_BASE, first, 1 << 64))
                sums += carry
            carry = sums[-1]
        self._back = np.array([pow(_INVERSE, at, 1 << 64) for at in range(0, len(codes) + 1, _PIECE)],
                              np.uint64)

    def hash(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """The hash of each span, uint64."""
        _, down = _powers()
        hashes = self._sums[stops]
        hashes -= self._sums[starts]
        hashes *= down[starts & (_PIECE - 1)]
        hashes *= self._back[starts >> _PIECE_BITS]
        return hashes


@lru_cache(maxsize=1)
def _powers() -> tuple[np.ndarray, np.ndarray]:
    """The powers of the base and of its inverse for one piece."""
    up, down = np.full(_PIECE, _BASE, np.uint64), np.full(_PIECE, _INVERSE, np.uint64)
    up[0] = down[0] = 1
    return np.cumprod(up), np.cumprod(down)


def hash_text(text: str) -> int:
    """The hash of a whole text."""
    return sum(ord(char) * pow(_BASE, place, 1 << 64) for place, char in enumerate(text)) % (1 << 64)


def order_of(keys: np.ndarray, bits: int) -> np.ndarray:
    """What sorts unsigned or positive keys by their lowest bits, equal ones in order.

    16 bits at a time: of these numpy counts instead of comparing, which is several times as fast.
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    for shift in range(16, bits, 16):
        digits = (keys >> keys.dtype.type(shift)).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


def equal_groups(hashes: np.ndarray, of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The spans in an order that brings those together that are equal in their document, and which of them,
    in that order, is the first of its group (bool). Those of document d are `of[d]:of[d + 1]`, before and
    after."""
    document = np.repeat(np.arange(len(of) - 1, dtype=np.uint64), np.diff(of))
    keys = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    keys >>= np.uint64(64 - KEY_BITS)
    order = order_of(keys, KEY_BITS)
    order = order[order_of(document[order], max(1, len(of)).bit_length())]
    begins = np.ones(len(order), bool)
    begins[1:] = (keys[order[1:]] != keys[order[:-1]]) | (document[order[1:]] != document[order[:-1]])
    return order, begins


def later_equal(hashes: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Which spans are equal to an earlier one of their document. Those of document d are `of[d]:of[d +
    1]`."""
    document = np.repeat(np.arange(len(of) - 1, dtype=np.uint64), np.diff(of))
    keys = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    keys += document * np.uint64(0x94D049BB133111EB)
    order = order_of(keys, KEY_BITS)
    ordered = keys[order]
    later = np.zeros(len(keys), bool)
    later[order[1:][ordered[1:] == ordered[:-1]]] = True
    return later
