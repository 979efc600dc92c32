"""Words that only its language has: a second look at what was taken for a small language."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.io.files.folder import open_input
from curator_text.language.language_codes import languages_of, short_code
from curator_text.lists.bad_words import found_in, rows_of
from curator_text.lists.word_files import WITHOUT_SPACES, as_terms, digest, read_word_lists
from curator_text.measures import characters as ch

_NOT_OF_NAMES = re.compile(r"[^a-z0-9/.]+")


@dataclass(kw_only=True)
class OwnWords(Stage):
    """Look for words that hardly any language but that of the page has, and for signs of it in the address.

    Adds `own_words` (int32: how many different words of its language's list a text has; null where there is
    no text, or no list for its language) and `own_url` (bool: the address has the language's code, a name
    that is listed for it, or its country at the end of the host; null where there is no list or no address).
    FineWeb-2's filter is then `drop: {other_language: own_words = 0 AND own_url IS NOT TRUE}`.

    `lists`: files or folders of words, a file a language, called by it (`aai_Latn.txt`): FineWeb-2's
    `misc/precision_filtering/wordlists-0.85`, words of which 85 % of all occurrences in GlotLID's corpus are
    in that language. Without any, all is null. `names`: its `url_whitelist.json`, codes of languages with
    names, places and ends of hosts (`.mx`). `contamination`: its `cont_scores.json`, the share of a
    language's pages that are in another one; languages of at most `contamination_min`, or not there, are let
    alone, null for all that have a list. `column`, `url_column`, `language_column`, `language`: what is read.

    A word counts as the list writes it, where it is no part of a longer one; in languages that write words
    together wherever it stands. Known differences: FineWeb-2 divides words by a tokeniser of the language; it
    takes the code in capitals for a sign wherever it stands in an address, and looks for the end of the host
    where it cannot be. Codes that name one language here (`arb`, `ara`) share their lists.

    Source: FineWeb-2 (Penedo et al. 2025, arXiv 2506.20920), and github.com/huggingface/fineweb-2,
    misc/precision_filtering.
    """

    column: str = "text"
    lists: str | list[str] | None = None
    names: str | None = None
    contamination: str | None = None
    contamination_min: float = 0.1
    url_column: str = "url"
    language_column: str = "language"
    language: str | None = None

    sparse = ("own_words", "own_url")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={"own_words": pa.int32(), "own_url": pa.bool_()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        self._read()

    def parameters(self) -> dict[str, Any]:
        lists, names = self._read()
        return super().parameters() | {"lists": digest(lists), "names": digest(names)}

    def _read(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """The words and the signs of languages by their short codes, of those that are looked at."""
        lists = read_word_lists(self.lists)
        if self.contamination is not None:
            shares = _of_json(self.contamination, (int, float))
            above = {short_code(code) for code, share in shares.items() if share > self.contamination_min}
            lists = {language: words for language, words in lists.items() if language in above}
        names: dict[str, list[str]] = {}
        for code, words in (_of_json(self.names, list) if self.names is not None else {}).items():
            names.setdefault(short_code(code) or code, []).extend([code, *map(str, words)])
        return lists, names

    def setup(self, ctx: Context) -> None:
        ch.kind_table()
        lists, names = self._read()
        self._terms = as_terms(lists, lower=False)
        self._signs = {language: Signs([language, *names.get(language, ())]) for language in self._terms}

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        urls = batch.column(self.url_column) if self.url_column in batch.columns else [None] * len(batch)
        counts: list[int | None] = [None] * len(batch)
        signs: list[bool | None] = [None] * len(batch)
        languages = languages_of(batch, self.language_column, self.language)
        for language, rows in rows_of(languages, texts, self._terms).items():
            found = found_in([texts[row] for row in rows], self._terms[language], language in WITHOUT_SPACES)
            for row, numbers in zip(rows, found, strict=True):
                url = urls[row]
                counts[row] = len(np.unique(numbers))
                signs[row] = None if url is None else self._signs[language].are_in(url)
        return batch.with_columns({"own_words": pa.array(counts, pa.int32()),
                                   "own_url": pa.array(signs, pa.bool_())})


class Signs:
    """What stands in an address of a language: its code as a word of its own, the end of the host (written
    with a full stop before it), or a name anywhere in it."""

    def __init__(self, signs: list[str]) -> None:
        signs = list(dict.fromkeys(sign.lower() for sign in signs))
        self._ends = tuple(sign for sign in signs if sign.startswith("."))
        codes = [sign for sign in signs if len(sign) <= 3 and not sign.startswith(".")]
        self._codes = re.compile(rf"(?<![a-z0-9])({'|'.join(map(re.escape, codes))})(?![a-z0-9])")
        self._names = [_NOT_OF_NAMES.sub("", sign) for sign in signs if len(sign) > 3]

    def are_in(self, url: str) -> bool:
        url = url.lower()
        try:
            host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
        except ValueError:  # no host, such as [::
            host = ""
        if host.endswith(self._ends) or self._codes.search(url):
            return True
        plain = _NOT_OF_NAMES.sub("", url)
        return any(name and name in plain for name in self._names)


def _of_json(path: str, kind: type | tuple[type, ...]) -> dict[str, Any]:
    """An object whose keys are codes of languages.

    Raises:
        InputError: no such file, or something else is in it.
    """
    with open_input(path) as stream:
        try:
            told = json.loads(stream.read())
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from None
    wrong = None if isinstance(told, dict) else told
    if isinstance(told, dict):
        wrong = next((value for value in told.values() if not isinstance(value, kind)), None)
    if wrong is not None:
        raise InputError(f"{path}: an object is expected whose keys are codes of languages, as FineWeb-2 has "
                         f"it; it has {str(wrong)[:80]}")
    return told
