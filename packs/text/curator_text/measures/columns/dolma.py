"""Lines and repetition as Dolma counts them (`dolma/taggers/gopher.py`): a repeated line or n-gram counts
each time, the first one too. And whatever stands several times in a row, after its tokenizer_repetitions."""

from __future__ import annotations

import numpy as np

from curator_text.measures.columns.group import INT, RATIO, Family, Group, Measured, share, table_of
from curator_text.measures.repetition import DUPLICATE, TOP, Corpus, Repeated, repeated_grams, top_characters
from curator_text.measures.spans import equal_groups

_BULLETS = table_of("*-")
_SYMBOLS = table_of("#…")
PERIODS = range(1, 14)  # Source: MIN_PERIOD and MAX_PERIOD of dolma/taggers/repetitions
TIMES_MIN = 3


def _lines(group: Group) -> Measured:
    lines, codes = group.lines, group.joined.codes
    sizes = lines.stops - lines.starts
    order, begins = equal_groups(group.spans.hash(lines.starts, lines.stops), lines.of)
    several = np.zeros(len(lines), bool)
    several[order] = ~(begins & np.append(begins[1:], True))
    count = np.diff(lines.of)
    starts_with = _BULLETS.take(codes[lines.starts], mode="clip") & (sizes > 0)
    ends_with = (codes[lines.stops - 1] == ord("…")) & (sizes > 0)
    return {
        "dolma_bullet_line_ratio": share(lines.sum(starts_with), count),
        "dolma_ellipsis_line_ratio": share(lines.sum(ends_with), count),
        "dolma_duplicate_line_ratio": share(lines.sum(several), count),
        "dolma_duplicate_line_char_ratio": share(lines.sum(sizes * several), group.chars),
    }


def _symbols(group: Group) -> Measured:
    chunk = np.searchsorted(group.words.chunks.starts, np.flatnonzero(group.members(_SYMBOLS)), "right") - 1
    having = group.words.chunks.starts[np.unique(chunk)]
    return {"dolma_symbol_word_ratio": share(group.starting_in(having), group.counts)}


def _repetition(group: Group) -> Measured:
    corpus, found = group.corpus, {}
    for n, repeated in repeated_grams(group.hashes, corpus):
        found[_GRAMS[n]] = (share(top_characters(repeated, n, corpus), group.chars) if n in TOP
                            else share(_several(repeated, n, corpus), _all(n, corpus)))
    return found


def _several(repeated: Repeated, n: int, corpus: Corpus) -> np.ndarray:
    """Characters of all n-grams that occur more than once, a word counting in each n-gram that it is in."""
    return np.bincount(corpus.document[repeated.at], corpus.chars(repeated.at, n), len(corpus.of) - 1)


def _all(n: int, corpus: Corpus) -> np.ndarray:
    """The same of all n-grams."""
    at = np.arange(max(0, len(corpus.document) - n + 1))
    at = at[corpus.document[at] == corpus.document[at + n - 1]]
    return np.bincount(corpus.document[at], corpus.chars(at, n), len(corpus.of) - 1)


def _in_a_row(group: Group) -> Measured:
    """Up to 13 words and marks that follow themselves at once, at least three times in all."""
    words, hashes = group.words, group.token_hashes
    document = np.repeat(np.arange(len(group.texts)), group.tokens)
    line = np.repeat(np.arange(len(group.lines)), np.diff(group.lines.word))
    most = np.where(group.tokens > 0, 1, 0)
    edges = np.zeros(len(hashes) + 1, np.int64)  # where stretches begin (+) and end (-)
    for period in PERIODS:
        same = hashes[period:] == hashes[:-period]
        at = np.flatnonzero(same & (document[period:] == document[:-period]))
        first, last = _runs(at)
        np.maximum.at(most, document[first], (last - first + 1) // period + 1)
        first, last = _runs(at[line[at + period] == line[at]])
        long = (last - first + 1) // period + 1 >= TIMES_MIN
        np.add.at(edges, first[long], 1)
        np.add.at(edges, last[long] + period + 1, -1)
    inside = np.cumsum(edges[:-1]) > 0
    chars = np.bincount(document, (words.stops - words.starts) * inside, len(group.texts))
    return {"in_a_row_max": most, "in_a_row_char_ratio": share(chars, group.chars)}


def _runs(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last of each run of neighbouring numbers."""
    apart = np.flatnonzero(np.diff(at) != 1)
    return at[np.append(0, apart + 1)[: len(at)]], at[np.append(apart, len(at) - 1)[: len(at)]]


_GRAMS = {n: f"dolma_{'top' if n in TOP else 'duplicate'}_{n}_gram_char_ratio" for n in (*TOP, *DUPLICATE)}
FAMILIES = (
    Family(_lines, dict.fromkeys(("dolma_bullet_line_ratio", "dolma_ellipsis_line_ratio",
                                  "dolma_duplicate_line_ratio", "dolma_duplicate_line_char_ratio"), RATIO)),
    Family(_symbols, {"dolma_symbol_word_ratio": RATIO}),
    Family(_repetition, dict.fromkeys(_GRAMS.values(), RATIO)),
    Family(_in_a_row, {"in_a_row_max": INT, "in_a_row_char_ratio": RATIO}),
)
