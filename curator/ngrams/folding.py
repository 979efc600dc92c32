"""Texts brought to one form, laid end to end: what is equal to a reader becomes equal bytes.

Each character is taken apart (NFKD), folded in case, and loses what decorates it: combining diacritics
(Combining Diacritical Marks and its supplements, Hebrew points, Arabic vowels), format characters and
variation selectors. What is no letter, digit or mark of a script is a space. Hangul and kana stay composed.
Every character is folded by itself, so a text is folded equally wherever it stands.

Scripts without spaces (Han, kana, Thai, Lao, Khmer, Myanmar, Tibetan) would need a dictionary. There a space
is put between two letters where a fixed hash of the pair says so, at a rate that gives words of the usual
length on average: 2 characters of Han and kana, 3.6 of the others.

Source: what datatrove's `simplify_text` and text-dedup do: lower case, marks away, white space as one,
diacritics away. Known differences: they keep ASCII symbols inside words or need a dictionary of the language;
datatrove also drops the vowel signs of Indic scripts and Thai, which tell words apart.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

SPACE, END = 32, 10  # in a folded text: between words; behind each text
# spaces before the first and behind the last text, so that looking at neighbours needs no bounds checks
PADDING = 8
_GAP, _LETTER, _HAN, _MAINLAND, _MARK = range(5)  # kinds of characters
# of 256 pairs of letters, how many have a boundary between them
_BOUNDARIES = np.array([0, 0, 128, 72, 0], np.uint32)
_HAN_CODES = ((0x3005, 0x3007), (0x3031, 0x312F), (0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF),
              (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF))
_MAINLAND_CODES = ((0x0E00, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF),
                   (0xAA60, 0xAA7F))
_DIACRITICS = ((0x0300, 0x036F), (0x0591, 0x05C7), (0x064B, 0x065F), (0x0670, 0x0670), (0x1AB0, 0x1AFF),
               (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE00, 0xFE2F), (0xE0100, 0xE01EF))
# letters as they are
_ALIKE = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x20000, 0x2F7FF), (0x30000, 0x3FFFF))
_OTHERS = ((0x80, 0x33FF), (0x4DC0, 0x4DFF), (0xA000, 0xABFF), (0xD7A4, 0xD7FF), (0xF900, 0x1FFFF),
           (0x2F800, 0x2FA1F), (0xE0000, 0xE01EF))  # the rest has no names
_SEVERAL = 0xFFFFFFFE  # in place of what a character becomes, where that is none or several
_COMPOSE = 0xFFFFFFFF  # in place of a character that may be a part of another
# What has to be put together first: jamo, kana and their voice marks, half-width forms of both. Few texts
# have any.
_APART = re.compile("[\u1100-\u11ff\u3099\u309a\uff66-\uffdc]")


@dataclass(frozen=True)
class Folded:
    """Texts laid end to end, words divided by one space or several. `codes`: code points, uint8 if all are
    ASCII, else uint32.

    Text d is what lies between `starts[d]` and `stops[d]`.
    """

    codes: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


def fold(texts: list[str], normalize: bool = True) -> Folded:
    """The texts as they are compared. Without `normalize` only white space and controls become spaces."""
    joined = "\n".join((" " * PADDING, *texts, " " * PADDING))
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    stops = np.cumsum(sizes + 1) + PADDING
    if joined.isascii():
        codes = np.frombuffer(joined.encode().translate(_ascii(normalize)), np.uint8)
        return Folded(codes, stops - sizes, stops)
    tables = _tables(normalize)
    codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
    # no code is out of bounds; without checks it is twice as fast
    folded = tables.single.take(codes, mode="clip")
    folded[PADDING] = folded[stops] = END
    greatest = int(folded.max())
    if greatest == _COMPOSE:
        composed = [unicodedata.normalize("NFKC", text) if _APART.search(text) else text for text in texts]
        if composed != texts:
            return fold(composed, normalize)
        np.copyto(folded, codes, where=folded == _COMPOSE)
        greatest = int(folded.max())
    if greatest == _SEVERAL:
        folded = tables.expanded(codes, folded)
    if greatest >= _MAINLAND_CODES[0][0]:
        folded = _cut_without_spaces(tables.kinds.take(folded, mode="clip"), folded)
    ends = np.flatnonzero(folded == END)
    return Folded(folded, ends[:-1] + 1, ends[1:])


def _cut_without_spaces(kinds: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """With a space at each boundary between letters of scripts without spaces, and between these and other
    letters."""
    at = np.flatnonzero((kinds[1:] >= _HAN) | (kinds[:-1] >= _HAN)) + 1
    before, kind = kinds[at - 1], kinds[at]
    mixed = (codes[at - 1] * np.uint32(0x9E3779B1) ^ codes[at]) * np.uint32(0x85EBCA6B)
    spaceless = (kind == _HAN) | (kind == _MAINLAND)
    cut = np.where(spaceless & (before >= _HAN), mixed >> np.uint32(24) < _BOUNDARIES[kind],
                   (spaceless & (before == _LETTER)) | ((kind == _LETTER) & (before != _MARK)))
    return np.insert(codes, at[cut], np.uint32(SPACE))


@dataclass(frozen=True)
class _Tables:
    """What becomes of each of the 1,114,112 code points."""

    single: np.ndarray  # uint32: its folded form, or _SEVERAL
    kinds: np.ndarray  # uint8, of folded code points
    special: np.ndarray  # the code points with _SEVERAL, ascending
    sizes: np.ndarray  # of each of them, how many code points it becomes
    firsts: np.ndarray  # and where they begin in `parts`
    parts: np.ndarray

    def expanded(self, codes: np.ndarray, folded: np.ndarray) -> np.ndarray:
        """With none or several code points in place of each _SEVERAL."""
        at = np.flatnonzero(folded == _SEVERAL)
        which = np.searchsorted(self.special, codes[at])
        sizes = self.sizes[which]
        counts = np.ones(len(codes), np.int64)
        counts[at] = sizes
        longer = np.repeat(folded, counts)
        # place within each one's parts
        inner = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        begins = at + np.cumsum(sizes - 1) - (sizes - 1)
        longer[np.repeat(begins, sizes) + inner] = self.parts[np.repeat(self.firsts[which], sizes) + inner]
        return longer


@lru_cache(maxsize=2)
def _ascii(normalize: bool) -> bytes:
    """The folded ASCII characters, as a table for `bytes.translate`."""
    kept = (lambda char: char.isalnum()) if normalize else (lambda char: char > " " and char != "\x7f")
    return bytes((ord(chr(code).lower()) if normalize else code) if code < 128 and kept(chr(code)) else SPACE
                 for code in range(256))


@lru_cache(maxsize=2)
def _tables(normalize: bool) -> _Tables:
    """Takes about 0.2 s, once a process, and only where a text is not ASCII."""
    single = np.full(0x110000, SPACE, np.uint32)
    single[:256] = np.frombuffer(_ascii(normalize), np.uint8)
    kinds = np.zeros(0x110000, np.uint8)
    several: dict[int, str] = {}
    for first, last in _ALIKE:
        single[first:last + 1] = np.arange(first, last + 1)
    for first, last in _OTHERS:
        for code in range(first, last + 1):
            becomes = _folded(chr(code)) if normalize else _plain(chr(code))
            if normalize and _APART.match(chr(code)):
                single[code], kinds[code] = _COMPOSE, _LETTER
            elif len(becomes) == 1:
                single[code] = ord(becomes)
            else:
                single[code], several[code] = _SEVERAL, becomes
    kinds[single[single < _SEVERAL]] = _LETTER
    for kind, ranges in ((_HAN, _HAN_CODES), (_MAINLAND, _MAINLAND_CODES)):
        for first, last in ranges:
            kinds[first:last + 1][kinds[first:last + 1] == _LETTER] = kind
    marks = [code for code in np.flatnonzero(kinds[:0x20000]).tolist()
             if unicodedata.category(chr(code))[0] == "M"]
    kinds[marks] = _MARK
    kinds[[SPACE, END]] = _GAP
    sizes = np.array([len(text) for text in several.values()], np.int64)
    parts = np.frombuffer("".join(several.values()).encode("utf-32-le"), np.uint32)
    return _Tables(single, kinds, np.array(list(several), np.int64), sizes, np.cumsum(sizes) - sizes, parts)


def _plain(char: str) -> str:
    return " " if char.isspace() or unicodedata.category(char) in ("Cc", "Cn", "Cs") else char


def _folded(char: str) -> str:
    """What a character becomes: nothing, one or several code points; a space for what is no letter, digit or
    mark."""
    if 0x3041 <= ord(char) <= 0x30FF:
        text = unicodedata.normalize("NFKC", char)
    else:
        text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
        if _APART.search(text) and not _APART.search(char):
            text = unicodedata.normalize("NFC", text)
    kept = "".join(one if unicodedata.category(one)[0] in "LMN" else " " for one in text
                   if unicodedata.category(one) != "Cf"
                   and not any(a <= ord(one) <= b for a, b in _DIACRITICS))
    return kept if kept.strip() or not kept else " "


def warm_up(normalize: bool = True) -> None:
    """Make the tables now, so that the first batch does not wait for them."""
    _tables(normalize)
