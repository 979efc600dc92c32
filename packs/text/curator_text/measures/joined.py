"""Many documents laid end to end, so that one array operation serves them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import AnyStr, NamedTuple

import numpy as np

from curator_text.measures import characters as ch

GROUP_CHARS = 500_000  # below, the cost of numpy's calls shows; above, arrays leave the cache
_BEFORE, _AFTER = "\n\n", "\n\n\n"  # and one more each: looking at neighbours needs no bounds checks


class Ranges(NamedTuple):
    """Stretches of a text: int64 positions, ascending, from each start up to but not including its stop."""

    starts: np.ndarray
    stops: np.ndarray


@dataclass(frozen=True)
class Joined:
    """Documents laid end to end, a newline between two. Positions everywhere are characters of `text`."""

    text: str
    codes: np.ndarray  # code points: uint8 if all are ASCII, else uint32
    kinds: np.ndarray  # uint8, see characters
    starts: np.ndarray  # int64, of each document
    stops: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def lowered(self) -> bytes:
        """The text in small letters, one byte a character: "?" for what is not ASCII."""
        return self.text.encode("ascii", "replace").lower()

    def document(self, positions: np.ndarray) -> np.ndarray:
        """The number of the document that each position is in."""
        return np.searchsorted(self.starts, positions, "right") - 1

    def offsets(self, positions: np.ndarray) -> np.ndarray:
        """For ascending positions, where each document's begin: those in document d are `[d]` up to `[d +
        1]`."""
        return np.append(np.searchsorted(positions, self.starts), len(positions))


def groups(texts: Iterable[str | None]) -> Iterator[list[str]]:
    """The texts in groups of a size that suits the arrays; null is an empty text."""
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text or "")
        size += len(group[-1])
        if size >= GROUP_CHARS:
            yield group
            group, size = [], 0
    if group:
        yield group


def join(texts: list[str]) -> Joined:
    """Lay documents end to end and find each character's kind."""
    text = "\n".join((_BEFORE, *texts, _AFTER))
    if text.isascii():
        encoded = text.encode("ascii")
        codes = np.frombuffer(encoded, np.uint8)
        kinds = np.frombuffer(encoded.translate(ch.ascii_kinds()), np.uint8)
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        # no code is out of bounds; without checks it is twice as fast
        kinds = ch.kind_table().take(codes, mode="clip")
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    stops = np.cumsum(sizes + 1) + len(_BEFORE)
    return Joined(text, codes, kinds, stops - sizes, stops)


def places(text: AnyStr, phrase: AnyStr) -> list[int]:
    """Where a phrase begins in a text, each behind the end of the one before."""
    found, at = [], text.find(phrase)
    while at >= 0:
        found.append(at)
        at = text.find(phrase, at + len(phrase))
    return found


def sums_before(values: np.ndarray) -> np.ndarray:
    """The sum of the values before each one, and of all: int64, one more than values."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    return running
