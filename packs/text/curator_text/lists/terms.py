"""Words and phrases of lists, found in many texts at once by their hashes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined
from curator_text.measures.spans import Spans, hash_text

_IN_WORDS = ch.ALPHA | ch.members(ch.DIGIT, ch.MARK, ch.OTHER)
_NONE = np.zeros(0, np.int64)


class _Hashes:
    """Terms by their hash."""

    def __init__(self, terms: Sequence[str], numbers: Sequence[int]) -> None:
        hashes = np.array([hash_text(term) for term in terms], np.uint64)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._numbers = hashes[order], np.array(numbers, np.int64)[order]
        self._likely = np.zeros(1 << 16, bool)  # by the lowest bits: few other words pass
        self._likely[hashes.astype(np.uint16)] = True

    def find(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these are hashes of terms, and of which."""
        at = np.flatnonzero(self._likely[hashes.astype(np.uint16)])
        which = np.searchsorted(self._hashes, hashes[at])
        which[which == len(self._hashes)] = 0
        same = self._hashes[which] == hashes[at] if len(at) else np.zeros(0, bool)
        return at[same], self._numbers[which[same]]


class Terms:
    """A list of words and phrases. They are found as they are written: where case is to make no difference,
    give these and the texts in lower case.

    Each method gives the places of what it found and the numbers of the terms, in order of places.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = list(terms)
        single: dict[str, int] = {}
        self._phrases: dict[str, list[int]] = {}  # by their first word
        self._odd: list[int] = []  # those that do not begin with a letter or digit
        for number, term in enumerate(self.terms):
            first = term[: next((i for i, char in enumerate(term) if not _in_word(char)), len(term))]
            if first == term:
                single[term] = number
            elif first:
                self._phrases.setdefault(first, []).append(number)
            else:
                self._odd.append(number)
        self._single = _Hashes(list(single), list(single.values()))
        self._first = _Hashes(list(self._phrases), [numbers[0] for numbers in self._phrases.values()])
        self._first_word = {numbers[0]: first for first, numbers in self._phrases.items()}
        by_length: dict[int, list[int]] = {}
        for number, term in enumerate(self.terms):
            by_length.setdefault(len(term), []).append(number)
        self._anywhere = {length: _Hashes([self.terms[n] for n in numbers], numbers)
                          for length, numbers in by_length.items()}
        self._begins = np.zeros(1 << 16, bool)  # by the lowest bits of their first character
        self._begins[[ord(term[0]) & 0xFFFF for term in self.terms]] = True

    def __len__(self) -> int:
        return len(self.terms)

    def as_words(self, joined: Joined, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
        """Terms that neither begin nor end inside a word, a run of letters, digits, marks and underscores."""
        if not self.terms:
            return _NONE, _NONE
        starts, stops = words(joined)
        hashes = spans.hash(starts, stops)
        at, numbers = self._single.find(hashes)
        found, places = [numbers], [starts[at]]
        at, numbers = self._first.find(hashes)
        longer = [(start, number) for start, key in zip(starts[at].tolist(), numbers.tolist(), strict=True)
                  for number in self._phrases[self._first_word[key]] if self._stands(joined, start, number)]
        longer += [(at, number) for number in self._odd for at in _places(joined.text, self.terms[number])
                   if self._stands(joined, at, number)]
        places.append(np.array([place for place, _ in longer], np.int64))
        found.append(np.array([number for _, number in longer], np.int64))
        return _in_order(places, found)

    def _stands(self, joined: Joined, at: int, number: int) -> bool:
        term = self.terms[number]
        ends = at + len(term)
        return joined.text.startswith(term, at) and not (_in_word(term[-1]) and _in_word(joined.text[ends]))

    def anywhere(self, joined: Joined, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
        """Terms wherever they stand, inside of words also."""
        candidates = np.flatnonzero(self._begins[joined.codes.astype(np.uint16)])
        places, found = [_NONE], [_NONE]
        for length, table in self._anywhere.items():
            starts = candidates[: np.searchsorted(candidates, len(joined.codes) - length, "right")]
            at, numbers = table.find(spans.hash(starts, starts + length))
            places.append(starts[at])
            found.append(numbers)
        return _in_order(places, found)


def words(joined: Joined) -> tuple[np.ndarray, np.ndarray]:
    """Where the runs of letters, digits, marks and underscores begin and end."""
    inside = _IN_WORDS[joined.kinds] | (joined.codes == ord("_"))
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    return edges[0::2], edges[1::2]


def _in_word(char: str) -> bool:
    return char == "_" or bool(_IN_WORDS[ch.kind_table()[ord(char)]])


def _places(text: str, term: str) -> list[int]:
    found, at = [], text.find(term)
    while at >= 0:
        found.append(at)
        at = text.find(term, at + 1)
    return found


def _in_order(places: list[np.ndarray], found: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    place, number = np.concatenate(places), np.concatenate(found)
    order = np.argsort(place, kind="stable")
    return place[order], number[order]
