"""Counts of plain words (what white space divides) and of signs, as NeMo Curator and Dolma count them."""

from __future__ import annotations

import numpy as np

from curator_text.measures import characters as ch
from curator_text.measures.columns.group import INT, RATIO, Family, Group, Measured, share, table_of
from curator_text.measures.columns.standard import stop_words
from curator_text.measures.joined import sums_before
from curator_text.measures.spans import hash_text

_ENGLISH = table_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,.")
_BRACKETS = table_of("(){}[]⟨⟩")
_SYMBOL_WORDS = np.array([hash_text(word) for word in ("#", "...", "…", "[...]", "(...)", "[…]", "-»")],
                         np.uint64)
_SYMBOL_WORD_CHARS_MAX = 5


def _words(group: Group) -> Measured:
    counts, chars = group.counts, group.chars
    return {"plain_word_count": counts, "plain_mean_word_length": share(chars, counts)}


def _median(group: Group) -> Measured:
    """The middle word length, between the two middle ones where there is an even number."""
    of, counts = group.words.chunk_of, group.counts
    ordered = np.sort((group.corpus.document << 32) + group.sizes) & 0xFFFFFFFF  # within each document
    some = np.flatnonzero(counts > 0)
    low, high = of[some] + (counts[some] - 1) // 2, of[some] + counts[some] // 2
    median = np.zeros(len(counts))
    median[some] = (ordered[low] + ordered[high]) / 2
    return {"plain_median_word_length": median}


def _letters(group: Group) -> Measured:
    """Which words have a letter, and which have capitals and no small letter."""
    kinds, (starts, stops) = group.joined.kinds, group.words.chunks
    least = kinds[starts]  # letters come first among the kinds in a word: small ones, then capitals
    # of most words the first two characters decide
    least = np.where(stops - starts > 1, np.minimum(least, kinds[starts + 1]), least)
    mixed = np.flatnonzero((least != ch.LOWER) & (stops - starts > 2))
    if len(mixed):
        pairs = np.empty(2 * len(mixed), np.int64)
        pairs[0::2], pairs[1::2] = starts[mixed], stops[mixed]
        least[mixed] = np.minimum.reduceat(kinds, pairs)[0::2]
    of = group.words.chunk_of
    return {
        "plain_alphabetic_word_ratio": share(np.diff(sums_before(least <= ch.MAINLAND)[of]), group.counts),
        "plain_capital_word_ratio": share(np.diff(sums_before(least == ch.UPPER)[of]), group.counts),
    }


def _stop_words(group: Group) -> Measured:
    found = stop_words(group.hashes, group.words.chunk_of, group.languages)
    totals = [None if times is None else int(times.sum()) for times in found]
    return {
        "plain_stop_word_count": totals,
        "plain_stop_word_ratio": [None if total is None else total / max(count, 1)
                                  for total, count in zip(totals, group.counts.tolist(), strict=True)],
    }


def _symbols(group: Group) -> Measured:
    starts = group.words.chunks.starts
    short = np.flatnonzero((group.sizes <= _SYMBOL_WORD_CHARS_MAX)
                           & (group.joined.kinds[starts] >= ch.SYMBOL))
    short = short[np.isin(group.spans.hash(starts[short], group.words.chunks.stops[short]), _SYMBOL_WORDS)]
    return {"plain_symbol_word_ratio": share(group.starting_in(starts[short]), group.counts)}


def _english(group: Group) -> Measured:
    return {"english_char_ratio": share(group.count(group.members(_ENGLISH)), group.chars_all)}


def _brackets(group: Group) -> Measured:
    return {"bracket_ratio": share(group.count(group.members(_BRACKETS)), group.chars_all)}


FAMILIES = (
    Family(_words, {"plain_word_count": INT, "plain_mean_word_length": RATIO}),
    Family(_median, {"plain_median_word_length": RATIO}),
    Family(_letters, {"plain_alphabetic_word_ratio": RATIO, "plain_capital_word_ratio": RATIO}),
    Family(_stop_words, {"plain_stop_word_count": INT, "plain_stop_word_ratio": RATIO}),
    Family(_symbols, {"plain_symbol_word_ratio": RATIO}),
    Family(_english, {"english_char_ratio": RATIO}),
    Family(_brackets, {"bracket_ratio": RATIO}),
)
