"""Statistics of a text, those that the published rules for web text are made of, in one pass.

A ratio is a share of what its name says, from 0 to 1 (but for top_…, see below), float64 so that a value on a
threshold compares as the fraction that it is. Counts are int32, `char_count` int64. A text without
characters, lines or words has 0. A token is a word or a punctuation mark, see `curator_text.measures.words`;
a line ends where `str.splitlines` ends one, and "lines" below are those that are not blank, unless it says
otherwise.

| column | what | source |
| --- | --- | --- |
| char_count | characters | |
| token_count | words and punctuation marks | |
| word_count | words: tokens that are not only punctuation and symbols | Gopher A1.1 |
| mean_word_length | characters a word | Gopher A1.1 |
| longest_word | characters of the longest stretch without white space | C4 2.2 |
| alphabetic_word_ratio | tokens with a letter, of tokens | Gopher A1.1 |
| hash_ratio, ellipsis_ratio | "#", and "..." or "…", a token | Gopher A1.1 |
| stop_word_count | different stop words of the language that occur; null without a list | Gopher A1.1 |
| bullet_line_ratio | lines that begin with "-" or "•", of all lines | Gopher A1.1 |
| ellipsis_line_ratio | lines that end with an ellipsis, of all lines | Gopher A1.1 |
| duplicate_line_ratio | lines equal to an earlier one, of lines that are not empty | Gopher table A1 |
| duplicate_line_char_ratio | characters in them, of all | Gopher table A1 |
| duplicate_paragraph_ratio, duplicate_paragraph_char_ratio | the same of paragraphs (between empty lines) | Gopher table A1 |
| top_2_gram_char_ratio, top_3_…, top_4_… | characters of the most frequent n-gram by its count, may pass 1 | Gopher table A1 |
| duplicate_5_gram_char_ratio to duplicate_10_… | characters in n-grams that came before, of all | Gopher table A1 |
| c4_sentence_count | sentences in the lines that C4 keeps | C4 2.2 |
| c4_line_ratio | lines that C4 keeps | C4 2.2 |
| c4_lorem_ipsum, c4_curly_bracket | in a line that C4 looks at (bool) | C4 2.2 |
| terminal_line_ratio | lines that end in terminal punctuation as C4 means it | C4 2.2 |
| javascript_line_ratio, policy_line_ratio | lines with the word, with a policy phrase | C4 2.2 |
| line_count | lines | |
| line_punct_ratio | lines whose last character ends a sentence, in any script | FineWeb 3.6 |
| short_line_ratio | lines of up to 30 characters | FineWeb 3.6 |
| line_char_duplicate_ratio | characters in lines equal to an earlier one, of all but line ends | FineWeb 3.6 |
| newline_ratio | line ends a token | FineWeb 3.6 |
| noise_word_ratio | words in lines of capitals, of numbers, of one word or with a counter, of words | RefinedWeb G.2 |
| alpha_ratio, digit_ratio, space_ratio | letters, digits, white space, of characters | |
| symbol_ratio | punctuation, symbols and controls, of characters | |
| upper_ratio, spaceless_ratio | capitals, letters of scripts without spaces, of letters | |
| url_ratio | characters in http and https addresses, of characters | |

Gopher: Rae et al. 2021, arXiv 2112.11446. C4: Raffel et al. 2020, JMLR 21/140. FineWeb: Penedo et al. 2024,
arXiv
2406.17557. RefinedWeb: Penedo et al. 2023, arXiv 2306.01116.

Where the papers leave it open, these are datatrove's definitions, so that the rule sets give its verdicts;
how often they do tells `benchmarks/text_signals.py`. Known differences: all line ends of `str.splitlines`
count everywhere, an empty piece before the first or behind the last line end is no line, and stop words are
looked for only in languages with a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.findings import Alarm, Finding
from curator.api.format import listing
from curator.api.stage import Context, Contract, Stage
from curator_text.clean import c4
from curator_text.language.language_codes import is_code, short_code
from curator_text.measures import characters as ch
from curator_text.measures import repetition
from curator_text.measures.joined import Joined, groups, join, sums_before
from curator_text.measures.lines import Lines, find_lines, line_counts, paragraph_counts
from curator_text.measures.spans import Spans, hash_text
from curator_text.measures.stopwords import STOP_WORDS
from curator_text.measures.words import Words, split

# of a longer text its beginning is measured: bounds the memory: 0.2 GB for prose, 0.8 GB at worst
MEASURED_CHARS_MAX = 4_000_000

_COUNTS = ("word_count", "token_count", "longest_word", "line_count", "stop_word_count", "c4_sentence_count")
_RATIOS = (
    "mean_word_length", "hash_ratio", "ellipsis_ratio", "alphabetic_word_ratio", "spaceless_ratio",
    "bullet_line_ratio", "ellipsis_line_ratio",
    "duplicate_line_ratio", "duplicate_line_char_ratio", "duplicate_paragraph_ratio",
    "duplicate_paragraph_char_ratio",
    *(f"top_{n}_gram_char_ratio" for n in repetition.TOP),
    *(f"duplicate_{n}_gram_char_ratio" for n in repetition.DUPLICATE),
    "c4_line_ratio", "terminal_line_ratio", "javascript_line_ratio", "policy_line_ratio",
    "line_punct_ratio", "short_line_ratio", "line_char_duplicate_ratio", "newline_ratio", "noise_word_ratio",
    "alpha_ratio", "digit_ratio", "space_ratio", "symbol_ratio", "upper_ratio", "url_ratio",
)
COLUMNS: dict[str, pa.DataType] = {
    "char_count": pa.int64(),
    **dict.fromkeys(_COUNTS, pa.int32()),
    **dict.fromkeys(_RATIOS, pa.float64()),
    "c4_lorem_ipsum": pa.bool_(),
    "c4_curly_bracket": pa.bool_(),
}
_URL = re.compile(r"https?://[^\s<>\"]+")


@dataclass(kw_only=True)
class Signals(Stage):
    """Measure a text: the statistics that the Gopher, C4, FineWeb and RefinedWeb rules need, and a few more.

    Adds the columns of the table in `curator_text.measures.signals`. Decide on them with `drop`, by a
    packaged rule set (`gopher_quality`, `gopher_repetition`, `c4`, `fineweb`, `refinedweb`) or conditions of
    your own. Null is measured as an empty text. Of a text of over 4 million characters the first 4 million
    are measured (`char_count` counts all).

    `column`: the text. `language_column`: its language (ISO 639-1), which chooses the stop words; where the
    column is missing or null, `language` is taken (null: unknown).
    """

    column: str = "text"
    language_column: str = "language"
    language: str | None = "en"

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds=COLUMNS)

    @property
    def count_by(self) -> tuple[str, ...]:
        return (self.language_column,)

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        unknown = [repr(code) for code in counts.by_value.get(self.language_column, {}) if not is_code(code)]
        if unknown:
            yield Alarm("warning", f"Column {self.language_column} before stage {step} holds "
                                   f"{listing(unknown)}, unknown as a language "
                        "code: use ISO 639 codes, such as en or deu, or no stop words are counted.")

    def setup(self, ctx: Context) -> None:
        ch.kind_table()
        # After glibc's malloc has freed one block of this size it keeps freed memory, instead of giving it
        # back and fetching it anew for each group of texts, which costs a fifth of the time. No page of it is
        # touched.
        np.empty(16 << 20, np.uint8)

    def process(self, batch: Batch) -> Batch:
        languages: Sequence[str | None] = [None] * len(batch)
        if self.language_column in batch.rows.column_names:
            languages = batch.column(self.language_column)
        languages = [short_code(self.language if language is None else language) for language in languages]
        measured = measure(batch.column(self.column), languages)
        return batch.with_columns({name: pa.array(measured[name], kind) for name, kind in COLUMNS.items()})


def measure(texts: Sequence[str | None], languages: Sequence[str | None]) -> dict[str, list | np.ndarray]:
    """The signals of each text by column name, in order."""
    parts: dict[str, list] = {name: [np.zeros(0, bool)] for name in COLUMNS}
    done = 0
    for group in groups(texts):
        for name, values in _measure_group(group, languages[done : done + len(group)]).items():
            parts[name].append(values)
        done += len(group)
    # a list: it has nulls
    stop_words = [count for counts in parts.pop("stop_word_count") for count in counts]
    return {"stop_word_count": stop_words} | {name: np.concatenate(values) for name, values in parts.items()}


def _measure_group(texts: list[str], languages: Sequence[str | None]) -> dict[str, list | np.ndarray]:
    joined = join([text[:MEASURED_CHARS_MAX] for text in texts])
    words = split(joined)
    lines = find_lines(joined, words)
    spans = Spans(joined.codes)
    hashes = spans.hash(words.starts, words.stops)
    sizes, tokens = joined.stops - joined.starts, np.diff(words.of)
    found = repetition.repeated_characters(hashes, words.stops - words.starts, words.of)
    return {
        "char_count": np.array([len(text) for text in texts]),
        "token_count": tokens,
        "stop_word_count": _stop_words(hashes, words.of, languages),
        **_of_words(words, tokens),
        **_of_marks(joined, words, tokens),
        **_of_characters(joined, words, sizes),
        **_of_lines(line_counts(joined, words, lines, spans), words, sizes, sizes - lines.breaks),
        "newline_ratio": _share(lines.breaks, tokens),
        **_of_paragraphs(paragraph_counts(joined, words, lines, spans), sizes),
        **_of_c4(joined, words, lines),
        **{f"top_{n}_gram_char_ratio": _share(found[n], sizes) for n in repetition.TOP},
        **{f"duplicate_{n}_gram_char_ratio": _share(found[n], sizes) for n in repetition.DUPLICATE},
    }


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


def _of_words(words: Words, tokens: np.ndarray) -> dict[str, np.ndarray]:
    count = np.diff(words.wordy_before[words.of])
    chars = np.diff(sums_before((words.stops - words.starts) * words.wordy)[words.of])
    longest = np.zeros(len(tokens), np.int64)
    some = np.flatnonzero(np.diff(words.chunk_of) > 0)
    if len(some):
        longest[some] = np.maximum.reduceat(words.chunks.stops - words.chunks.starts, words.chunk_of[some])
    return {
        "word_count": count,
        "mean_word_length": _share(chars, count),
        "longest_word": longest,
        "alphabetic_word_ratio": _share(np.diff(words.alphabetic_before[words.of]), tokens),
    }


def _of_marks(joined: Joined, words: Words, tokens: np.ndarray) -> dict[str, np.ndarray]:
    starts, stops = words.marks
    code = joined.codes[starts]
    hashes = np.flatnonzero(code == ord("#"))
    dots = np.flatnonzero((code == ord(".")) & (stops - starts >= 3))
    ellipses = np.append(dots, np.flatnonzero(code == ord("…")))
    times = np.maximum((stops[ellipses] - starts[ellipses]) // 3, 1)  # six full stops are two ellipses
    return {
        "hash_ratio": _share(np.bincount(joined.document(starts[hashes]), minlength=len(tokens)), tokens),
        "ellipsis_ratio": _share(np.bincount(joined.document(starts[ellipses]), times, len(tokens)), tokens),
    }


def _of_characters(joined: Joined, words: Words, sizes: np.ndarray) -> dict[str, np.ndarray]:
    kinds = joined.kinds
    spans = [slice(*span) for span in zip(joined.starts.tolist(), joined.stops.tolist(), strict=True)]

    def count(which: np.ndarray) -> np.ndarray:
        return np.array([np.count_nonzero(which[span]) for span in spans])

    letters = count(kinds - np.uint8(ch.LOWER) <= ch.MAINLAND - ch.LOWER)  # lesser kinds wrap around
    urls = np.array([found.span() for found in _URL.finditer(joined.text)], np.int64).reshape(-1, 2)
    url_chars = np.bincount(joined.document(urls[:, 0]), urls[:, 1] - urls[:, 0], len(sizes))
    return {
        "alpha_ratio": _share(letters, sizes),
        "digit_ratio": _share(count(kinds == ch.DIGIT), sizes),
        "space_ratio": _share(count(kinds <= ch.SPACE), sizes),
        "symbol_ratio": _share(count(kinds >= ch.SYMBOL), sizes),
        "upper_ratio": _share(count(kinds == ch.UPPER), letters),
        "spaceless_ratio": _share(np.diff(joined.offsets(words.spaceless)), letters),
        "url_ratio": _share(url_chars, sizes),
    }


def _of_lines(counts: dict[str, np.ndarray], words: Words, sizes: np.ndarray,
              in_lines: np.ndarray) -> dict[str, np.ndarray]:
    full = counts["full"]
    return {
        "line_count": full,
        "bullet_line_ratio": _share(counts["bullets"], counts["all"]),
        "ellipsis_line_ratio": _share(counts["ellipses"], counts["all"]),
        "duplicate_line_ratio": _share(counts["repeated"], counts["not_empty"]),
        "duplicate_line_char_ratio": _share(counts["repeated_chars"], sizes),
        "line_punct_ratio": _share(counts["ended"], full),
        "short_line_ratio": _share(counts["short"], full),
        "line_char_duplicate_ratio": _share(counts["repeated_full_chars"], in_lines),
        "noise_word_ratio": _share(counts["noise_words"], np.diff(words.wordy_before[words.of])),
    }


def _of_paragraphs(counts: dict[str, np.ndarray], sizes: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "duplicate_paragraph_ratio": _share(counts["repeated"], counts["all"]),
        "duplicate_paragraph_char_ratio": _share(counts["repeated_chars"], sizes),
    }


def _of_c4(joined: Joined, words: Words, lines: Lines) -> dict[str, np.ndarray]:
    rules = c4.line_rules(joined, words, lines)
    full = lines.sum(~lines.blank)
    return {
        "c4_sentence_count": lines.sum(c4.line_sentences(joined, words, lines) * rules.kept),
        "c4_line_ratio": _share(lines.sum(rules.kept), full),
        "c4_lorem_ipsum": lines.sum(rules.lorem_ipsum) > 0,
        "c4_curly_bracket": lines.sum(rules.curly_bracket) > 0,
        "terminal_line_ratio": _share(lines.sum(rules.terminal), full),
        "javascript_line_ratio": _share(lines.sum(rules.javascript), full),
        "policy_line_ratio": _share(lines.sum(rules.policy), full),
    }


def _stop_words(hashes: np.ndarray, of: np.ndarray, languages: Sequence[str | None]) -> list[int | None]:
    """How many different stop words of its language each document has, None where there is no list."""
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
    present = cells.reshape(len(languages), len(wanted)) > 0
    member = {language: np.isin(wanted, lists[language]) for language in known}
    return [np.count_nonzero(present[d] & member[language]) if language in member else None
            for d, language in enumerate(languages)]
