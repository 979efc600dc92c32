"""What is counted in a source file: lines, kinds of characters, and the text that a page shows."""

from __future__ import annotations

import html
import re
import string

_LETTERS, _DIGITS = string.ascii_letters.encode(), string.digits.encode()
_ASCII = re.compile("[\x00-\x7f]+")
XML_HEAD_CHARS = 100  # within so many characters an XML declaration counts, as StarCoder looks for it
# What a page does not show; what is never closed reaches to the end.
_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)"
                     r"|<[a-zA-Z/!?](?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+>?", re.DOTALL | re.IGNORECASE)
_XML = re.compile(r"<\?xml\s+version\s*=")


def line_lengths(text: str) -> tuple[int, int, float]:
    """Lines, characters of the longest, and of a line on average; 0 of all where there is no line."""
    lengths = list(map(len, text.splitlines()))
    return (len(lengths), max(lengths), sum(lengths) / len(lengths)) if lengths else (0, 0, 0.0)


def characters(text: str) -> tuple[int, int, int]:
    """Letters, letters and numbers, decimal digits: as `str.isalpha`, `isalnum` and `isdecimal` have them."""
    plain = text.encode("ascii", "ignore")
    letters = len(plain) - len(plain.translate(None, _LETTERS))
    digits = len(plain) - len(plain.translate(None, _DIGITS))
    if len(plain) == len(text):
        return letters, letters + digits, digits
    rest = _ASCII.sub("", text)
    return (letters + sum(map(str.isalpha, rest)), letters + digits + sum(map(str.isalnum, rest)),
            digits + sum(map(str.isdecimal, rest)))


def has_xml_header(text: str) -> bool:
    return _XML.search(text[:XML_HEAD_CHARS]) is not None


def visible_characters(page: str) -> int:
    """Characters of an HTML page's text, white space among them, without scripts, styles and comments."""
    return len(html.unescape(_HIDDEN.sub("", page)))
