"""Where comments stand in source code: by how a language writes comments and strings, without a parser.

A parser gives up where code is broken; this needs only to know strings from comments. One pattern finds both,
whichever comes first. Not told apart: a regular expression between slashes and a division, so that `/"/` in
JavaScript begins a string, which ends with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_OPEN = "([{,=+\\"  # behind these a long string is a value and no documentation


class Comments:
    """Comments of a language, by its style in the table of languages."""

    def __init__(self, style: Mapping[str, Any]) -> None:
        self._docstrings = bool(style.get("docstrings"))
        self._pattern = re.compile(_pattern(style), re.DOTALL | re.MULTILINE)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Begin and end of each comment, with its marks."""
        for match in self._pattern.finditer(text):
            kind = match.lastgroup
            if kind == "comment" or (kind == "long" and self._docstrings and _alone(text, *match.span())):
                yield match.span()

    def share(self, text: str) -> float | None:
        """Characters in comments, of all; None without characters."""
        return sum(end - begin for begin, end in self.spans(text)) / len(text) if text else None


def _pattern(style: Mapping[str, Any]) -> str:
    comments = [f"{re.escape(begin)}.*?(?:{re.escape(end)}|\\Z)" for begin, end in style.get("block", ())]
    before = r"(?<![^\s;&|(])" if style.get("spaced") else ""
    comments += [f"{before}{re.escape(begin)}[^\\n]*" for begin in style.get("line", ())]
    if style.get("column"):
        comments.append(f"^[{re.escape(style['column'])}][^\\n]*")
    parts = [f"(?P<comment>{'|'.join(comments)})"] if comments else []
    long = [_string(mark, "") for mark in style.get("long", ())]
    short = [_string(mark, r"\n") for mark in style.get("strings", ())]
    if style.get("chars"):  # 'x', but not the 'a of a lifetime or a type
        short.append(r"'(?:[^'\\\n]|\\[^\n]{1,10}?)'")
    parts += [f"(?P<long>{'|'.join(long)})"] if long else []
    parts += [f"(?:{'|'.join(short)})"] if short else []
    return "|".join(parts) or r"(?!)"


def _string(mark: str, stop: str) -> str:
    """From mark to mark, or to where it must have ended; what is behind a backslash is no end."""
    quoted, first = re.escape(mark), re.escape(mark[0])
    inner = f"[^{first}\\\\{stop}]++|\\\\." + (f"|{first}(?!{re.escape(mark[1:])})" if len(mark) > 1 else "")
    return f"{quoted}(?:{inner})*+(?:{quoted})?"


def _alone(text: str, begin: int, end: int) -> bool:
    """Whether a string is a statement by itself: first in its line, last in it, and no argument or value."""
    before = text[text.rfind("\n", 0, begin) + 1:begin]
    behind = text[end:end + 40].lstrip(" \t\r;")[:1]
    if before.strip().lower() not in ("", "r", "u") or behind not in ("", "\n", "#"):
        return False
    above = text[max(0, begin - 2000):begin - len(before)].rstrip()
    return not above.endswith(tuple(_OPEN))
