"""Passages that occur again in a corpus, cut out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import xxhash

from curator.api.errors import RecipeError
from curator.api.stage import Composite, Contract, Outputs, setting
from curator_dedup.passages.cut import Cut, Found, Removal
from curator_dedup.passages.pieces import Hashed, HashPieces, Pieces, Texts, chunks, piece_outputs
from curator_dedup.passages.repeated import Repeated
from curator_dedup.shared.arrays import mix, ranges

COUNTED = ("removed_spans", "removed_span_chars")
FACTORS = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)  # odd, so that each has an inverse modulo 2^64
LONG = 64  # bytes of a token that are hashed eight at a time
# a random number for each byte, and each small number
_BYTES = mix(np.arange(1, 257, dtype=np.uint64) * np.uint64(FACTORS[0]))
# keeps so many bytes of eight
_FIRST = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)
Tokens = Literal["words", "chars", "bytes"]


@dataclass(kw_only=True)
class DedupSubstring(Composite):
    """Cut out passages of `tokens` tokens or more that stand elsewhere in the corpus, or earlier in the
    record itself.

    `unit`: what a token is: `words` (between white space), `chars` (code points) or `bytes` (a character is
    never cut in two). Of equal passages the first `copies` stay whole, in order of id, source and place.
    `scope`: a column; only records with the same value there are compared.

    `action: cut`: records go on with what is left; `removed_spans` and `removed_span_chars` say what is gone.
    One that holds nothing that others lose in its favour, and of which fewer than `min_left` characters are
    left, white space not counted, goes to `duplicate` as it was. `action: drop`: no text is changed; a record
    goes to `duplicate` when passages that stand elsewhere make up `min_share` of its characters or more.
    (What they name as original may then be dropped itself.) There, `duplicate_of` is the record where its
    first such passage is kept, `similarity` the share of such passages.

    Source: Lee et al. 2022, "Deduplicating Training Data Makes Language Models Better", section 4.1: spans of
    50 BPE tokens or more that a suffix array finds twice. Known difference: every window of `tokens` tokens
    is hashed and the hashes are sorted, which finds the same spans (a repeated span is a run of windows that
    each occur twice) and can be sharded. A window that stays for others is not cut into, so up to `tokens` -
    1 tokens beside it stay too.

    Memory and disk of `shards`, `memory_bytes`: see `Repeated`; there is one piece a token.
    """

    name = "dedup.substring"

    column: str = "text"
    tokens: int = 50
    unit: Tokens = "words"
    action: Literal["cut", "drop"] = "cut"
    copies: int = 1
    min_left: int = 1
    min_share: float = 0.5
    scope: str | None = None
    shards: int = setting(default=16)
    memory_bytes: int = setting(default=1 << 30)

    def __post_init__(self) -> None:
        for field, known in (("unit", ("words", "chars", "bytes")), ("action", ("cut", "drop"))):
            if getattr(self, field) not in known:
                raise RecipeError(f"dedup.substring: {field} must be one of {', '.join(known)}, got "
                                  f"{getattr(self, field)!r}")
        for field, least in (("tokens", 2), ("copies", 1), ("min_left", 1), ("shards", 1)):
            if getattr(self, field) < least:
                raise RecipeError(f"dedup.substring: {field} must be {least} or more, got "
                                  f"{getattr(self, field)}")
        if not 0 < self.min_share <= 1:
            raise RecipeError("dedup.substring: min_share must be above 0 and at most 1, got "
                              f"{self.min_share}")

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.scope or self.column},
                        adds={self.column: None, COUNTED[0]: pa.int32(), COUNTED[1]: pa.int64()})

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        share = self.min_share if self.action == "drop" else None
        windows: dict[str, Any] = {"column": self.column, "tokens": self.tokens, "unit": self.unit, "shards": self.shards}
        pieces = rows >> WindowPieces(**windows, scope=self.scope)
        cuts = pieces >> Repeated(copies=self.copies, span=self.tokens, shards=self.shards,
                                  memory_bytes=self.memory_bytes)
        return (rows + cuts) >> CutWindows(**windows, min_left=self.min_left, min_share=share)


@dataclass(kw_only=True)
class WindowPieces(HashPieces):
    """The hashes of a record's windows, for `Repeated`."""

    tokens: int
    unit: Tokens

    def process(self, batch: Any) -> Outputs:
        texts = Texts.of(batch.rows.column(self.column))
        found = [windows(texts.part(low, high), self.unit, self.tokens, low) for low, high in chunks(texts)]
        return piece_outputs(batch, texts, found, self.scope, self.shards)


