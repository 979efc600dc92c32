"""Statistics of a text, those that the published rules for web text are made of, in one pass.

A ratio is a share of what its name says, from 0 to 1 (but for top_…, see below), float64 so that a value on a
threshold compares as the fraction that it is. Counts are int32, `char_count` int64. A text without
characters, lines or words has 0. A token is a word or a punctuation mark, see `curator_text.measures.words`;
a line ends where `str.splitlines` ends one, and "lines" below are those that are not blank, unless it says
otherwise.

This is what is measured by default; more columns, which are measured when `only` asks for them, are listed in
docs/text-rules.md.

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
arXiv 2406.17557. RefinedWeb: Penedo et al. 2023, arXiv 2306.01116.

Where the papers leave it open, these are datatrove's definitions, so that the rule sets give its verdicts;
how often they do tells `benchmarks/text_signals.py`. Known differences: all line ends of `str.splitlines`
count everywhere, an empty piece before the first or behind the last line end is no line, and stop words are
looked for only in languages with a list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.findings import Alarm, Finding
from curator.api.format import listing
from curator.api.stage import Context, Contract, Stage
from curator_text.language.language_codes import is_code, languages_of
from curator_text.measures import characters as ch
from curator_text.measures.columns.families import COLUMNS, FAMILIES, wanted
from curator_text.measures.columns.group import MEASURED_CHARS_MAX, Group
from curator_text.measures.joined import groups
from curator_text.measures.patterns import PATTERNS


@dataclass(kw_only=True)
class Signals(Stage):
    """Measure a text: the statistics that the Gopher, C4, FineWeb and RefinedWeb rules need, and a few more.

    Adds the columns of the table in `curator_text.measures.signals`. Decide on them with `drop`, by a
    packaged rule set (`gopher_quality`, `gopher_repetition`, `c4`, `fineweb`, `refinedweb`; with `only`
    `nemo_en`, `nemo_other`, `dolma`, `dolma3`, `rpv2`) or conditions of your own. Null is measured as an
    empty text. Of a text of over 4 million characters the first 4 million are measured (`char_count` counts
    all).

    `column`: the text. `language_column`: its language (ISO 639-1), which chooses the stop words; where the
    column is missing or null, `language` is taken (null: unknown). `only`: columns to measure, of all that
    docs/text-rules.md lists, or rule sets, for the columns that they read; `standard` is what is measured
    without it. What is left out is not computed, though columns that come of one computation cost what one of
    them does.
    """

    column: str = "text"
    language_column: str = "language"
    language: str | None = "en"
    only: str | list[str] | None = None

    sparse = ("policy_line_ratio", "porn_url", "lorem_ipsum_ratio", "policy_paragraph_ratio", "escaped_ratio",
              "translation_note_count",
              "mixed_script_word_ratio", "in_a_row_char_ratio", "madlad_list_ratio", "cut_line_ratio",
              "bullet_sign_line_ratio", "rpv2_bullet_line_ratio", "dolma_ellipsis_line_ratio")

    def __post_init__(self) -> None:
        self._columns = COLUMNS if self.only is None else wanted(self.only)
        self.count_by = (self.language_column,)

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds=self._columns)

    def parameters(self) -> dict[str, Any]:
        """With the columns in the place of the rule sets that name them."""
        return super().parameters() | {"only": sorted(self._columns)}

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        unknown = [repr(code) for code in counts.by_value.get(self.language_column, {}) if not is_code(code)]
        if unknown:
            yield Alarm("warning", f"Column {self.language_column} before stage {step} holds "
                                   f"{listing(unknown)}, unknown as a language code: use ISO 639 codes, "
                                   "such as en or deu, or no stop words are counted.")

    def text_marks(self) -> dict[str, str]:
        return {column: PATTERNS[column] for column in self._columns if column in PATTERNS}

    def setup(self, ctx: Context) -> None:
        ch.kind_table()
        # Where this runs outside of a worker, whose environment says it: after glibc's malloc has freed one
        # block of this size it keeps freed memory, instead of giving it back and fetching it anew for each
        # group of texts, which costs a fifth of the time. No page of it is touched.
        np.empty(16 << 20, np.uint8)

    def process(self, batch: Batch) -> Batch:
        languages = languages_of(batch, self.language_column, self.language)
        measured = measure(batch.column(self.column), languages, self._columns)
        return batch.with_columns({name: pa.array(measured[name], kind) for name, kind in self._columns.items()})


def measure(texts: Sequence[str | None], languages: Sequence[str | None],
            columns: Collection[str] = COLUMNS) -> dict[str, list | np.ndarray]:
    """These signals of each text by column name, in order."""
    families = [family for family in FAMILIES if not family.columns.keys().isdisjoint(columns)]
    parts: dict[str, list] = {name: [] for name in columns}
    done = 0
    for texts_of_group in groups(texts):
        group = Group(texts_of_group, languages[done : done + len(texts_of_group)], MEASURED_CHARS_MAX)
        for family in families:
            for name, values in family.measure(group).items():
                if name in parts:
                    parts[name].append(values)
        done += len(texts_of_group)
    return {name: _joined(values) for name, values in parts.items()}


def _joined(parts: list) -> list | np.ndarray:
    """Of lists, which have nulls, a list."""
    if not parts or isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts)
