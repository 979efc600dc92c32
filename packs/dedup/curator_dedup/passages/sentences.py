"""Sentences as pieces."""

from __future__ import annotations

import itertools
import re

import numpy as np

from curator_dedup.passages.pieces import Pieces, Texts
from curator_dedup.shared.values import normalized

# What ends a sentence: marks with white space behind them, and quotation marks or brackets between; the marks
# of East Asia (。！？), whatever follows; a line end.
_CLOSING = rb"(?:[\"')\]]|\xe2\x80[\x99\x9d]|\xc2\xbb)*"
_EAST_ASIAN = rb"(?:\xe3\x80\x82|\xef\xbc[\x81\x9f])+"
_ENDS = re.compile(rb"(?P<marks>[.!?]+" + _CLOSING + rb"(?=\s)|" + _EAST_ASIAN + rb")\s*|\s*\n\s*")


def sentences_of(texts: Texts) -> Pieces:
    """The sentences, without the white space between them. An abbreviation ends one, too: what matters is
    that equal text is cut equally."""
    data = texts.data.tobytes()
    starts: list[int] = []
    ends: list[int] = []
    first = [0]
    for low, high in itertools.pairwise(texts.starts.tolist()):
        at = low
        for found in _ENDS.finditer(data, low, high):
            end = found.end("marks") if found["marks"] else found.start()
            if end > at:  # not the white space that a text begins with
                starts.append(at)
                ends.append(end)
            at = found.end()
        if at < high:
            starts.append(at)
            ends.append(high)
        first.append(len(starts))
    return Pieces(*(np.array(places, np.int64) for places in (starts, ends, first)))


def folded(texts: Texts, pieces: Pieces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `values.normalized` makes of each piece: bytes, and where each begins and ends in them, a space
    between two."""
    data = texts.data.tobytes()
    spans = zip(pieces.start.tolist(), pieces.end.tolist(), strict=True)
    parts = [normalized(data[low:high].decode("utf-8", "replace")).encode() for low, high in spans]
    high = np.cumsum(np.array([len(part) for part in parts], np.int64) + 1) - 1
    low = np.append(0, high + 1)[: len(parts)]
    return np.frombuffer(b" ".join(parts) + b" ", np.uint8), low, high