@dataclass(kw_only=True)
class CutWindows(Cut):
    """Records without the passages that stand elsewhere; with `min_share` as they were, or duplicates."""

    tokens: int
    unit: Tokens
    min_share: float | None = None

    counted = COUNTED

    def remove(self, texts: Texts, found: Found) -> Removal:
        tokens = tokens_of(texts, self.unit)
        cut = tokens.covered(found.cut, self.tokens)
        if self.min_share is None:
            cut &= ~tokens.covered(found.kept, self.tokens)
        removed = tokens.removed(cut, len(texts.data))
        if self.unit == "bytes":
            removed = whole_characters(texts, removed)
        spent = np.ones(len(texts), dtype=bool)
        spent[found.kept[0]] = False
        begins = cut.copy()
        begins[1:] &= ~cut[:-1] | (tokens.row[1:] != tokens.row[:-1])
        return Removal(removed, tokens.sums(begins), spent)

    def judge(self, share: np.ndarray, left: np.ndarray, spent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.min_share is None:
            return super().judge(share, left, spent)
        return share >= self.min_share, np.zeros(len(share), dtype=bool)


# -- tokens --------------------------------------------------------------------------------------------------


def tokens_of(texts: Texts, unit: Tokens) -> Pieces:
    """The words, characters or bytes of texts."""
    size = len(texts.data)
    if unit == "words":
        word = ~texts.space
        begins, ends = word.copy(), np.zeros(size + 1, dtype=bool)
        fresh = np.zeros(size + 1, dtype=bool)
        fresh[texts.starts] = True
        begins[1:] &= ~word[:-1] | fresh[1:size]
        ends[1:] = word
        ends[1:size] &= ~word[1:] | fresh[1:size]
        start, end = np.flatnonzero(begins), np.flatnonzero(ends)
    else:
        start = np.flatnonzero(texts.begins) if unit == "chars" else np.arange(size)
        end = np.append(start, size)[1:]
    return Pieces(start, end, np.searchsorted(start, texts.starts))


def whole_characters(texts: Texts, removed: np.ndarray) -> np.ndarray:
    """Only those of these bytes whose character goes as a whole."""
    character = np.cumsum(texts.begins) - 1
    stays = np.bincount(character[~removed], minlength=len(removed)) > 0
    return removed & ~stays[character]


def windows(texts: Texts, unit: Tokens, width: int, base: int = 0) -> Hashed:
    """Every run of `width` tokens, by the number of its first one, with its hash. `base` is added to their
    rows.

    A hash is a polynomial of the hashes of the tokens, modulo 2^64, of which sums over prefixes give that of
    any run (Karp & Rabin 1987). Tokens are replaced by random numbers before, for the low bits of such a sum
    are weak.
    """
    tokens = tokens_of(texts, unit)
    counts = np.maximum(np.diff(tokens.first) - width + 1, 0)
    values = token_hashes(texts, tokens, unit)
    at = ranges(tokens.first[:-1], counts)
    place = at - np.repeat(tokens.first[:-1], counts)
    hashes, checks = (mix(of_runs(values, width, factor)[at]) for factor in FACTORS)
    return Hashed(np.repeat(np.arange(base, base + len(counts)), counts), place.astype(np.uint32), hashes,
                  (checks >> np.uint64(32)).astype(np.uint32))


def token_hashes(texts: Texts, tokens: Pieces, unit: Tokens) -> np.ndarray:
    """A 64-bit hash of each token, from its bytes taken eight at a time."""
    if unit == "bytes":
        return _BYTES[texts.data]
    size = tokens.end - tokens.start
    eights = np.ndarray(len(texts.data), "<u8", np.append(texts.data, np.zeros(8, np.uint8)), strides=(1,))
    hashes = mix((eights[tokens.start] & _FIRST[np.minimum(size, 8)]) + _BYTES[np.minimum(size, LONG)])
    for at in range(8, LONG, 8):
        more = np.flatnonzero(size > at)
        block = eights[tokens.start[more] + at] & _FIRST[np.minimum(size[more] - at, 8)]
        hashes[more] = mix(hashes[more] ^ block)
    data = texts.data.data
    for token in np.flatnonzero(size > LONG).tolist():
        hashes[token] = xxhash.xxh3_64_intdigest(data[tokens.start[token]:tokens.end[token]])
    return hashes


def of_runs(values: np.ndarray, width: int, factor: int) -> np.ndarray:
    """The sum of values[i + j] * factor^j over j below `width`, for each i where there are so many values,
    modulo 2^64."""
    if len(values) < width:
        return np.empty(0, dtype=np.uint64)
    sums = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values * powers(factor, len(values)), out=sums[1:])
    return (sums[width:] - sums[:-width]) * powers(pow(factor, -1, 1 << 64), len(values) - width + 1)


def powers(factor: int, count: int) -> np.ndarray:
    """factor^0, factor^1, … modulo 2^64."""
    known = _POWERS.get(factor)
    if known is None or len(known) < count:
        known = np.full(1 << max(18, (count - 1).bit_length()), factor, dtype=np.uint64)
        known[0] = 1
        _POWERS[factor] = known = np.cumprod(known)
    return known[:count]


_POWERS: dict[int, np.ndarray] = {}
