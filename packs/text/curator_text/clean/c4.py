"""C4's rules for lines, and a stage that removes the lines that break them.

Source: C4 (Raffel et al. 2020, JMLR 21/140), section 2.2, for the rules and for 3 words a line and 5
sentences a page; its published code (tensorflow_datasets, c4_utils.py) for their order. A line goes for a
word of over 1,000 characters, an end without terminal punctuation, under 3 words, the word javascript or a
policy phrase. A page goes for "lorem ipsum" or a curly bracket in a line that is left until then, and for
under 5 sentences in the lines that are left.

Known differences: the published code wants 5 words a line and 3 sentences a page, and takes an apostrophe for
no end of a line, which datatrove does, as here (`words_min: 5` and a rule of one's own give its numbers). The
sentence ends of other scripts are terminal punctuation too, and stretches of scripts without spaces count
their words; else no page in them would be left. The list of bad words is not applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Stage
from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined, groups, join, places
from curator_text.measures.lines import Lines, find_lines, is_ellipsis
from curator_text.measures.words import Words, split

WORD_CHARS_MAX = 1000
LINE_WORDS_MIN = 3
LINE_CHARS_MAX = 4_000_000  # bounds the memory; a longer line is removed
_END_MARKS = ".?!\"'"
_IS_END_MARK = np.isin(np.arange(128), [ord(mark) for mark in _END_MARKS])
_CITATION = r"\[(?:\d*|edit|citation needed)\]"
_CITATIONS = re.compile(_CITATION)
_CITATIONS_AT_END = re.compile(f"(?:{_CITATION})+$")
_CITATIONS_CHARS_MAX = 200  # how far before the end of a line citations are looked for
_COOKIES = re.compile(rb"(?:uses |use of |use )cookies|cookie policy")


@dataclass(frozen=True)
class LineRules:
    """For each line, what C4's code says of it: bool."""

    terminal: np.ndarray  # ends in terminal punctuation, citations like [1] not counted
    javascript: np.ndarray
    policy: np.ndarray
    lorem_ipsum: np.ndarray  # these two only where the code looks
    curly_bracket: np.ndarray
    kept: np.ndarray


def line_rules(joined: Joined, words: Words, lines: Lines, words_min: int = LINE_WORDS_MIN,
               want_terminal: bool = True) -> LineRules:
    """Judge every line by C4's rules."""
    long_word = lines.holding(words.chunks.starts[words.chunks.stops - words.chunks.starts > WORD_CHARS_MAX])
    terminal = _terminal(joined, lines)
    considered = terminal if want_terminal else ~lines.blank
    candidate = considered & ~long_word & ~few_words(words, lines, words_min)
    javascript = lines_with(b"javascript", joined, lines)
    policy = (lines_with(b"terms of use", joined, lines) | lines_with(b"privacy policy", joined, lines)
              | lines.holding(_cookie_places(joined.lowered)))
    lorem_ipsum = candidate & lines_with(b"lorem ipsum", joined, lines)
    brackets = words.marks.starts[joined.codes[words.marks.starts] == ord("{")]
    curly_bracket = candidate & ~javascript & lines.holding(brackets)
    return LineRules(terminal, javascript, policy, lorem_ipsum, curly_bracket,
                     candidate & ~javascript & ~policy)


def lines_with(phrase: bytes, joined: Joined, lines: Lines) -> np.ndarray:
    """Which lines have a phrase in small letters in them, in any case."""
    return lines.holding(np.array(places(joined.lowered, phrase), np.int64))


def _cookie_places(text: bytes) -> np.ndarray:
    cookies = places(text, b"cookie")
    return np.array([at for at in cookies if _COOKIES.search(text, max(0, at - 7), at + 13)], np.int64)


def _terminal(joined: Joined, lines: Lines) -> np.ndarray:
    last = lines.last.copy()
    for line in np.flatnonzero((joined.codes[last] == ord("]")) & ~lines.blank).tolist():
        start, stop = int(lines.first[line]), int(last[line]) + 1
        cited = _CITATIONS_AT_END.search(joined.text, max(start, stop - _CITATIONS_CHARS_MAX), stop)
        if cited and cited.start() > start:
            last[line] = cited.start() - 1
    end, kind = joined.codes[last], joined.kinds[last]
    of_other_scripts = ((kind == ch.END) | (kind == ch.WIDE_END)) & (end > 127)
    terminal = _IS_END_MARK[np.minimum(end, 127)] | of_other_scripts
    return terminal & ~is_ellipsis(joined.codes, last) & ~lines.blank


def few_words(words: Words, lines: Lines, least: int) -> np.ndarray:
    """Which lines have fewer words than that, between white space or, without it, as they are counted."""
    few = np.diff(lines.chunk) < least
    if len(words.spaceless):
        few &= ~lines.holding(words.spaceless) | (np.diff(words.wordy_before[lines.word]) < least)
    return few


