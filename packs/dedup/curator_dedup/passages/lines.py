"""Lines and paragraphs that occur again in a corpus, cut out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Composite, Contract, Outputs, setting
from curator_dedup.passages.cut import Cut
from curator_dedup.passages.line_pieces import COUNTED, Compared, LineCutting, all_hashed
from curator_dedup.passages.lines_stream import LinesStream
from curator_dedup.passages.pieces import HashPieces, Texts, piece_outputs
from curator_dedup.passages.repeated import Repeated

SHARDS, MEMORY_BYTES = 16, 1 << 30


@dataclass(kw_only=True)
class DedupLines(Composite):
    """Cut out lines that stand elsewhere in the corpus: of equal ones the first `copies` stay, in order of
    id, source and place.

    `unit`: a `line`, a `paragraph` (lines with blank ones around them) or a `sentence`. `span`: so many of
    them in a row are compared, and cut, as one piece: `unit: sentence, span: 3` is C4's rule; the columns
    count single ones. `normalize`: compare without regard to case, runs of white space and compatible Unicode
    forms (NFKC). Pieces with fewer than `min_chars` characters or `min_words` words (parts between white
    space) are left alone. `scope`: a column; only pieces of records with the same value there are compared.

    Records go on with what is left; `removed_lines` and `removed_chars` say what is gone. One that loses all
    its pieces but such short ones, and of which fewer than `min_left` characters are left, white space not
    counted, goes to `duplicate` as it was, with `duplicate_of`: the record where its longest cut piece is
    kept, `similarity`: the share of its characters that were cut.

    `mode`: `cluster` is a barrier: everything before it is done first, and what stays does not depend on
    order or workers; for memory and disk, and for `shards` and `memory_bytes`, which are of this mode only,
    see `Repeated`. `stream` decides as records flow by, in the memory of one worker: the first `copies` to
    arrive stay (`LinesStream` says how much that takes).

    Source: CCNet (Wenzek et al. 2020) drops every paragraph, which is a line there, whose normalized hash was
    seen before; C4 (Raffel et al. 2020, 2.2) drops all but one of equal spans of three sentences; FineWeb
    (Penedo et al. 2024) tried dropping repeated lines, and those of 10 words or more only (`min_words: 10`).
    Known differences: digits and punctuation count here, unlike in CCNet; `min_chars: 20`, our own choice,
    lets brackets, headings and list marks stand; in mode `cluster` a span that others lose in its favour is
    not cut into by one that it overlaps, and a sentence ends at its mark also after an abbreviation.
    """

    name = "dedup.lines"

    column: str = "text"
    unit: Literal["line", "paragraph", "sentence"] = "line"
    span: int = 1
    mode: Literal["cluster", "stream"] = "cluster"
    copies: int = 1
    normalize: bool = True
    min_chars: int = 20
    min_words: int = 0
    min_left: int = 1
    scope: str | None = None
    shards: int = setting(default=SHARDS)
    memory_bytes: int = setting(default=MEMORY_BYTES)

    def __post_init__(self) -> None:
        if self.unit not in ("line", "paragraph", "sentence"):
            raise RecipeError(f"dedup.lines: unit must be line, paragraph or sentence, got {self.unit!r}")
        for field, least in (("span", 1), ("copies", 1), ("min_chars", 1), ("min_words", 0), ("min_left", 1),
                             ("shards", 1)):
            if getattr(self, field) < least:
                raise RecipeError(f"dedup.lines: {field} must be {least} or more, got {getattr(self, field)}")
        if self.mode not in ("cluster", "stream"):
            raise RecipeError(f"dedup.lines: mode must be cluster or stream, got {self.mode!r}")
        for field, usual in (("shards", SHARDS), ("memory_bytes", MEMORY_BYTES)):
            if self.mode == "stream" and getattr(self, field) != usual:
                raise RecipeError(f"dedup.lines: {field} is for the work on all records: set mode: cluster, "
                                  f"or leave {field} out")

    def contract(self) -> Contract:
        return Contract(needs={self.column, self.scope or self.column},
                        adds={self.column: None, COUNTED[0]: pa.int32(), COUNTED[1]: pa.int64()})

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        compared = Compared(unit=self.unit, span=self.span, normalize=self.normalize,
                            min_chars=self.min_chars, min_words=self.min_words)
        if self.mode == "stream":
            return rows >> LinesStream(column=self.column, compared=compared, copies=self.copies,
                                       min_left=self.min_left,
                                       scope=self.scope)
        pieces = rows >> LinePieces(column=self.column, compared=compared, scope=self.scope,
                                    shards=self.shards)
        cuts = pieces >> Repeated(copies=self.copies, span=self.span, shards=self.shards,
                                  memory_bytes=self.memory_bytes)
        return (rows + cuts) >> CutLines(column=self.column, compared=compared, min_left=self.min_left,
                                         shards=self.shards)


@dataclass(kw_only=True)
class LinePieces(HashPieces):
    """The hashes of a record's lines, for `Repeated`."""

    compared: Compared

    def process(self, batch: Batch) -> Outputs:
        texts = Texts.of(batch.rows.column(self.column))
        return piece_outputs(batch, texts, all_hashed(texts, self.compared), self.scope, self.shards)


@dataclass(kw_only=True)
class CutLines(LineCutting, Cut):
    """Records without the lines that stand elsewhere."""

    compared: Compared
