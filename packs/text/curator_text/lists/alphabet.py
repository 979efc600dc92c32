"""Whether a text is written with the characters of its language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.io.files.folder import open_input
from curator_text.language.language_codes import languages_of
from curator_text.lists.url_files import find_lists
from curator_text.lists.word_files import digest, language_of

LAST = "]"  # the line that begins with it ends the frequent characters of a histogram


@dataclass(kw_only=True)
class Alphabet(Stage):
    """The share of a text's characters that are frequent in its language: a low one tells that the language,
    or the encoding, is another.

    Adds `alphabet_ratio` (float64, of all characters, those counted that are not white space at either end;
    null where there is no character, or no histogram for the language). NeMo Curator drops at 0.8 and below:
    `drop: {foreign: alphabet_ratio <= 0.8}`.

    `histograms`: files, or a folder of them, called by their language (`en`, `de.txt`): a character a line,
    the most frequent first, what follows it on the line passed over; the line that begins with `]` and all
    below are not read. NLLB's are such (dl.fbaipublicfiles.com/m2m_100/histograms.tar.gz, its folder
    `clean_hists`). `column`: the text. `language_column`: its language; where that is missing or null,
    `language`.

    Source: NLLB (arXiv 2207.04672), page 30; NeMo Curator's HistogramFilter.
    """

    histograms: str | list[str]
    column: str = "text"
    language_column: str = "language"
    language: str | None = None

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={"alphabet_ratio": pa.float64()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        read_histograms(self.histograms)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"histograms": digest(read_histograms(self.histograms))}

    def setup(self, ctx: Context) -> None:
        self._known = {language: np.unique(np.array([ord(char) for char in chars], np.uint32))
                       for language, chars in read_histograms(self.histograms).items()}

    def process(self, batch: TextBatch) -> TextBatch:
        languages = languages_of(batch, self.language_column, self.language)
        ratios = [share_of(text, self._known[language]) if text and language in self._known else None
                  for text, language in zip(batch.column(self.column), languages, strict=True)]
        return batch.with_columns({"alphabet_ratio": pa.array(ratios, pa.float64())})


def share_of(text: str, known: np.ndarray) -> float:
    """The share of a text's characters that are among these code points, white space at its ends not counted
    as such."""
    codes = np.frombuffer(text.strip().encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.count_nonzero(np.isin(codes, known)) / len(text)


def read_histograms(paths: str | Sequence[str]) -> dict[str, str]:
    """The frequent characters of each language.

    Raises:
        InputError: a path names no file, a file's name is no language, or it has no character.
    """
    found: dict[str, str] = {}
    for file in find_lists(paths):
        language = language_of(file, "a histogram")
        with open_input(file.uri) as stream:
            try:
                lines = stream.read().decode("utf-8-sig").split("\n")
            except UnicodeDecodeError as error:
                raise InputError(f"{file.uri} is not valid UTF-8: {error}") from error
        chars = [line[0] for line in lines if line]
        frequent = "".join(chars[: chars.index(LAST)] if LAST in chars else chars)
        if not frequent:
            raise InputError(f"{file.uri} has no character: a histogram has one a line, and ends at {LAST!r}")
        found[language] = found.get(language, "") + frequent
    return found
