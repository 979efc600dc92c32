"""Lines and paragraphs that occur again in a corpus, cut out."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import xxhash

from curator.errors import RecipeError
from curator.stage import Composite, Contract, Outputs, Stage, setting
from curator.stages.dedup.cut import Cut, Found, Removal
from curator.stages.dedup.pieces import (
    PIECES,
    Hashed,
    Pieces,
    Texts,
    check_text,
    chunks,
    marked_before,
    mixed,
    piece_outputs,
    translated,
)
from curator.stages.dedup.repeated import Repeated
from curator.tasks.batch import Batch

COUNTED = ("removed_lines", "removed_chars")
NEWLINE, RETURN, BLANK = b"\n\r "
_PLAIN = bytes(32 if byte in b" \t\n\r\v\f" else byte for byte in bytes(range(256)).lower())


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Which pieces are compared, and how: the parameters of `dedup.lines` that its parts share."""

    unit: Literal["line", "paragraph"] = "line"
    normalize: bool = True
    min_chars: int = 20
    min_words: int = 0


@dataclass(kw_only=True)
class DedupLines(Composite):
    """Cut out lines that stand elsewhere in the corpus: of equal ones the first `copies` stay, in order of id, source and place.

    `unit`: a `line`, or a `paragraph`: lines with blank ones around them. `normalize`: compare without regard to case, runs of
    white space and compatible Unicode forms (NFKC). Pieces with fewer than `min_chars` characters or `min_words` words (parts
    between white space) are left alone. `scope`: a column; only pieces of records with the same value there are compared.

    Records go on with what is left; `removed_lines` and `removed_chars` say what is gone. One that loses all its pieces but such
    short ones, and of which fewer than `min_left` characters are left, white space not counted, goes to `duplicate` as it was,
    with `duplicate_of`: the record where its longest cut piece is kept, `similarity`: the share of its characters that were
    cut. Memory and disk of `shards`, `memory_bytes`: see `Repeated`.

    Source: CCNet (Wenzek et al. 2020) drops every paragraph, which is a line there, whose normalized hash was seen before;
    C4 (Raffel et al. 2020) drops spans of three sentences; FineWeb (Penedo et al. 2024) tried dropping repeated lines, and
    those of 10 words or more only (`min_words: 10`). Known difference: digits and punctuation count here, unlike in CCNet, and
    `min_chars: 20`, our own choice, lets brackets, headings and list marks stand.
    """

    name = "dedup.lines"

    column: str = "text"
    unit: Literal["line", "paragraph"] = "line"
    copies: int = 1
    normalize: bool = True
    min_chars: int = 20
    min_words: int = 0
    min_left: int = 1
    scope: str | None = None
    shards: int = setting(default=16)
    memory_bytes: int = setting(default=1 << 30)

    def __post_init__(self) -> None:
        if self.unit not in ("line", "paragraph"):
            raise RecipeError(f"dedup.lines: unit must be line or paragraph, got {self.unit!r}")
        for field, least in (("copies", 1), ("min_chars", 1), ("min_words", 0), ("min_left", 1), ("shards", 1)):
            if getattr(self, field) < least:
                raise RecipeError(f"dedup.lines: {field} must be {least} or more, got {getattr(self, field)}")

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.scope} - {None},
                        adds={self.column: None, COUNTED[0]: pa.int32(), COUNTED[1]: pa.int64()})

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        compared = Compared(unit=self.unit, normalize=self.normalize, min_chars=self.min_chars, min_words=self.min_words)
        pieces = rows >> LinePieces(column=self.column, compared=compared, scope=self.scope, shards=self.shards)
        cuts = pieces >> Repeated(copies=self.copies, shards=self.shards, memory_bytes=self.memory_bytes)
        return (rows + cuts) >> CutLines(column=self.column, compared=compared, min_left=self.min_left, shards=self.shards)


