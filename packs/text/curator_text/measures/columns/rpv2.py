"""What RedPajama-v2 counts (`app/src/core/quality_signals`). Its words are folded: in small letters and
without the punctuation marks of ASCII, divided by white space."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curator_text.measures import characters as ch
from curator_text.measures.columns.group import BOOL, INT, RATIO, Family, Group, Measured, share, table_of
from curator_text.measures.joined import sums_before
from curator_text.measures.repetition import DUPLICATE, TOP, Corpus, Repeated, repeated_grams, top_characters
from curator_text.measures.spans import equal_groups

_BULLETS = table_of("•‣▶◀◦■□▪▫–")
_TERMINALS = table_of(".!?”")
_ENDS = table_of(".!?")
_CURLY = table_of("{}")


def _words(group: Group) -> Measured:
    folded = group.folded
    return {"folded_word_count": folded.counts, "folded_mean_word_length": share(folded.chars, folded.counts)}


def _vocabulary(group: Group) -> Measured:
    """Different words of all, and the entropy of their frequencies in nats."""
    of, counts = group.folded.words.chunk_of, group.folded.counts
    _, begins = equal_groups(group.folded.hashes, of)
    first = np.flatnonzero(begins)
    times = np.diff(np.append(first, len(begins)))
    document = group.folded.corpus.document[first]  # sorted within each document, so the documents in order
    weighted = np.bincount(document, times * np.log(times), len(counts))
    entropy = np.log(np.maximum(counts, 1)) - share(weighted, counts)
    return {"unique_word_ratio": share(np.bincount(document, minlength=len(counts)), counts),
            "word_entropy": np.where(counts > 0, np.maximum(entropy, 0), 0)}


def _repetition(group: Group) -> Measured:
    """Of an n-gram that occurs once nothing counts."""
    corpus = group.folded.corpus
    return {_GRAMS[n]: share(top_characters(repeated, n, corpus, least=2) if n in TOP
                             else _covered(repeated, n, corpus), group.folded.chars)
            for n, repeated in repeated_grams(group.folded.hashes, corpus)}


def _covered(repeated: Repeated, n: int, corpus: Corpus) -> np.ndarray:
    """Characters of the words that are in an n-gram that occurs more than once, each word once."""
    at = np.sort(repeated.at)
    if not len(at):
        return np.zeros(len(corpus.of) - 1, np.int64)
    fresh = np.maximum(at, np.append(0, at[:-1] + n))
    chars = corpus.chars_before[at + n] - corpus.chars_before[fresh]
    return np.bincount(corpus.document[at], chars, len(corpus.of) - 1)


def _sentences(group: Group) -> Measured:
    """Stretches between full stops, question and exclamation marks that have a letter, a digit or "_"."""
    joined = group.joined
    kinds = joined.kinds
    wordy = sums_before(((kinds >= ch.LOWER) & (kinds <= ch.OTHER) & (kinds != ch.MARK))
                        | (joined.codes == ord("_")))
    marks = np.flatnonzero(group.members(_ENDS))
    edges = np.sort(np.concatenate([joined.starts, marks, joined.stops]))
    holding = edges[:-1][wordy[edges[1:]] > wordy[edges[:-1]]]
    return {"sentence_count": group.starting_in(holding)}


def _brackets(group: Group) -> Measured:
    folded = group.folded.joined
    found = group.starting_in(group.places(b"lorem ipsum"))
    return {"curly_bracket_ratio": share(group.count(group.members(_CURLY)), group.chars_all),
            "lorem_ipsum_ratio": share(found, folded.stops - folded.starts)}


def _lines(group: Group) -> Measured:
    lines, codes, kinds = group.lines, group.joined.codes, group.joined.kinds
    full = np.flatnonzero(~lines.blank)
    starts, stops = lines.starts[full], lines.stops[full]
    of = np.searchsorted(full, lines.of)
    count = np.diff(of)

    def of_lines(which: np.ndarray) -> np.ndarray:
        before = sums_before(which)
        return (before[stops] - before[starts]) / (stops - starts)

    bullets = _BULLETS.take(codes[lines.first[full]], mode="clip")
    terminals = _TERMINALS.take(codes[lines.last[full]], mode="clip")
    values = {"line_word_counts": np.diff(lines.chunk)[full],
              "line_upper_ratios": of_lines(kinds == ch.UPPER),
              "line_digit_ratios": of_lines(kinds == ch.DIGIT),
              "line_bullets": bullets, "line_terminals": terminals}
    return {
        "rpv2_bullet_line_ratio": share(np.diff(sums_before(bullets)[of]), count),
        "rpv2_terminal_line_ratio": share(np.diff(sums_before(terminals)[of]), count),
        **{name: np.split(value, of[1:-1]) for name, value in values.items()},
    }


_GRAMS = {n: f"rpv2_{'top' if n in TOP else 'duplicate'}_{n}_gram_char_ratio" for n in (*TOP, *DUPLICATE)}
FAMILIES = (
    Family(_words, {"folded_word_count": INT, "folded_mean_word_length": RATIO}),
    Family(_vocabulary, {"unique_word_ratio": RATIO, "word_entropy": RATIO}),
    Family(_repetition, dict.fromkeys(_GRAMS.values(), RATIO)),
    Family(_sentences, {"sentence_count": INT}),
    Family(_brackets, {"curly_bracket_ratio": RATIO, "lorem_ipsum_ratio": RATIO}),
    Family(_lines, {"rpv2_bullet_line_ratio": RATIO, "rpv2_terminal_line_ratio": RATIO,
                    "line_word_counts": pa.list_(INT), "line_upper_ratios": pa.list_(RATIO),
                    "line_digit_ratios": pa.list_(RATIO), "line_bullets": pa.list_(BOOL),
                    "line_terminals": pa.list_(BOOL)}),
)
