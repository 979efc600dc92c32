"""What Gopher's, C4's, FineWeb's and RefinedWeb's rules are made of, and a few more: measured by default."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from curator_text.clean import c4
from curator_text.measures import characters as ch
from curator_text.measures import repetition
from curator_text.measures.columns.group import BOOL, INT, LONG, RATIO, Family, Group, Measured, share
from curator_text.measures.joined import sums_before
from curator_text.measures.lines import line_counts, noise_words, paragraph_counts
from curator_text.measures.spans import hash_text
from curator_text.measures.stopwords import STOP_WORDS

_URL = re.compile(r"https?://[^\s<>\"]+")


def _length(group: Group) -> Measured:
    return {"char_count": np.array([len(text) for text in group.texts])}


def _words(group: Group) -> Measured:
    words, tokens = group.words, group.tokens
    count = np.diff(words.wordy_before[words.of])
    chars = np.diff(sums_before((words.stops - words.starts) * words.wordy)[words.of])
    return {
        "token_count": tokens,
        "word_count": count,
        "mean_word_length": share(chars, count),
        "alphabetic_word_ratio": share(np.diff(words.alphabetic_before[words.of]), tokens),
        "newline_ratio": share(group.lines.breaks, tokens),
        "noise_word_ratio": share(noise_words(group.joined, words, group.lines), count),
    }


def _longest(group: Group) -> Measured:
    longest = np.zeros(len(group.counts), np.int64)
    some = np.flatnonzero(group.counts > 0)
    if len(some):
        longest[some] = np.maximum.reduceat(group.sizes, group.words.chunk_of[some])
    return {"longest_word": longest}


def _marks(group: Group) -> Measured:
    starts, stops = group.words.marks
    code = group.joined.codes[starts]
    hashes = np.flatnonzero(code == ord("#"))
    dots = np.flatnonzero((code == ord(".")) & (stops - starts >= 3))
    ellipses = np.append(dots, np.flatnonzero(code == ord("…")))
    times = np.maximum((stops[ellipses] - starts[ellipses]) // 3, 1)  # six full stops are two ellipses
    return {
        "hash_ratio": share(group.starting_in(starts[hashes]), group.tokens),
        "ellipsis_ratio": share(group.starting_in(starts[ellipses], times), group.tokens),
    }


def _letters(group: Group) -> Measured:
    kinds = group.joined.kinds
    letters = group.count(kinds - np.uint8(ch.LOWER) <= ch.MAINLAND - ch.LOWER)  # lesser kinds wrap around
    return {
        "alpha_ratio": share(letters, group.chars_all),
        "upper_ratio": share(group.count(kinds == ch.UPPER), letters),
        "spaceless_ratio": share(np.diff(group.joined.offsets(group.words.spaceless)), letters),
    }


def _digits(group: Group) -> Measured:
    return {"digit_ratio": share(group.count(group.joined.kinds == ch.DIGIT), group.chars_all)}


def _spaces(group: Group) -> Measured:
    return {"space_ratio": share(group.count(group.joined.kinds <= ch.SPACE), group.chars_all)}


def _symbols(group: Group) -> Measured:
    return {"symbol_ratio": share(group.count(group.joined.kinds >= ch.SYMBOL), group.chars_all)}


def _urls(group: Group) -> Measured:
    urls = np.array([found.span() for found in _URL.finditer(group.joined.text)], np.int64).reshape(-1, 2)
    return {"url_ratio": share(group.starting_in(urls[:, 0], urls[:, 1] - urls[:, 0]), group.chars_all)}


def _lines(group: Group) -> Measured:
    counts = line_counts(group.joined, group.lines, group.spans)
    full, sizes = counts["full"], group.chars_all
    return {
        "line_count": full,
        "bullet_line_ratio": share(counts["bullets"], counts["all"]),
        "ellipsis_line_ratio": share(counts["ellipses"], counts["all"]),
        "duplicate_line_ratio": share(counts["repeated"], counts["not_empty"]),
        "duplicate_line_char_ratio": share(counts["repeated_chars"], sizes),
        "line_punct_ratio": share(counts["ended"], full),
        "short_line_ratio": share(counts["short"], full),
        "line_char_duplicate_ratio": share(counts["repeated_full_chars"], sizes - group.lines.breaks),
    }


def _paragraphs(group: Group) -> Measured:
    counts = paragraph_counts(group.joined, group.words, group.lines, group.spans)
    return {
        "duplicate_paragraph_ratio": share(counts["repeated"], counts["all"]),
        "duplicate_paragraph_char_ratio": share(counts["repeated_chars"], group.chars_all),
    }


def _c4(group: Group) -> Measured:
    lines = group.lines
    rules = c4.line_rules(group.joined, group.words, lines)
    full = lines.sum(~lines.blank)
    return {
        "c4_sentence_count": lines.sum(c4.line_sentences(group.joined, group.words, lines) * rules.kept),
        "c4_line_ratio": share(lines.sum(rules.kept), full),
        "c4_lorem_ipsum": lines.sum(rules.lorem_ipsum) > 0,
        "c4_curly_bracket": lines.sum(rules.curly_bracket) > 0,
        "terminal_line_ratio": share(lines.sum(rules.terminal), full),
        "javascript_line_ratio": share(lines.sum(rules.javascript), full),
        "policy_line_ratio": share(lines.sum(rules.policy), full),
    }


def _repetition(group: Group) -> Measured:
    words = group.words
    found = repetition.repeated_characters(group.token_hashes, words.stops - words.starts, words.of)
    return {name: share(found[n], group.chars_all) for n, name in _GRAMS.items()}


def _stop_words(group: Group) -> Measured:
    counts = stop_words(group.token_hashes, group.words.of, group.languages)
    return {"stop_word_count": [None if found is None else np.count_nonzero(found) for found in counts]}


def stop_words(hashes: np.ndarray, of: np.ndarray, languages: Sequence[str | None]) -> list[np.ndarray | None]:
    """For each document how often each stop word of its language occurs, None where there is no list.

    `hashes`: of the words of all documents, document d having `of[d]` up to `of[d + 1]`.
    """
    known = sorted(STOP_WORDS.keys() & set(languages))
    lists = {language: np.array([hash_text(word) for word in STOP_WORDS[language]], np.uint64)
             for language in known}
    wanted = np.unique(np.concatenate([np.zeros(0, np.uint64), *lists.values()]))
    likely = np.zeros(1 << 16, bool)  # by the lowest bits: few other words pass
    likely[wanted.astype(np.uint16)] = True
    at = np.flatnonzero(likely[hashes.astype(np.uint16)])
    which = np.searchsorted(wanted, hashes[at])
    certain = np.flatnonzero(np.append(wanted, np.uint64(0))[which] == hashes[at])
    document = np.searchsorted(of, at[certain], "right") - 1
    cells = np.bincount(document * len(wanted) + which[certain], minlength=len(languages) * len(wanted))
    cells = cells.reshape(len(languages), len(wanted))
    member = {language: np.isin(wanted, lists[language]) for language in known}
    return [cells[d][member[language]] if language in member else None
            for d, language in enumerate(languages)]


_GRAMS = {n: f"{'top' if n in repetition.TOP else 'duplicate'}_{n}_gram_char_ratio"
          for n in (*repetition.TOP, *repetition.DUPLICATE)}
FAMILIES = (
    Family(_length, {"char_count": LONG}),
    Family(_words, {"word_count": INT, "token_count": INT, "mean_word_length": RATIO,
                    "alphabetic_word_ratio": RATIO, "newline_ratio": RATIO, "noise_word_ratio": RATIO}),
    Family(_longest, {"longest_word": INT}),
    Family(_marks, {"hash_ratio": RATIO, "ellipsis_ratio": RATIO}),
    Family(_stop_words, {"stop_word_count": INT}),
    Family(_letters, {"alpha_ratio": RATIO, "upper_ratio": RATIO, "spaceless_ratio": RATIO}),
    Family(_digits, {"digit_ratio": RATIO}),
    Family(_spaces, {"space_ratio": RATIO}),
    Family(_symbols, {"symbol_ratio": RATIO}),
    Family(_urls, {"url_ratio": RATIO}),
    Family(_lines, {"line_count": INT, **dict.fromkeys((
        "bullet_line_ratio", "ellipsis_line_ratio", "duplicate_line_ratio", "duplicate_line_char_ratio",
        "line_punct_ratio", "short_line_ratio", "line_char_duplicate_ratio"), RATIO)}),
    Family(_paragraphs, {"duplicate_paragraph_ratio": RATIO, "duplicate_paragraph_char_ratio": RATIO}),
    Family(_c4, {"c4_sentence_count": INT, "c4_line_ratio": RATIO, "c4_lorem_ipsum": BOOL,
                 "c4_curly_bracket": BOOL, "terminal_line_ratio": RATIO, "javascript_line_ratio": RATIO,
                 "policy_line_ratio": RATIO}),
    Family(_repetition, dict.fromkeys(_GRAMS.values(), RATIO)),
)
