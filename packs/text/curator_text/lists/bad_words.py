"""Words of a list that a page must not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.stages.sample import chance
from curator_text.language.language_codes import languages_of
from curator_text.lists.terms import Terms
from curator_text.lists.word_files import WITHOUT_SPACES, as_terms, digest, read_word_lists
from curator_text.measures import characters as ch
from curator_text.measures.joined import groups, join
from curator_text.measures.spans import Spans

# Entries of LDNOOBW that ordinary text is full of. Source: C4's published code (tensorflow_datasets,
# c4_utils.py).
ORDINARY = {"ja": ["sm", "グロ", "女の子"], "zh": ["性"]}


@dataclass(kw_only=True)
class BadWords(Stage):
    """Count the words and phrases of a text that are on the list of its language.

    Adds `bad_words` (int32: how often any occurs; null where there is no text, or no list for its language),
    `bad_word` (string: the first one in the text; null where there is none) and `bad_words_spared` (bool: it
    has some, and is one of those that stay all the same). C4's rule for pages is then `drop: {bad_words:
    bad_words > 0 AND NOT bad_words_spared}`; behind `text.signals` a share of words is `bad_words > 0.01 *
    word_count`.

    `lists`: files, folders, globs or URLs, a file a language, called by it (`en`, `de.txt`), an entry a line:
    the layout of LDNOOBW. Without any, all is null. `language_column`: the language of a row (codes of ISO
    639, as `text.language` and fastText's models give them); `language`: that of rows without one, or of all
    where there is no such column. `ordinary`: language to entries of its list that do not count.
    `keep_fraction`: of pages with bad words so many are spared, chosen by a hash of `seed` and id.

    Case makes no difference. An entry counts where it is no part of a longer word; in languages that put no
    space between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan) wherever it stands.

    Source: C4 (Raffel et al. 2020, JMLR 21/140), 2.2, and its published code. Known difference: vowel signs
    of Indic scripts are parts of words here. Lists: LDNOOBW (CC BY 4.0), of which C4 took the English one at
    commit 25e679f; it takes pages about health and about gay people with it (Dodge et al. 2021, arXiv
    2104.08758).
    """

    column: str = "text"
    lists: str | list[str] | None = None
    language_column: str = "language"
    language: str = "en"
    ordinary: dict[str, list[str]] = field(default_factory=lambda: dict(ORDINARY))
    keep_fraction: float = 0.0
    seed: int = 0

    sparse = ("bad_words", "bad_word", "bad_words_spared")

    def __post_init__(self) -> None:
        if not 0 <= self.keep_fraction <= 1:
            raise ValueError(f"keep_fraction must be from 0 to 1, got {self.keep_fraction}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {self.seed}")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={"bad_words": pa.int32(), "bad_word": pa.string(),
                              "bad_words_spared": pa.bool_()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        self._read()

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"lists": digest(self._read())}

    def _read(self) -> dict[str, list[str]]:
        return read_word_lists(self.lists)

    def setup(self, ctx: Context) -> None:
        ch.kind_table()
        ordinary = {language: {entry.lower() for entry in some} for language, some in self.ordinary.items()}
        lists = {language: [entry for entry in listed if entry.lower() not in ordinary.get(language, ())]
                 for language, listed in self._read().items()}
        self._terms = as_terms(lists, lower=True)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = [None if text is None else text.lower() for text in batch.column(self.column)]
        counts: list[int | None] = [None] * len(batch)
        first: list[str | None] = [None] * len(batch)
        languages = languages_of(batch, self.language_column, self.language)
        for language, rows in rows_of(languages, texts, self._terms).items():
            terms = self._terms[language]
            found = found_in([texts[row] or "" for row in rows], terms, language in WITHOUT_SPACES)
            for row, numbers in zip(rows, found, strict=True):
                counts[row] = len(numbers)
                first[row] = terms.terms[numbers[0]] if len(numbers) else None
        drawn = chance(batch.rows.column("id"), self.seed) < self.keep_fraction
        spared = [None if count is None else bool(count and one)
                  for count, one in zip(counts, drawn.tolist(), strict=True)]
        return batch.with_columns({"bad_words": pa.array(counts, pa.int32()),
                                   "bad_word": pa.array(first, pa.string()),
                                   "bad_words_spared": pa.array(spared, pa.bool_())})


def rows_of(languages: Sequence[str | None], texts: Sequence[str | None],
            lists: Mapping[str, Terms]) -> dict[str, list[int]]:
    """The rows with a text, by language, of languages with a list."""
    rows: dict[str, list[int]] = {}
    for row, (language, text) in enumerate(zip(languages, texts, strict=True)):
        if text is not None and language is not None and language in lists:
            rows.setdefault(language, []).append(row)
    return rows


def found_in(texts: Sequence[str], terms: Terms, anywhere: bool) -> list[np.ndarray]:
    """For each text the numbers of the terms in it, in order, each as often as it occurs."""
    found: list[np.ndarray] = []
    for group in groups(texts):
        joined = join(group)
        look = terms.anywhere if anywhere else terms.as_words
        place, number = look(joined, Spans(joined.codes))
        found += np.split(number, np.searchsorted(joined.document(place), np.arange(1, len(joined))))
    return found
