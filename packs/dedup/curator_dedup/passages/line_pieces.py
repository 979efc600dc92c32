"""Lines, paragraphs and sentences as pieces that are compared and cut out: what both modes of `dedup.lines`
share."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import xxhash

from curator_dedup.passages.cut import Cutting, Found, Removal
from curator_dedup.passages.pieces import Hashed, Pieces, Texts, chunks, marked_before, translated
from curator_dedup.passages.sentences import folded, sentences_of
from curator_dedup.shared.arrays import mix

COUNTED = ("removed_lines", "removed_chars")
NEWLINE, RETURN, BLANK = b"\n\r "
_PLAIN = bytes(32 if byte in b" \t\n\r\v\f" else byte for byte in bytes(range(256)).lower())


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Which pieces are compared, and how: the parameters of `dedup.lines` that its parts share."""

    unit: Literal["line", "paragraph", "sentence"] = "line"
    span: int = 1
    normalize: bool = True
    min_chars: int = 20
    min_words: int = 0


class LineCutting(Cutting):
    """Cuts lines, given by their places. For stages with the fields of `Cutting` and `compared`."""

    compared: Compared
    counted = COUNTED

    def remove(self, texts: Texts, found: Found) -> Removal:
        measured = measure(texts, self.compared)
        pieces = measured.pieces
        cut = pieces.covered(found.cut, self.compared.span)
        if self.compared.span > 1:  # spans overlap: what stays for others is not cut into
            cut &= ~pieces.covered(found.kept, self.compared.span)
        stays = pieces.sums(measured.counts & ~cut)
        return Removal(pieces.removed(cut, len(texts.data)), pieces.sums(cut), stays == 0)


@dataclass(frozen=True)
class Measured:
    """Pieces, what is compared of each and those behind it (`data[low:high]`), its characters, and whether it
    counts at all."""

    pieces: Pieces
    data: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chars: np.ndarray
    counts: np.ndarray


def all_hashed(texts: Texts, compared: Compared) -> list[Hashed]:
    """`hashed` of some texts at a time; empty where there is no text."""
    return [hashed(texts.part(low, high), compared, low) for low, high in chunks(texts)]


def hashed(texts: Texts, compared: Compared, base: int = 0) -> Hashed:
    """The pieces that are compared, with their hashes. `base` is added to their rows."""
    measured = measure(texts, compared)
    pieces, which = measured.pieces, np.flatnonzero(measured.counts)
    data = measured.data.tobytes()
    spans = zip(measured.low[which].tolist(), measured.high[which].tolist(), strict=True)
    values = b"".join([xxhash.xxh3_128_digest(data[low:high]) for low, high in spans])
    both = np.frombuffer(values, dtype=np.uint64).reshape(-1, 2)
    row = pieces.row[which]
    return Hashed(row + base, which - pieces.first[row], mix(both[:, 0]),
                  (both[:, 1] >> np.uint64(32)).astype(np.uint32),
                  measured.chars[which].astype(np.uint32))


def measure(texts: Texts, compared: Compared) -> Measured:
    pieces, data, low, high = cut_up(texts, compared)
    last = np.arange(len(pieces.start)) + compared.span - 1
    whole = last < pieces.first[pieces.row + 1]  # the text has as many pieces from here on
    high = high[np.where(whole, last, np.arange(len(last)))]
    plain = Texts(data, np.array([0, len(data)]))
    inner, space = ~plain.begins, plain.space
    chars = high - low - (marked_before(inner, high) - marked_before(inner, low))
    # of words, one byte behind; a word that goes on behind the piece (its text ends there) is counted apart
    ends = ~space
    ends[:-1] &= space[1:]
    words = marked_before(ends, high) - marked_before(ends, low)
    words += (low < high) & ~space[high - 1] & ~ends[high - 1]
    return Measured(pieces, data, low, high, chars,
                    whole & (chars >= compared.min_chars) & (words >= max(1, compared.min_words)))


def cut_up(texts: Texts, compared: Compared) -> tuple[Pieces, np.ndarray, np.ndarray, np.ndarray]:
    """The pieces, the bytes that are compared, and where each piece begins and ends in them."""
    if compared.unit == "sentence":
        pieces = sentences_of(texts)
        return pieces, *(folded(texts, pieces) if compared.normalize
                         else (texts.data, pieces.start, pieces.end))
    lines = lines_of(texts)
    first, last = (np.arange(len(lines.start)),) * 2 if compared.unit == "line" else paragraphs(texts, lines)
    pieces = Pieces(lines.start[first], lines.end[last], np.searchsorted(lines.start[first], texts.starts))
    return pieces, *(normalized(texts, first, last) if compared.normalize
                     else (texts.data, pieces.start, pieces.end))


def lines_of(texts: Texts) -> Pieces:
    """The lines, without what ends them (a newline, with a carriage return before it or not)."""
    data, size = texts.data, len(texts.data)
    begins = np.zeros(size + 1, dtype=bool)
    begins[np.flatnonzero(data == NEWLINE) + 1] = True
    begins[texts.starts] = True
    start = np.flatnonzero(begins[:-1])
    stop = np.append(start, size)[1:]
    end = stop - (data[stop - 1] == NEWLINE)
    end -= (end < stop) & (end > start) & (data[end - 1] == RETURN)
    return Pieces(start, end, np.searchsorted(start, texts.starts))


def paragraphs(texts: Texts, lines: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last line of each run of lines that are not blank."""
    blanks = np.flatnonzero(texts.space)
    full = np.searchsorted(blanks, lines.end) - np.searchsorted(blanks, lines.start) < lines.end - lines.start
    first, last = full.copy(), full.copy()
    joined = full[1:] & full[:-1] & (lines.row[1:] == lines.row[:-1])
    first[1:] &= ~joined
    last[:-1] &= ~joined
    return np.flatnonzero(first), np.flatnonzero(last)


def normalized(texts: Texts, first: np.ndarray,
               last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `values.normalized` makes of runs of lines, given the first and last line of each: bytes, and
    where each begins and ends in them. White space is that of ASCII, and what NFKC makes of other."""
    if (texts.data >= 128).any():
        folded = [text if text.isascii() else _folded(text) for text in texts.array().to_pylist()]
        texts = Texts.of_array(pa.array(folded, pa.large_string()))
    # as many as before: no character that these forms change becomes or takes in a newline
    lines = lines_of(texts)
    data = translated(texts.data, _PLAIN)
    blank = data == BLANK
    double = np.zeros(len(data), dtype=bool)
    double[1:] = blank[1:] & blank[:-1]
    begins = texts.starts[:-1][np.diff(texts.starts) > 0]
    double[begins] = blank[begins]
    data = np.append(data[~double], np.uint8(BLANK))  # the last: never empty
    gone = np.flatnonzero(double)
    low, high = (at - np.searchsorted(gone, at) for at in (lines.start[first], lines.end[last]))
    # A blank that was kept for the white space before or after a piece is at most one byte on each side.
    low += (low < high) & (data[low] == BLANK)
    high -= (low < high) & (data[high - 1] == BLANK)
    return data, low, high


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
