"""Where the words, sentences and paragraphs of a text begin, and pieces of a size made of them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np

LEVELS = ("paragraphs", "sentences", "words", "anywhere")  # from coarse to fine

_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")
# An end mark, what closes behind it, and space; or an end mark of a script that has no space behind it.
_SENTENCE = re.compile(r"""[.!?…]+["'”’»)\]]*(\s+)|[。！？｡]+["”’』」）》]*(\s*)|[।॥။።](\s*)|\n[ \t\r]*\n\s*""")
_SHORT = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|No|Fig|Eq|cf|al|ca|approx|Inc|Ltd|Co|e\.g|i\.e)"
                    r"|\b[A-Z])\.$")


def starts_of(text: str, level: str) -> list[int]:
    """Where each one begins: ascending positions, the first is 0. Space belongs to what stands before it."""
    if level == "anywhere":
        return list(range(len(text))) or [0]
    if level == "paragraphs":
        found = [match.end() for match in _PARAGRAPH.finditer(text)]
    elif level == "sentences":
        found = _sentences(text)
    else:
        found = words_of(text)[1]
    return [0, *(at for at in found if 0 < at < len(text))]


def _sentences(text: str) -> list[int]:
    starts = []
    for match in _SENTENCE.finditer(text):
        end = match.end()
        following = text[end:end + 1]
        if match.group(1) is not None and text[match.start()] == "." and (
                following.islower() or _SHORT.search(text, max(0, match.start() - 12), match.start() + 1)):
            continue  # it goes on, or was an abbreviation
        starts.append(end)
    return starts


def words_of(text: str) -> tuple[list[int], list[int]]:
    """Where each word and mark begins, counted as `text.signals` does; and where a text may be cut between
    words: behind space, and between words of scripts without it."""
    from curator_text.measures import characters as ch
    from curator_text.measures.joined import join
    from curator_text.measures.words import split

    joined = join([text])
    words = split(joined)
    starts = np.asarray(words.starts)
    kinds, before = joined.kinds[starts], joined.kinds[starts - 1]
    behind = ch.SPACELESS[before] | ch.SENTENCE_END[before]
    free = (before <= ch.SPACE) | np.asarray(words.wordy) & ch.SPACELESS[kinds] & behind
    begin = int(joined.starts[0])
    return (starts - begin).tolist(), (starts[free] - begin).tolist()


def pieces_of(length: int, units: Sequence[int], cuts: Sequence[Sequence[int]], size: int, overlap: int,
              size_min: int) -> list[tuple[int, int]]:
    """A text of so many characters in pieces of up to `size` units, each with its begin and end.

    `units`: where each unit begins, ascending. `cuts`: where the text may be cut, the best places first; where
    none of the first kind lies in a piece the next kind is taken. Pieces follow one another without a gap, the
    next one beginning up to `overlap` units before the end of the one before.
    """
    made: list[tuple[int, int]] = []
    begin = end = 0
    while end < length:
        first = bisect_left(units, begin)
        limit = units[first + size] if first + size < len(units) else length
        if limit <= end:  # several units begin at one character, as the bytes of one do
            after = bisect_right(units, end)
            limit = units[after] if after < len(units) else length
        end = length if limit >= length else _last_cut(cuts, end, limit)
        made.append((begin, end))
        begin = _next_begin(units, cuts, begin, end, overlap)
    if len(made) > 1 and bisect_left(units, length) - bisect_left(units, made[-1][0]) < size_min:
        _, end = made.pop()
        made[-1] = (made[-1][0], end)
    return made


def _last_cut(cuts: Sequence[Sequence[int]], before: int, limit: int) -> int:
    for places in cuts:
        at = bisect_right(places, limit)
        if at and places[at - 1] > before:
            return places[at - 1]
    return limit


def _next_begin(units: Sequence[int], cuts: Sequence[Sequence[int]], begin: int, end: int, overlap: int) -> int:
    if not overlap:
        return end
    back = max(units[max(0, bisect_left(units, end) - overlap)], begin + 1)
    for places in cuts:
        at = bisect_left(places, back)
        if at < len(places) and places[at] < end:
            return places[at]
    return back if back < end else end
