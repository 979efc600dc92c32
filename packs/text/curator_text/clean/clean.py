"""Repaired Unicode and tidy whitespace."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch

# Control characters but tab and line feed, and characters without width: soft hyphen, zero-width space, word
# joiner, byte order mark, marks of writing direction. U+200C and U+200D stay: Persian, Hindi and emoji need
# them.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
                      "\ufff9-\ufffb\ufdd0-\ufdef\ufffe\uffff]")
_TERMINAL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LINE_END = re.compile("\r\n?|[\x85\u2028\u2029]")
_OTHER_LINE_END = re.compile("[\r\x85\u2028\u2029]")
_SPACE = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_BLANK_LINES = re.compile("\n{3,}")
_C1 = re.compile("[\x80-\x9f]")  # no text has them: they are bytes of Windows-1252 that were read as Latin-1


@dataclass(kw_only=True)
class Clean(Stage):
    """Repair a text's characters and tidy its whitespace. Replaces `text`; a null stays null.

    `column`: the text. `encoding`: repair mojibake (`Ã©` becomes `é`) in the lines that have it.
    `normal_form`: canonical composition (NFC). `control`: remove control characters, terminal colours and
    characters without width (but not the joiners that Persian, Indic scripts and emoji need). `whitespace`:
    one kind of space and of line end, no spaces at the end of a line, at most one blank line in a row, none
    at the beginning and end; spaces inside a line stay, they may be code or a table.

    Source: ftfy (Speer 2019, https://doi.org/10.5281/zenodo.2591652) for the mojibake.
    Known difference: ftfy's checks run only on lines that have two characters in a row that UTF-8 read as
    another encoding gives; that makes them many times as fast.
    """

    column: str = "text"
    encoding: bool = True
    normal_form: bool = True
    control: bool = True
    whitespace: bool = True

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={self.column: pa.string()})

    def setup(self, ctx: Context) -> None:
        if self.encoding:
            _mojibake()

    def process(self, batch: TextBatch) -> TextBatch:
        texts = [None if text is None else self._clean(text) for text in batch.column(self.column)]
        return batch.with_columns({self.column: pa.array(texts, pa.string())})

    def _clean(self, text: str) -> str:
        if self.encoding and not text.isascii():
            text = repair_encoding(text)
        if self.whitespace and _OTHER_LINE_END.search(text):
            text = _LINE_END.sub("\n", text)
        if self.control:
            text = _TERMINAL.sub("", text) if "\x1b" in text else text
            text = _CONTROL.sub("", text)
        if self.normal_form and not text.isascii():
            text = unicodedata.normalize("NFC", text)
        return tidy_whitespace(text) if self.whitespace else text


def repair_encoding(text: str) -> str:
    """The text with UTF-8 that was once read as another encoding put right, line by line.

        repair_encoding("L&G â€“ cafÃ©") == "L&G – café"
    """
    from ftfy import fix_encoding

    parts, done = [], 0
    for at in _suspects(text):
        if at < done:
            continue
        start = text.rfind("\n", done, at) + 1 or done
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        parts += [text[done:start], fix_encoding(text[start:end])]
        done = end
    return "".join(parts) + text[done:]


def _suspects(text: str) -> Iterator[int]:
    """Where something stands that may be mojibake."""
    pair, sequence = _mojibake()
    if _C1.search(text) or "Ã " in text:
        return (found.start() for found in sequence.finditer(text))
    return (found.start() for found in pair.finditer(text) if sequence.match(text, found.start()))


def tidy_whitespace(text: str) -> str:
    """One kind of space, no spaces at the ends of lines, at most one blank line in a row."""
    if not text.isascii():
        text = _SPACE.sub(" ", text)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    if "\n\n\n" in text:
        text = _BLANK_LINES.sub("\n\n", text)
    return text.strip("\n")


@lru_cache(maxsize=1)
def _mojibake() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What the first two bytes of a character of UTF-8 may have become, for a first look, and what all its
    bytes may.

    `Ã ` stands for `à`, whose second byte many programs turn into a space.
    """
    from ftfy.chardata import CHARMAP_ENCODINGS

    def characters(first: int, end: int) -> str:
        found = {c for encoding in CHARMAP_ENCODINGS
                 for c in bytes(range(first, end)).decode(encoding, "ignore")}
        return "[" + "".join(re.escape(c) for c in sorted(found) if not c.isascii()) + "]"

    following = characters(0x80, 0xC0)
    whole = "|".join(f"{characters(*lead)}{following}{{{count}}}"
                     for count, lead in enumerate([(0xC2, 0xE0), (0xE0, 0xF0), (0xF0, 0xF5)], 1))
    return re.compile(characters(0xC2, 0xF5) + following), re.compile(f"{whole}|Ã |{_C1.pattern}")
