"""Lines that are no text: capitals, numbers, counters, single words, and what shops and blogs put between."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.clean.c4 import LINE_CHARS_MAX, few_words, lines_with, pieces_of
from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined, groups, join
from curator_text.measures.lines import Lines, find_lines
from curator_text.measures.words import Words, split

FRAGMENT_WORDS_MAX = 10  # words that a line may have for a fragment to be cut out of it
_COUNTED = ("likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes",
            "downvotes", "downloads", "views", "followers")
_COUNTER = re.compile(rf"[\W_]*\d[\d,.]*[kmb]?\s+(?:{'|'.join(_COUNTED)})[\W_]*", re.IGNORECASE)
_COUNTER_WORDS = [word.encode() for word in _COUNTED]
# What goes, and a part of each to look for first.
_FRAGMENTS = re.compile(r"\s?items in cart|\s?read more(?:\.\.\.|…)$|^sign-in\s?", re.IGNORECASE)
_FRAGMENT_PARTS = (b"items in cart", b"read more", b"sign-in")


@dataclass(kw_only=True)
class NoiseLines(Stage):
    """Remove the lines of a text that RefinedWeb and DCLM remove.

    Of `column` those lines go that are capitals for more than half, all digits, a counter (`3 likes`, `1.2K
    followers`) or fewer than two words; of lines of up to ten words go `items in cart`, `Read more...` at the
    end and `Sign-in` at the beginning. Blank lines stay. Adds `noise_lines_removed` (int32: lines that went
    or got shorter) and `noise_removed_ratio` (float64: words that went, of words; 0 where there are none); both
    null where there is no text. A text that loses all its lines is empty; null stays null. RefinedWeb's rule
    for pages is `drop: {noise: noise_removed_ratio > 0.05}`.

    `upper_ratio_max`: capitals that a line may have, of its characters. `words_min`: words that it needs.

    Sources: RefinedWeb (Penedo et al. 2023, arXiv 2306.01116), G.2; for the counters and fragments, which it
    does not list, DCLM (Li et al. 2024, arXiv 2406.11794), dclm_baseline_refinedweb.yaml. Known differences:
    all line ends of `str.splitlines` count, and become line feeds in a text that is changed; words in
    scripts without spaces are counted as `text.signals` counts them; `Read more` goes before three full stops
    or an ellipsis, and not before any three characters.
    """

    column: str = "text"
    upper_ratio_max: float = 0.5
    words_min: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.upper_ratio_max <= 1:
            raise ValueError(f"upper_ratio_max must be from 0 to 1, got {self.upper_ratio_max}")
        self.at_least(0, "words_min")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={self.column: pa.string(), "noise_lines_removed": pa.int32(),
                              "noise_removed_ratio": pa.float64()})

    def setup(self, ctx: Context) -> None:
        ch.kind_table()

    def process(self, batch: TextBatch) -> TextBatch:
        given = batch.column(self.column)
        done = list(without_noise(given, self.upper_ratio_max, self.words_min))
        none = np.array([text is None for text in given], bool)
        ratios = [gone / words if words else 0.0 for _, _, gone, words in done]
        return batch.with_columns({
            self.column: pa.array([left.text for left in done], pa.string(), mask=none),
            "noise_lines_removed": pa.array([left.lines for left in done], pa.int32(), mask=none),
            "noise_removed_ratio": pa.array(ratios, pa.float64(), mask=none)})


class Left(NamedTuple):
    """What is left of a text, the lines that went or got shorter, the words that went, and its words
    before."""

    text: str
    lines: int
    gone: int
    words: int


def without_noise(texts: Sequence[str | None], upper_ratio_max: float, words_min: int) -> Iterator[Left]:
    """Each text without its noise."""
    for group in groups(texts):
        if len(group[-1]) <= LINE_CHARS_MAX:
            yield from _edit(group, upper_ratio_max, words_min)
            continue
        yield from _edit(group[:-1], upper_ratio_max, words_min)  # only the last of a group can be large
        parts = [part for piece in pieces_of(group[-1])
                 for part in _edit([piece], upper_ratio_max, words_min)]
        yield Left("\n".join(part.text for part in parts if part.text),
                   sum(part.lines for part in parts), sum(part.gone for part in parts), sum(part.words for part in parts))


def _edit(texts: list[str], upper_ratio_max: float, words_min: int) -> Iterator[Left]:
    if not texts:
        return
    joined = join(texts)
    words = split(joined)
    lines = find_lines(joined, words)
    removed, shorter = noise(joined, words, lines, upper_ratio_max, words_min)
    wordy = np.diff(words.wordy_before[lines.word])
    gone = lines.sum(wordy * removed).tolist()
    total = lines.sum(wordy).tolist()
    changed = removed.copy()
    changed[list(shorter)] = True
    counts = lines.sum(changed).tolist()
    spans = list(zip(lines.starts.tolist(), lines.stops.tolist(), strict=True))
    for document, (begin, end) in enumerate(zip(lines.of[:-1].tolist(), lines.of[1:].tolist(), strict=True)):
        if not counts[document]:
            yield Left(texts[document], 0, 0, total[document])
            continue
        left = [shorter.get(line, joined.text[slice(*spans[line])])
                for line in range(begin, end) if not removed[line]]
        cut = [line for line in range(begin, end) if line in shorter]
        before = sum(int(wordy[line]) for line in cut)
        after = _words([shorter[line] for line in cut])
        words_gone = gone[document] + before - after
        yield Left("\n".join(left).strip(), counts[document], words_gone, total[document])


def noise(joined: Joined, words: Words, lines: Lines, upper_ratio_max: float,
          words_min: int) -> tuple[np.ndarray, dict[int, str]]:
    """Which lines go, and what is left of those that lose a fragment."""
    sizes = lines.stops - lines.starts
    upper, digits = (np.cumsum(joined.kinds == kind, dtype=np.int32) for kind in (ch.UPPER, ch.DIGIT))
    removed = (upper[lines.stops] - upper[lines.starts - 1]) > upper_ratio_max * sizes
    removed |= digits[lines.stops] - digits[lines.starts - 1] == sizes
    removed |= few_words(words, lines, words_min)
    removed &= ~lines.blank
    for line in _holding(_COUNTER_WORDS, joined, lines, ~removed):
        removed[line] = bool(_COUNTER.fullmatch(joined.text[lines.starts[line]:lines.stops[line]]))
    shorter: dict[int, str] = {}
    short = ~removed & (np.diff(lines.chunk) <= FRAGMENT_WORDS_MAX)
    for line in _holding(_FRAGMENT_PARTS, joined, lines, short):
        text = joined.text[lines.starts[line]:lines.stops[line]]
        left = _FRAGMENTS.sub("", text)
        if not left.strip():
            removed[line] = True
        elif left != text:
            shorter[line] = left
    return removed, shorter


def _holding(phrases: Sequence[bytes], joined: Joined, lines: Lines, among: np.ndarray) -> list[int]:
    has = np.zeros(len(lines), bool)
    for phrase in phrases:
        has |= lines_with(phrase, joined, lines)
    return np.flatnonzero(has & among).tolist()


def _words(texts: list[str]) -> int:
    return int(np.count_nonzero(split(join(texts)).wordy)) if texts else 0
