"""Long texts in pieces of a size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.pieces.bounds import LEVELS, pieces_of, starts_of, words_of
from curator_text.pieces.children import COLUMNS, children
from curator_text.tokens.tokenizers import open_tokenizer, required

_USUAL_CUT = {"characters": "words", "tokens": "words"}


@dataclass(kw_only=True)
class Chunk(Stage):
    """Cut each text into pieces of up to `size` characters, words, tokens, sentences or paragraphs, a record
    each.

    A piece has all columns of its document, and `text` (its part of it), `id` (`doc#3`), `parent` (the
    document's id), `piece` (0, 1, …), `pieces` (how many the document has), `start` and `end` (where it stands
    in the document's text, in characters: `text[start:end]` is the piece). Without `overlap` the pieces one
    behind the other are the text, to the last space; `text.join` makes documents of them again. A text that is
    empty, blank or null is dropped, reason `no_text`.

    `by`: what is counted: words as `text.signals` counts them, tokens by `tokenizer` (as `text.tokenize` takes
    it). `cut`: where a text may be cut, at the end of `paragraphs`, `sentences` or `words`, or `anywhere`; None
    for what is counted, and for characters and tokens at words. Where one of them alone is larger than a piece,
    it is cut at the next smaller kind. `overlap`: with how many units of the piece before each one begins, at
    most. `size_min`: a last piece smaller than this joins the one before, which then may be larger than `size`.

    Known differences: tokens are those of the whole text; cut out, the piece may have one or two more. A sentence
    ends at an end mark before a space, unless a small letter follows or it ends one of a few English
    abbreviations; in Chinese, Japanese, Hindi, Burmese and Amharic at their own marks.
    """

    size: int
    by: Literal["characters", "words", "tokens", "sentences", "paragraphs"] = "characters"
    cut: Literal["anywhere", "words", "sentences", "paragraphs"] | None = None
    overlap: int = 0
    size_min: int = 0
    tokenizer: str | None = None
    column: str = "text"

    sparse = ("piece", "start")

    def __post_init__(self) -> None:
        if self.by not in ("characters", "words", "tokens", "sentences", "paragraphs"):
            raise ValueError("by must be characters, words, tokens, sentences or paragraphs, got "
                             f"{self.by!r}")
        if self.cut is not None and self.cut not in LEVELS:
            raise ValueError(f"cut must be one of {', '.join(LEVELS)}, got {self.cut!r}")
        self.at_least(1, "size")
        if not 0 <= self.overlap < self.size:
            raise ValueError(f"overlap must be from 0 to size - 1 ({self.size - 1}), got {self.overlap}")
        if not 0 <= self.size_min <= self.size:
            raise ValueError(f"size_min must be from 0 to size ({self.size}), got {self.size_min}")
        if (self.by == "tokens") != (self.tokenizer is not None):
            raise ValueError("by: tokens wants a tokenizer, and only that does")
        self.requires = required(self.tokenizer)

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={self.column: pa.string(), **COLUMNS})

    def setup(self, ctx: Context) -> None:
        self._tokenizer = None
        if self.tokenizer is not None:
            self._tokenizer = open_tokenizer(self.tokenizer, max(1, int(ctx.cpus)))

    def process(self, batch: TextBatch) -> Outputs:
        return children(batch, self.column, [self._pieces(text) for text in batch.column(self.column)])

    def _pieces(self, text: str | None) -> list[tuple[int, int]]:
        if not text or text.isspace():
            return []
        if self._tokenizer is not None:
            units = [_behind_space(text, at) for at in self._tokenizer.starts(text)]
        elif self.by == "words":
            units = words_of(text)[0]
        else:
            units = starts_of(text, "anywhere" if self.by == "characters" else self.by)
        coarsest = self.cut or _USUAL_CUT.get(self.by, self.by)
        levels = LEVELS[LEVELS.index(coarsest):-1]  # where it may be cut anywhere, the limit itself will do
        return pieces_of(len(text), units, [starts_of(text, level) for level in levels], self.size, self.overlap,
                         self.size_min)


def _behind_space(text: str, at: int) -> int:
    """Many tokens begin with the space before a word; here space belongs to what stands before it."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at