@dataclass(kw_only=True)
class LinePieces(Stage):
    """The hashes of a record's lines, for `Repeated`."""

    column: str
    compared: Compared
    scope: str | None = None
    shards: int = 16

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.scope} - {None}, adds={f.name: f.type for f in list(PIECES)[2:]})

    def check(self, columns: dict[str, pa.DataType | None]) -> None:
        check_text(self.column, columns[self.column])

    def columns_after(self, columns: dict[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {name: columns[name] for name in ("id", "source") if name in columns} | dict(self.contract().adds)

    def process(self, batch: Batch) -> Outputs:
        texts = Texts.of(batch.rows.column(self.column))
        found = [hashed(texts.part(low, high), self.compared, low) for low, high in chunks(texts)]
        return piece_outputs(batch, texts, found, self.scope, self.shards)


@dataclass(kw_only=True)
class CutLines(Cut):
    """Records without the lines that stand elsewhere."""

    compared: Compared

    counted = COUNTED

    def remove(self, texts: Texts, found: Found) -> Removal:
        measured = measure(texts, self.compared)
        pieces = measured.pieces
        cut = np.zeros(len(pieces.start), dtype=bool)
        cut[pieces.first[found.cut[0]] + found.cut[1]] = True
        stays = pieces.sums(measured.counts & ~cut)
        return Removal(pieces.removed(cut, len(texts.data)), pieces.sums(cut), stays == 0)


# -- pieces -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Pieces, what is compared of each (`data[low:high]`), its characters, and whether it counts at all."""

    pieces: Pieces
    data: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chars: np.ndarray
    counts: np.ndarray


def hashed(texts: Texts, compared: Compared, base: int = 0) -> Hashed:
    """The pieces that are compared, with their hashes. `base` is added to their rows."""
    measured = measure(texts, compared)
    pieces, which = measured.pieces, np.flatnonzero(measured.counts)
    data = measured.data.tobytes()
    spans = zip(measured.low[which].tolist(), measured.high[which].tolist(), strict=True)
    values = b"".join([xxhash.xxh3_128_digest(data[low:high]) for low, high in spans])
    both = np.frombuffer(values, dtype=np.uint64).reshape(-1, 2)
    row = pieces.row[which]
    return Hashed(row + base, which - pieces.first[row], mixed(both[:, 0]), (both[:, 1] >> np.uint64(32)).astype(np.uint32),
                  measured.chars[which].astype(np.uint32))


def measure(texts: Texts, compared: Compared) -> Measured:
    lines = lines_of(texts)
    first, last = (np.arange(len(lines.start)),) * 2 if compared.unit == "line" else paragraphs(texts, lines)
    pieces = Pieces(lines.start[first], lines.end[last], np.searchsorted(lines.start[first], texts.starts))
    if compared.normalize:
        data, low, high = normalized(texts, first, last)
    else:
        data, low, high = texts.data, pieces.start, pieces.end
    plain = Texts(data, np.array([0, len(data)]))
    inner, space = ~plain.begins, plain.space
    chars = high - low - (marked_before(inner, high) - marked_before(inner, low))
    ends = ~space  # of words, one byte behind; a word that goes on behind the piece (its text ends there) is counted apart
    ends[:-1] &= space[1:]
    words = marked_before(ends, high) - marked_before(ends, low)
    words += (low < high) & ~space[high - 1] & ~ends[high - 1]
    return Measured(pieces, data, low, high, chars, (chars >= compared.min_chars) & (words >= max(1, compared.min_words)))


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


def normalized(texts: Texts, first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What `values.normalized` makes of runs of lines, given the first and last line of each: bytes, and where each begins and
    ends in them. White space is that of ASCII, and what NFKC makes of other."""
    if (texts.data >= 128).any():
        folded = [text if text.isascii() else _folded(text) for text in texts.array().to_pylist()]
        texts = Texts.of_array(pa.array(folded, pa.large_string()))
    lines = lines_of(texts)  # as many as before: no character that these forms change becomes or takes in a newline
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
