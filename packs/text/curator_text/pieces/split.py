"""Texts divided at a separator, or into their sections."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.pieces.children import COLUMNS, Piece, children

_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*?)[ \t]*#*[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(kw_only=True)
class Split(Stage):
    """Divide each text at a separator, at what a pattern finds, or into sections at Markdown's headings; a record
    each.

    A piece has all columns of its document, and `text`, `id` (`doc#3`), `parent`, `piece`, `pieces`, `start` and
    `end` as those of `text.chunk`. Blank pieces are left out, separators belong to none. With `sections` a piece
    also has `section` (the heading it begins with, null for what stands before the first) and `section_level` (1
    to 6, null likewise). A text without a piece is dropped, reason `no_text`.

    One of these: `separator`: these very characters. `pattern`: a regular expression. `sections`: headings up to
    this level begin a section (2: `#` and `##`); those inside of code blocks do not.
    """

    separator: str | None = None
    pattern: str | None = None
    sections: int | None = None
    column: str = "text"

    sparse = ("piece", "start")

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.separator, self.pattern, self.sections)) != 1:
            raise ValueError("split wants one of separator, pattern and sections")
        if self.separator == "":
            raise ValueError("separator must be one character or more")
        if self.sections is not None and not 1 <= self.sections <= 6:
            raise ValueError(f"sections must be a level from 1 to 6, got {self.sections}")
        if self.pattern is not None:
            try:
                found = re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern {self.pattern!r} is no regular expression: {error}") from error
            if found.fullmatch(""):
                raise ValueError(f"pattern {self.pattern!r} finds nothing at all between any two characters")

    def contract(self) -> Contract:
        adds = {self.column: pa.string(), **COLUMNS}
        if self.sections is not None:
            adds |= {"section": pa.string(), "section_level": pa.int32()}
        return Contract(needs={self.column: pa.string()}, adds=adds)

    def setup(self, ctx: Context) -> None:
        self._at: re.Pattern[str] | None = None
        if self.sections is None:
            self._at = re.compile(re.escape(self.separator or "") if self.pattern is None else self.pattern)

    def process(self, batch: TextBatch) -> Outputs:
        texts = batch.column(self.column)
        if self._at is not None:
            return children(batch, self.column, [_between(self._at, text or "") for text in texts])
        found = [sections_of(text or "", self.sections or 0) for text in texts]
        outputs = children(batch, self.column, [[piece for piece, _ in pieces] for pieces in found])
        headings = [heading for pieces in found for _, heading in pieces]
        outputs["out"] = outputs["out"].with_columns({
            "section": pa.array([heading and heading[1] for heading in headings], pa.string()),
            "section_level": pa.array([heading and heading[0] for heading in headings], pa.int32())})
        return outputs


def _between(at: re.Pattern[str], text: str) -> list[Piece]:
    pieces, begin = [], 0
    for match in at.finditer(text):
        pieces.append((begin, match.start()))
        begin = match.end()
    pieces.append((begin, len(text)))
    return [(start, end) for start, end in pieces if text[start:end].strip()]


def sections_of(text: str, deepest: int) -> list[tuple[Piece, tuple[int, str] | None]]:
    """The sections of a text in Markdown, each with level and words of its heading; None for what stands before
    the first one."""
    begins: list[tuple[int, tuple[int, str] | None]] = [(0, None)]
    at, fence = 0, ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end():].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        elif (heading := _HEADING.fullmatch(line.rstrip("\r\n"))) and len(heading[1]) <= deepest:
            begins.append((at, (len(heading[1]), heading[2])))
        at += len(line)
    ends = [start for start, _ in begins[1:]] + [len(text)]
    return [((start, end), heading) for (start, heading), end in zip(begins, ends, strict=True)
            if text[start:end].strip()]
