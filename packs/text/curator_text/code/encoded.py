"""Data written as text: base64, hexadecimal bytes and Unicode escapes.

Source: The Stack v2 (Lozhkov et al. 2024, arXiv 2402.19173, 3.1), less two errors of its patterns: its base64
takes a list with a word a line and a long path, its hexadecimal misses the first `\\x48`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# 64 characters or more, over several lines if they are long ones, as PEM and MIME wrap them (64 and 76) or as
# strings that are put together.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{48,}+"
    r"(?:[\"']?[,+\\]?\r?\n[ \t#*/]*+[\"']?[A-Za-z0-9+/]{48,}+)*+"
    r"(?:[\"']?[,+\\]?\r?\n[ \t#*/]*+[\"']?[A-Za-z0-9+/]{1,76}(?==|[\"']?\s*\n))?={0,2}")
_HEX_BYTES = re.compile(r"(?:[0\\][xX][0-9a-fA-F]{2}(?:[\"']?[,;]?\s*[\"']?)){8,}+")
_HEX_PAIRS = re.compile(r"\b(?:[0-9a-fA-F]{2}[ ,:]\s*){8,}+(?:[0-9a-fA-F]{2}\b)?")
_UNICODE = re.compile(r"(?:\\u(?:[0-9a-fA-F]{4}|\{[0-9a-fA-F]{1,6}\})){8,}+")
LEAST = 64  # characters of a piece of base64


def encoded_spans(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each piece of encoded data; they may overlap."""
    for match in _BASE64.finditer(text):
        if match.end() - match.start() >= LEAST and _is_base64(match[0]):
            yield match.span()
    if "0x" in text or "0X" in text or "\\x" in text:
        for match in _HEX_BYTES.finditer(text):
            yield match.span()
    for match in _HEX_PAIRS.finditer(text):
        if re.search("[a-fA-F]", match[0]) and re.search("[0-9]", match[0]):  # else a list of numbers
            yield match.span()
    if "\\u" in text:
        for match in _UNICODE.finditer(text):
            yield match.span()


def encoded(text: str) -> tuple[int, int]:
    """Characters of the longest piece of encoded data, and of all pieces together."""
    longest = total = reached = 0
    for begin, end in sorted(encoded_spans(text)):
        longest = max(longest, end - begin)
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return longest, total


def _is_base64(piece: str) -> bool:
    """Whether its characters are spread as those of bytes are: no path, no long name, no row of one letter.

    Of 64 random ones, 10 are digits, 26 capitals and 2 of the two signs.
    """
    head = piece[:1024]
    size = len(head)
    if not re.search("[^0-9a-fA-F]", head):
        # hexadecimal without separators
        return bool(re.search("[a-fA-F]", head) and re.search("[0-9]", head))
    lower, upper = sum(map(str.islower, head)), sum(map(str.isupper, head))
    return (len(set(head)) >= 24 and upper >= size / 10 and lower >= size / 10
            and sum(map(str.isdigit, head)) >= size / 50 and head.count("/") <= size / 12)
