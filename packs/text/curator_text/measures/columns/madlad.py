"""Questionable sentences by the rules of MADLAD-400 (Kudugunta et al. 2023, arXiv 2309.04662), as Dolma 3 has
them: a sentence ends at full stops, question or exclamation marks with white space behind them.

Rule 1 (a sentence in another language than its page) needs a language model and is not here. Known differences:
words are those of `curator_text.measures.words`, and rule 3 counts characters instead of bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from curator_text.measures import characters as ch
from curator_text.measures.columns.group import INT, RATIO, Family, Group, Measured, share, table_of
from curator_text.measures.joined import places, sums_before

LIST_WORDS_MIN = 12  # rule 2: of so many words more than half begin with a capital
CHARS_MIN, CHARS_MAX = 20, 500  # rule 3
TECHNICAL_MIN = 0.2  # rule 4: more than this share is technical characters
_TECHNICAL = table_of("0123456789{}+/()>")
_ENDS = table_of(".!?")
# Rule 5. Source: the list CURSED_SUBSTRINGS of the card of allenai/MADLAD-400.
CURSED = (" №", "���", "aute irure dolor ", " sunt in culpa qui ", "orem ipsum ", " quis nostrud ", " adipisicing ",
          " dolore eu ", " cupidatat ", "autem vel eum", "wisi enim ad", " sex ", " porn ", "黄色电影", "mp3", "ownload",
          "Vol.", " Ep.", "Episode", " шт.", "Develop", "Facebook", " crusher ", " xxx ", " ..." * 9, " ...." * 9)
_CURSED_ANYWHERE = re.compile(r" [^ ](?: [^ ]){8}|, \.\.,,\? \.\.,,\? \.\.,,\? \.\.,,\?")
_CURSED_AT_END = re.compile(r"\|\s*$| nr\.$| (?:г|кг)\.\s*$")
_END_CHARS = 8


@dataclass(frozen=True)
class Sentences:
    """Those of document d are `of[d]` up to `of[d + 1]`."""

    starts: np.ndarray
    stops: np.ndarray  # before the marks that end it
    of: np.ndarray


def find_sentences(group: Group) -> Sentences:
    """Cut at marks with white space behind; what is left of a sentence without them is one, unless it is empty."""
    starts, stops = group.words.chunks
    codes, joined = group.joined.codes, group.joined
    ends = _ENDS.take(codes[stops - 1], mode="clip") & (stops < joined.stops[joined.document(starts)])
    last = np.zeros(len(starts), bool)  # of its document
    filled = np.flatnonzero(group.counts > 0)
    last[group.words.chunk_of[filled + 1] - 1] = True
    end = np.flatnonzero(ends | last)
    begin = np.append(0, end[:-1] + 1)[: len(end)]
    stop = stops[end].copy()
    marked = np.flatnonzero(ends[end])
    while len(marked):  # back over the marks
        stop[marked] -= 1
        marked = marked[(stop[marked] > starts[begin[marked]]) & _ENDS.take(codes[stop[marked] - 1], mode="clip")]
    kept = stop > starts[begin]
    return Sentences(starts[begin[kept]], stop[kept], joined.offsets(starts[begin[kept]]))


def _questionable(group: Group) -> Measured:
    sentences = find_sentences(group)
    starts, stops = sentences.starts, sentences.stops
    count = np.diff(sentences.of)
    words = group.words
    wordy = words.wordy_before
    capital = sums_before(words.wordy & (group.joined.kinds[words.starts] == ch.UPPER))
    low, high = np.searchsorted(words.starts, starts), np.searchsorted(words.starts, stops)
    many = wordy[high] - wordy[low]
    listed = (many >= LIST_WORDS_MIN) & ((capital[high] - capital[low]) * 2 > many)
    sizes = stops - starts
    technical = sums_before(group.members(_TECHNICAL))
    technical = (technical[stops] - technical[starts]) > TECHNICAL_MIN * sizes
    odd = (sizes < CHARS_MIN) | (sizes > CHARS_MAX)
    cursed = _cursed(group, sentences)
    found = {"list": listed, "length": odd, "technical": technical, "cursed": cursed, "questionable": listed | cursed}
    shares = {f"madlad_{name}_ratio": share(np.diff(sums_before(which)[sentences.of]), count)
              for name, which in found.items()}
    return {"madlad_sentence_count": count, **shares}


def _cursed(group: Group, sentences: Sentences) -> np.ndarray:
    text = group.joined.text
    found = np.zeros(len(sentences.starts) + 1, bool)
    spans: list[tuple[int, int]] = [match.span() for match in _CURSED_ANYWHERE.finditer(text)]
    for phrase in CURSED:
        spans += [(at, at + len(phrase)) for at in places(text, phrase)]
    if spans:
        begins, ends = np.array(spans, np.int64).T
        which = np.searchsorted(sentences.starts, begins, "right") - 1
        inside = (which >= 0) & (ends <= np.append(sentences.stops, 0)[which])
        found[which[inside]] = True
    ends_in = group.joined.codes[sentences.stops - 1]
    for at in np.flatnonzero((ends_in == ord("|")) | (ends_in == ord("."))).tolist():
        stop = int(sentences.stops[at])
        found[at] |= _CURSED_AT_END.search(text[max(int(sentences.starts[at]), stop - _END_CHARS) : stop]) is not None
    return found[:-1]


FAMILIES = (
    Family(_questionable, {"madlad_sentence_count": INT, **dict.fromkeys((
        "madlad_list_ratio", "madlad_length_ratio", "madlad_technical_ratio", "madlad_cursed_ratio",
        "madlad_questionable_ratio"), RATIO)}),
)
