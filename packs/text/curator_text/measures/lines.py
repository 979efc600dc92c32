"""Lines and paragraphs of many documents at once, and what there is to count in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from curator_text.measures import characters as ch
from curator_text.measures.joined import Joined, sums_before
from curator_text.measures.spans import Spans, later_equal
from curator_text.measures.words import Words

SHORT_LINE_CHARS = 30  # Source: FineWeb (Penedo et al. 2024, arXiv 2406.17557), section 3.6


@dataclass(frozen=True)
class Lines:
    """Lines as `str.splitlines` cuts them. Those of document d are `of[d]` up to `of[d + 1]`."""

    starts: np.ndarray  # int64
    stops: np.ndarray
    of: np.ndarray  # int64, one more than documents
    breaks: np.ndarray  # of each document, how many line ends it has
    # the first chunk of each line, and one more: those of line i are `chunk[i]` up to `chunk[i + 1]`
    chunk: np.ndarray
    blank: np.ndarray  # bool: nothing but white space
    first: np.ndarray  # the first character that is not white space; of a blank line nothing useful
    last: np.ndarray  # the last one
    words: Words

    @cached_property
    def word(self) -> np.ndarray:
        """The first word of each line, and one more."""
        return np.append(np.searchsorted(self.words.starts, self.starts), len(self.words.starts))

    def __len__(self) -> int:
        return len(self.starts)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """For each document the sum of its lines' values (integers or booleans), int64."""
        summed = np.zeros(len(self.of) - 1, np.int64)
        filled = np.flatnonzero(self.of[1:] > self.of[:-1])
        if len(filled):
            values = values.view(np.uint8) if values.dtype == bool else values
            summed[filled] = np.add.reduceat(values, self.of[filled], dtype=np.int64)
        return summed

    def holding(self, positions: np.ndarray) -> np.ndarray:
        """Which lines have one of these characters in them."""
        has = np.zeros(len(self) + 1, bool)
        has[np.searchsorted(self.starts, positions, "right") - 1] = True
        return has[:-1]


def find_lines(joined: Joined, words: Words) -> Lines:
    """Cut all documents into lines."""
    ends = np.flatnonzero(joined.kinds <= ch.BREAK)
    begins = ends + 1
    if (joined.kinds == ch.BREAK).any():  # "\r\n" is one line end
        second = (joined.codes[ends] == 10) & (joined.codes[ends - 1] == 13)
        second[np.searchsorted(ends, joined.stops)] = False  # the newline between two documents
        begins[:-1] += second[1:]
        single = np.flatnonzero(~second)
        ends, begins = ends[single], begins[single]
    low = np.searchsorted(begins, joined.starts[0])
    high = np.searchsorted(ends, joined.stops[-1])
    starts, stops = begins[low:high], ends[low + 1 : high + 1]
    of = joined.offsets(starts)
    breaks = np.diff(of) - 1
    after_last = of[1:] - 1  # what follows the last line end of a document: if that is nothing, it is no line
    empty = starts[after_last] == joined.stops
    kept = np.ones(len(starts), bool)
    kept[after_last[empty]] = False
    return _with_contents(starts[kept], stops[kept], of - np.append(0, np.cumsum(empty)), breaks, words)


def _with_contents(starts: np.ndarray, stops: np.ndarray, of: np.ndarray, breaks: np.ndarray,
                   words: Words) -> Lines:
    chunk = np.append(np.searchsorted(words.chunks.starts, starts), len(words.chunks.starts))
    first = np.append(words.chunks.starts, 0)[chunk[:-1]]
    last = np.append(0, words.chunks.stops)[chunk[1:]] - 1
    return Lines(starts, stops, of, breaks, chunk, chunk[1:] == chunk[:-1], first, last, words)


def is_ellipsis(codes: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Whether an ellipsis, "..." or "…", has its last character at each of these positions."""
    dotted = codes[last] == ord(".")
    at = np.flatnonzero(dotted)
    dotted[at] = (codes[last[at] - 1] == ord(".")) & (codes[last[at] - 2] == ord("."))
    return dotted | (codes[last] == ord("…"))


def line_counts(joined: Joined, lines: Lines, spans: Spans) -> dict[str, np.ndarray]:
    """For each document, how many lines are of each sort, and how many characters they have."""
    full = ~lines.blank
    sizes = lines.stops - lines.starts
    repeated = later_equal(spans.hash(lines.starts, lines.stops), lines.of) & (sizes > 0)
    codes, kinds = joined.codes, joined.kinds
    begins_with = codes[lines.first]
    return {
        "all": np.diff(lines.of),
        "full": lines.sum(full),
        "not_empty": lines.sum(sizes > 0),
        "repeated": lines.sum(repeated),
        "repeated_chars": lines.sum(sizes * repeated),
        "repeated_full_chars": lines.sum(sizes * (repeated & full)),
        "ended": lines.sum(full & ch.SENTENCE_END[kinds[lines.stops - 1]]),
        "short": lines.sum(full & (sizes <= SHORT_LINE_CHARS)),
        "bullets": lines.sum(full & ((begins_with == ord("-")) | (begins_with == ord("•")))),
        "ellipses": lines.sum(full & is_ellipsis(codes, lines.last)),
    }


def noise_words(joined: Joined, words: Words, lines: Lines) -> np.ndarray:
    """For each document, words in lines that are no text: mostly capitals, numbers, a counter ("3 likes"),
    one word.

    Source: RefinedWeb (Penedo et al. 2023, arXiv 2306.01116), appendix G.2. Its patterns for short lines are
    not published; "mostly" is read as more than half of a line's characters.
    """
    wordy = np.diff(words.wordy_before[lines.word])
    alphabetic = np.diff(words.alphabetic_before[lines.word])
    capitals = np.cumsum(joined.kinds == ch.UPPER, dtype=np.int32)
    shouting = (capitals[lines.stops] - capitals[lines.starts - 1]) * 2 > lines.last - lines.first + 1
    counter = (wordy == 2) & (alphabetic == 1) & (joined.kinds[lines.first] == ch.DIGIT)
    noise = ~lines.blank & (shouting | (alphabetic == 0) | counter | (wordy <= 1))
    return lines.sum(wordy * noise)


def paragraph_counts(joined: Joined, words: Words, lines: Lines, spans: Spans) -> dict[str, np.ndarray]:
    """For each document: its paragraphs (empty lines divide them), those equal to an earlier one, their
    characters."""
    filled = np.flatnonzero(np.diff(words.chunk_of) > 0)
    low, high = joined.starts.copy(), joined.starts.copy()  # the text without white space at its ends
    low[filled] = words.chunks.starts[words.chunk_of[filled]]
    high[filled] = words.chunks.stops[words.chunk_of[filled + 1] - 1]
    document = np.repeat(np.arange(len(joined)), np.diff(lines.of))
    starts, stops = np.maximum(lines.starts, low[document]), np.minimum(lines.stops, high[document])
    kept = np.flatnonzero(starts < stops)
    if len(kept):
        apart = (kept[1:] != kept[:-1] + 1) | (document[kept[1:]] != document[kept[:-1]])
        starts, stops = starts[kept[np.append(True, apart)]], stops[kept[np.append(apart, True)]]
    else:
        starts, stops = starts[:0], stops[:0]
    of = joined.offsets(starts)
    repeated = later_equal(spans.hash(starts, stops), of)
    counts = {"all": np.diff(of), "repeated": repeated, "repeated_chars": (stops - starts) * repeated}
    return {name: value if name == "all" else np.diff(sums_before(value)[of])
            for name, value in counts.items()}
