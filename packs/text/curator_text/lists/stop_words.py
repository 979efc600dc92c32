"""Stop words of lists of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.language.language_codes import languages_of
from curator_text.lists.bad_words import found_in, rows_of
from curator_text.lists.tables import read_stop_words
from curator_text.lists.word_files import WITHOUT_SPACES, as_terms, digest
from curator_text.measures import characters as ch

_ANYWHERE = WITHOUT_SPACES | {"ko"}  # Korean particles are written to the word before them


@dataclass(kw_only=True)
class StopWords(Stage):
    """Count the different stop words of its language in a text, by lists of one's own.

    Adds `stop_word_count` (int32; null where there is no text, or no list for its language), in place of that
    of `text.signals`, whose lists are eight words each for 28 languages. The rule sets `gopher_quality` and
    `fineweb2` ask for two.

    `lists`: `fineweb2`, FineWeb-2's lists for 13 large languages; a folder of its `configs/*.yml`, one
    language a file; or word lists, files called by their language (`en`, `de.txt`) with a word a line.
    `column`, `language_column`, `language`: as `text.bad_words` has them.

    A word counts as it is written in the list, upper and lower case too, where it is no part of a longer
    word; in Chinese, Japanese, Korean and other languages that write words together wherever it stands.
    Known difference: FineWeb-2 has a tokeniser divide these, so that it finds fewer.

    Source: FineWeb-2 (Penedo et al. 2025, arXiv 2506.20920) and github.com/huggingface/fineweb-2.
    """

    column: str = "text"
    lists: str | list[str] = "fineweb2"
    language_column: str = "language"
    language: str | None = None

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={"stop_word_count": pa.int32()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        read_stop_words(self.lists)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"lists": digest(read_stop_words(self.lists))}

    def setup(self, ctx: Context) -> None:
        ch.kind_table()
        self._terms = as_terms(read_stop_words(self.lists), lower=False)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        counts: list[int | None] = [None] * len(batch)
        languages = languages_of(batch, self.language_column, self.language)
        for language, rows in rows_of(languages, texts, self._terms).items():
            found = found_in([texts[row] for row in rows], self._terms[language], language in _ANYWHERE)
            for row, numbers in zip(rows, found, strict=True):
                counts[row] = len(np.unique(numbers))
        return batch.with_columns({"stop_word_count": pa.array(counts, pa.int32())})