def line_sentences(joined: Joined, words: Words, lines: Lines) -> np.ndarray:
    """The sentences of each line: one, and one more for each word behind a sentence end, with marks between
    or not."""
    ends = np.flatnonzero(ch.SENTENCE_END[joined.kinds[words.starts]] & (words.stops - words.starts == 1))
    wordy = np.flatnonzero(words.wordy)
    after = np.searchsorted(wordy, ends)
    nearest = np.flatnonzero(np.append(after[1:] != after[:-1], True)[: len(after)] & (after < len(wordy)))
    ends, following = ends[nearest], wordy[after[nearest]]
    line = np.searchsorted(lines.word, following, "right") - 1
    inside = lines.word[line] <= ends
    return np.bincount(line[inside], minlength=len(lines)) + ~lines.blank


@dataclass(kw_only=True)
class C4Lines(Stage):
    """Remove the lines of a text that C4 removes, blank lines, and citations like [1].

    Of `column` the lines stay that end in terminal punctuation, have at least 3 words, none of over 1,000
    characters, and name neither javascript nor a policy. Adds `c4_lines_removed` (int32, blank ones not
    counted), `c4_sentences` (int32, those in the lines that stay), `c4_lorem_ipsum` and `c4_curly_bracket`
    (bool, in a line that is looked at; null as `c4_sentences` is, where there is no text). A document that
    loses all its lines has an empty text; null stays null. Put `drop: {rules: c4_fineweb}` behind it.

    `terminal: false` keeps lines without terminal punctuation, as FineWeb does. `words_min`: words that a
    line needs.

    Source: C4 (Raffel et al. 2020, JMLR 21/140), section 2.2; see `curator_text.clean.c4` for known
    differences.
    """

    version = 2
    column: str = "text"
    terminal: bool = True
    words_min: int = LINE_WORDS_MIN

    def __post_init__(self) -> None:
        self.at_least(0, "words_min")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={self.column: pa.string(), "c4_lines_removed": pa.int32(),
                              "c4_sentences": pa.int32(), "c4_lorem_ipsum": pa.bool_(),
                              "c4_curly_bracket": pa.bool_()})

    def setup(self, ctx: Context) -> None:
        ch.kind_table()

    def process(self, batch: Batch) -> Batch:
        given = batch.column(self.column)
        done = list(remove_lines(given, self.words_min, self.terminal))
        none = np.array([text is None for text in given], bool)
        texts, removed, sentences, lorem_ipsum, brackets = zip(*done, strict=True) if done else ((),) * 5
        return batch.with_columns({self.column: pa.array(texts, pa.string(), mask=none),
                                   "c4_lines_removed": pa.array(removed, pa.int32()),
                                   "c4_sentences": pa.array(sentences, pa.int32(), mask=none),
                                   "c4_lorem_ipsum": pa.array(lorem_ipsum, pa.bool_(), mask=none),
                                   "c4_curly_bracket": pa.array(brackets, pa.bool_(), mask=none)})


class Left(NamedTuple):
    """What is left of a text, how many of its lines are not, and what there is to say of those that are."""

    text: str
    removed: int
    sentences: int
    lorem_ipsum: bool
    curly_bracket: bool


def remove_lines(texts: Sequence[str | None], words_min: int = LINE_WORDS_MIN,
                 terminal: bool = True) -> Iterator[Left]:
    """Of each text the lines that stay."""
    for group in groups(texts):
        if len(group[-1]) <= LINE_CHARS_MAX:
            yield from _remove(group, words_min, terminal)
            continue
        yield from _remove(group[:-1], words_min, terminal)  # only the last one of a group can be large
        parts = [part for piece in pieces_of(group[-1]) for part in _remove([piece], words_min, terminal)]
        yield Left("\n".join(part.text for part in parts if part.text), sum(part.removed for part in parts),
                   sum(part.sentences for part in parts), any(part.lorem_ipsum for part in parts),
                   any(part.curly_bracket for part in parts))


def pieces_of(text: str) -> Iterator[str]:
    """A large text in pieces of whole lines; for a line that is too large one that is removed, too."""
    while len(text) > LINE_CHARS_MAX:
        stop = text.rfind("\n", 0, LINE_CHARS_MAX)
        yield text[:stop] if stop >= 0 else "-"
        stop = text.find("\n") if stop < 0 else stop
        text = text[stop + 1 :] if stop >= 0 else ""
    yield text


def _remove(texts: list[str], words_min: int, terminal: bool) -> Iterator[Left]:
    if not texts:
        return
    joined = join(texts)
    words = split(joined)
    lines = find_lines(joined, words)
    rules = line_rules(joined, words, lines, words_min, terminal)
    removed, sentences, lorem_ipsum, brackets = (lines.sum(values).tolist() for values in (
        ~rules.kept & ~lines.blank, line_sentences(joined, words, lines) * rules.kept, rules.lorem_ipsum,
        rules.curly_bracket))
    stays = rules.kept.tolist()
    spans = list(zip(lines.first.tolist(), (lines.last + 1).tolist(), strict=True))
    for document, (begin, end) in enumerate(zip(lines.of[:-1].tolist(), lines.of[1:].tolist(), strict=True)):
        text = "\n".join(joined.text[slice(*spans[line])] for line in range(begin, end) if stays[line])
        yield Left(_CITATIONS.sub("", text), removed[document], sentences[document], lorem_ipsum[document] > 0,
                   brackets[document] > 0)
