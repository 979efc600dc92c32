"""A group of documents that is measured at once, and what its columns are counted with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined, join, places, sums_before
from curator_text.measures.lines import Lines, find_lines
from curator_text.measures.repetition import Corpus
from curator_text.measures.spans import Spans
from curator_text.measures.words import Words, split

# of a longer text its beginning is measured: bounds the memory: 0.2 GB for prose, 0.8 GB at worst
MEASURED_CHARS_MAX = 4_000_000

INT, LONG, RATIO, BOOL = pa.int32(), pa.int64(), pa.float64(), pa.bool_()

Measured = Mapping[str, Any]  # by column: an array, or a list where there are nulls


@dataclass(frozen=True)
class Family:
    """Columns that are found together: asking for one costs what all of them cost."""

    measure: Callable[[Group], Measured]
    columns: Mapping[str, pa.DataType]


class Reading:
    """A text and its plain words: what white space divides."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined

    @cached_property
    def words(self) -> Words:
        return split(self.joined)

    @cached_property
    def spans(self) -> Spans:
        return Spans(self.joined.codes)

    @cached_property
    def counts(self) -> np.ndarray:
        """How many plain words each document has."""
        return np.diff(self.words.chunk_of)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The characters of each plain word."""
        return self.words.chunks.stops - self.words.chunks.starts

    @cached_property
    def hashes(self) -> np.ndarray:
        return self.spans.hash(*self.words.chunks)

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus.of_words(self.sizes, self.words.chunk_of)

    @cached_property
    def chars(self) -> np.ndarray:
        """The characters of each document that are in words."""
        return np.diff(self.corpus.chars_before[self.words.chunk_of])


class Group(Reading):
    """Texts end to end. What several families need is found once, when the first asks for it."""

    def __init__(self, texts: list[str], languages: Sequence[str | None], chars_max: int) -> None:
        super().__init__(join([text[:chars_max] for text in texts]))
        self.texts, self.languages = texts, languages

    @cached_property
    def lines(self) -> Lines:
        return find_lines(self.joined, self.words)

    @cached_property
    def chars_all(self) -> np.ndarray:
        """The characters of each document, white space included."""
        return self.joined.stops - self.joined.starts

    @cached_property
    def tokens(self) -> np.ndarray:
        """How many words and marks each document has."""
        return np.diff(self.words.of)

    @cached_property
    def token_hashes(self) -> np.ndarray:
        return self.spans.hash(self.words.starts, self.words.stops)

    @cached_property
    def small(self) -> str:
        """The text in small letters, character by character."""
        if self.joined.codes.dtype == np.uint8:
            return self.joined.text.lower()
        codes = small_letters().take(self.joined.codes)
        return codes.tobytes().decode("utf-32-le", "surrogatepass")

    def places(self, *phrases: bytes | str) -> np.ndarray:
        """Where phrases in small letters are in the text; those in bytes are of ASCII, and found faster."""
        lowered = self.joined.lowered
        found = [places(lowered, phrase) if isinstance(phrase, bytes) else places(self.small, phrase)
                 for phrase in phrases]
        return np.array([at for some in found for at in some], np.int64)

    @cached_property
    def folded(self) -> Reading:
        """The text in small letters and without the punctuation marks of ASCII."""
        joined = self.joined
        kept = ~PUNCTUATION.take(joined.codes, mode="clip")
        codes = small_letters().take(joined.codes[kept]).astype(joined.codes.dtype)
        before = sums_before(kept)
        return Reading(Joined("", codes, joined.kinds[kept], before[joined.starts], before[joined.stops]))

    @cached_property
    def slices(self) -> list[slice]:
        starts, stops = self.joined.starts.tolist(), self.joined.stops.tolist()
        return [slice(*span) for span in zip(starts, stops, strict=True)]

    def count(self, which: np.ndarray) -> np.ndarray:
        """For each document, how many of its characters are among `which` (bool, one a character)."""
        return np.array([np.count_nonzero(which[span]) for span in self.slices])

    def members(self, table: np.ndarray) -> np.ndarray:
        """Which characters are in a table of `table_of`."""
        return table.take(self.joined.codes, mode="clip")

    def starting_in(self, positions: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """For each document, how many of these positions, or how much weight, lies in it."""
        return np.bincount(self.joined.document(positions), weights, len(self.texts))


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def table_of(chars: str) -> np.ndarray:
    """Whether a code point is one of these characters, up to one beyond the last of them: look up by
    `take(…, mode="clip")`."""
    table = np.zeros(max(map(ord, chars)) + 2, bool)
    table[[ord(char) for char in chars]] = True
    return table


PUNCTUATION = table_of("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


@lru_cache(maxsize=1)
def small_letters() -> np.ndarray:
    """The small letter of each code point below 0x20000, where it is one character; else and above itself."""
    table = np.arange(0x110000, dtype=np.uint32)
    upper = np.flatnonzero(np.isin(ch.kind_table()[:0x20000], (ch.UPPER, ch.LETTER, ch.OTHER, ch.WIDE)))
    for code in upper.tolist():
        small = chr(code).lower()
        if len(small) == 1:
            table[code] = ord(small)
    return table
