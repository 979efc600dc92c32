"""Where punctuation divides a text into words: the rules, for all marks of many documents at once.

A mark is a character with a rule, or several full stops, hyphens or dashes in a row. A chunk is what white
space divides.

1. Opening marks at the beginning of a chunk and closing marks at its end, in any number, are words of their own:
   `("see` is `(`, `"`, `see`. Quotes, brackets, `, : < > ; * _ # &`, dashes and sentence ends are both; `=`,
   `%`, currencies and `+` open; the last three also close behind a digit.
2. A full stop at the end of a chunk, or before closing marks there, is a word of its own unless the word
   before it is a single letter (`e.g.`) or ends in one capital (`pH.`).
3. Several full stops, `…`, pictures and East Asian punctuation are words of their own wherever they stand.
4. Inside a chunk `, : < > = / ~`, hyphens and dashes (up to three) divide if they follow a letter or digit
   and a letter follows; a full stop between a small letter and a capital; `+ - * ^` between digits. Not in an
   address (`https://example.org/a-b`).
5. `'s 'd 'm 'll 're 've` and `n't` at the end of a word are words.

For English that is what spaCy's tokenizer does, which datatrove's filters use, so that they come to the same
verdicts: it divides 99.7% of the chunks of 1,200 pages of documentation alike. Known differences: spaCy's
lists of exceptions (`cannot`, `Inc.`, emoticons) and of units (`10kg`); in other languages its own rules for
them (German compounds with a hyphen stay whole).
"""

from __future__ import annotations

import re

import numpy as np

from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined, Ranges

_OPENING = ch.members(ch.COMMA, ch.DASH, ch.EQUALS, ch.COLON, ch.STAR, ch.LEAD, ch.APOSTROPHE, ch.QUOTE,
                      ch.PUNCT, ch.END, ch.WIDE, ch.WIDE_END)
_CLOSING = _OPENING & ~ch.members(ch.EQUALS, ch.LEAD)
_ANYWHERE = ch.members(ch.WIDE, ch.WIDE_END)
_INNER = ch.members(ch.COMMA, ch.COLON, ch.EQUALS, ch.SLASH, ch.HYPHEN, ch.DASH, ch.TILDE)
_INNER_SIZE_MAX = 3
_BETWEEN_DIGITS = ch.members(ch.PLUS, ch.HYPHEN, ch.STAR, ch.CARET)
_AFTER_DIGIT = ch.members(ch.PLUS, ch.LEAD)
_ALNUM = ch.ALPHA | ch.members(ch.DIGIT)
_SMALL = ch.ALPHA & ~ch.members(ch.UPPER)  # letters without case are both
_CAPITAL = ch.ALPHA & ~ch.members(ch.LOWER)
_BEFORE_STOP = _SMALL | _CLOSING | ch.members(ch.DIGIT, ch.MARK, ch.OTHER, ch.HYPHEN, ch.PLUS, ch.LEAD)
_BEFORE_SINGLE = ch.WHITE | _OPENING | ch.members(ch.DOT)
_SEVERAL = ch.members(ch.DOT, ch.HYPHEN, ch.DASH)


def find_marks(kinds: np.ndarray) -> Ranges:
    """Every mark that a rule names; full stops, hyphens and dashes in a row are one."""
    at = np.flatnonzero(kinds >= ch.DOT)
    kind = kinds[at]
    last = np.flatnonzero(~((at[1:] == at[:-1] + 1) & (kind[1:] == kind[:-1]) & _SEVERAL[kind[1:]]))
    if not len(at):
        return Ranges(at, at)
    return Ranges(at[np.append(0, last + 1)], at[np.append(last, len(at) - 1)] + 1)


def cut_at_marks(joined: Joined, marks: Ranges, chunks: Ranges, cut: np.ndarray) -> None:
    """Set `cut` (bool, a character each) where a word begins or ends because of a mark."""
    if not len(marks.starts):
        return
    kinds = joined.kinds
    kind, before, after = kinds[marks.starts], kinds[marks.starts - 1], kinds[marks.stops]
    size = marks.stops - marks.starts
    stops = kind == ch.DOT
    ellipsis = stops & (size > 1)
    after_digit = (before == ch.DIGIT) & _AFTER_DIGIT[kind]
    opening = _OPENING[kind] | ellipsis | ((kind == ch.PLUS) & (after != ch.DIGIT))
    closing = _CLOSING[kind] | ellipsis | after_digit | (stops & _closes(kinds, marks.starts, before))
    touching = marks.starts[1:] == marks.stops[:-1]
    outer = (_leading(opening, touching, before) | _trailing(closing, touching, after)
             | ellipsis | _ANYWHERE[kind])
    inner = marks.starts[~outer & _divides(kind, before, after, size)]
    dotted = marks.starts[stops & _ALNUM[before] & (after == ch.LOWER)]
    inner = inner[~_in_address(joined.text, inner, dotted, chunks)]
    cut[inner] = True
    cut[marks.stops[np.searchsorted(marks.starts, inner)]] = True
    outer = np.flatnonzero(outer)
    cut[marks.starts[outer]] = True
    cut[marks.stops[outer]] = True
    _cut_clitics(joined, marks.starts[(kind == ch.APOSTROPHE) & (before > ch.SPACE) & _ALNUM[after]], cut)


def _closes(kinds: np.ndarray, starts: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Which full stops, standing at the end of a chunk, are no part of the word before them."""
    earlier = kinds[starts - 2]
    single = ch.ALPHA[before] & _BEFORE_SINGLE[earlier]
    return ~single & (_BEFORE_STOP[before] | ((before == ch.UPPER) & _CAPITAL[earlier]))


def _leading(opening: np.ndarray, touching: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Which marks are opening and have only such marks between them and the beginning of their chunk."""
    fresh = np.append(True, ~(touching & opening[:-1]))
    return opening & (before[fresh] <= ch.SPACE)[np.cumsum(fresh) - 1]


def _trailing(closing: np.ndarray, touching: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Which marks are closing and have only such marks between them and the end of their chunk."""
    return _leading(closing[::-1], touching[::-1], after[::-1])[::-1]


def _divides(kind: np.ndarray, before: np.ndarray, after: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Which marks divide what stands on both sides of them."""
    named = _INNER[kind] & _ALNUM[before] & ch.ALPHA[after] & (size <= _INNER_SIZE_MAX)
    sentence = (kind == ch.DOT) & _SMALL[before] & _CAPITAL[after]
    operand = (after == ch.DIGIT) | (after == ch.HYPHEN)
    sums = _BETWEEN_DIGITS[kind] & (before == ch.DIGIT) & operand & (size == 1)
    return named | sentence | sums


# Scheme, user, host with a top-level domain of small letters, port, path. The bounds keep the time to match
# linear.
ADDRESS = re.compile(r"(?:[\w+.-]{2,99}://)?(?:[^\s/?#@]{1,99}@)?(?:[^\W_](?:[\w-]{0,62}[^\W_])?\.)+[a-z]{2,63}"
                     r"(?::\d{2,5})?(?:[/?#]\S*)?")
AROUND_ADDRESS = "…,:;!?¿¡()[]{}<>_#*&'\"”“`‘’„»«=."
ADDRESS_SIZE_MAX = 2000


def _in_address(text: str, inner: np.ndarray, dotted: np.ndarray, chunks: Ranges) -> np.ndarray:
    """Which of the inner marks are in an address. `dotted`: every `.` before a small letter; an address has
    one."""
    chunk = np.searchsorted(chunks.stops, inner, "right")
    known = np.zeros(len(chunks.stops), bool)
    known[np.searchsorted(chunks.stops, dotted, "right")] = True
    candidates = chunk[np.append(True, chunk[1:] != chunk[:-1])[: len(chunk)]]
    candidates = candidates[known[candidates]]
    starts, stops = chunks.starts[candidates].tolist(), chunks.stops[candidates].tolist()
    known[candidates] = [stop - start <= ADDRESS_SIZE_MAX
                         and ADDRESS.fullmatch(text[start:stop].strip(AROUND_ADDRESS)) is not None
                         for start, stop in zip(starts, stops, strict=True)]
    return known[chunk]


def _cut_clitics(joined: Joined, at: np.ndarray, cut: np.ndarray) -> None:
    """Cut before 's 'd 'm 'll 're 've and n't where the word ends behind them. `at`: apostrophes before a
    letter or digit."""
    codes, kinds = joined.codes, joined.kinds
    one, two = codes[at + 1] | 32, codes[at + 2] | 32  # small letters
    ends_at_one, ends_at_two = ~_ALNUM[kinds[at + 2]], ~_ALNUM[kinds[at + 3]]
    cut[at[ends_at_one & np.isin(one, _ONE)]] = True
    cut[at[ends_at_two & np.isin(one * np.uint32(256) + two, _TWO)]] = True
    negated = ends_at_one & (one == ord("t")) & ((codes[at - 1] | 32) == ord("n")) & _ALNUM[kinds[at - 2]]
    cut[at[negated] - 1] = True


_ONE = [ord(letter) for letter in "sdm"]
_TWO = [ord(a) * 256 + ord(b) for a, b in ("ll", "re", "ve")]
