"""Pages whose address is on a list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.io.files.folder import FileInfo
from curator_text.lists.addresses import Parts, parts, plain
from curator_text.lists.index import Index, shared
from curator_text.lists.terms import Terms
from curator_text.lists.url_files import find_lists, read_words
from curator_text.measures import characters as ch
from curator_text.measures.joined import join
from curator_text.measures.spans import Spans

Hits = dict[int, tuple[str, str, str]]  # row to kind of match, list and entry
_BETWEEN = re.compile(r"[\W_]+")
_WORD_LISTS = ("words", "soft_words", "subwords")


@dataclass(kw_only=True)
class UrlLists(Stage):
    """Look the address of a page up in lists of domains, addresses and words.

    Adds `url_match` (string): what met, the first of `domain` (the host or a domain above it is listed),
    `url` (the address, or one above it at a slash or question mark), `word`, `soft_words`, `subword`; null
    where nothing did, or there is no address. `url_list`: the list that it is in; `url_entry`: the entry, of
    soft words all that met. `url_allowed` (bool): the address is on a list of `allow`; the other three are
    null then. It drops nothing: `drop: {adult: url_list = 'adult'}`, `drop: {listed: url_match IS NOT NULL}`,
    or `drop: {strange: NOT url_allowed}` to keep listed sites only.

    `lists`, `allow`: files, folders, globs or URLs with an entry a line: `example.com`,
    `sub.example.com`, `example.com/path`; plain, compressed, or an archive with folders `adult/domains`,
    `adult/urls` as UT1 has them, a list each. A file `domains` or `urls` is of the list that its folder is
    called, any other is a list of its own. `categories`: the names of the lists that are wanted (null: all).
    `words`: files of words that the address must not have; `soft_words`: of which it has `soft_words_min`
    different ones; `subwords`: that occur in its letters and digits, whatever stands between these. `column`:
    the address. Without any list all is null.

    Case, scheme, port, `www.` and `%41` for `A` make no difference. Cost of 4.6 million domains: 46 MB a
    node, in files of the user's cache folder that all workers share, made in some 20 seconds the first time.

    Sources: RefinedWeb (arXiv 2306.01116), G.1, for kinds of lists and their order; FineWeb (arXiv
    2406.17557) and datatrove's URLFilter; UT1, dsi.ut-capitole.fr/blacklists (CC BY-SA 4.0). Known
    differences: datatrove finds a listed word or host only in lower case, an address only if it is the same
    letter by letter, and of the domains above a host only the registered one.
    """

    column: str = "url"
    lists: str | list[str] | None = None
    allow: str | list[str] | None = None
    categories: list[str] | None = None
    words: str | list[str] | None = None
    soft_words: str | list[str] | None = None
    subwords: str | list[str] | None = None
    soft_words_min: int = 2

    sparse = ("url_match", "url_list", "url_entry", "url_allowed")
    count_by = ("url_list",)

    def __post_init__(self) -> None:
        self.at_least(1, "soft_words_min")
        if self.categories is not None and not (self.categories and self.lists):
            raise ValueError("categories names lists that are wanted of `lists`: give it some, and `lists`, "
                             "or leave it out")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={"url_match": pa.string(), "url_list": pa.string(), "url_entry": pa.string(),
                              "url_allowed": pa.bool_()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        self._files()

    def parameters(self) -> dict[str, Any]:
        """With size and version of each file: an edited list is another fingerprint."""
        files = {name: [[file.name, file.size_bytes, file.version] for file in found]
                 for name, found in self._files().items()}
        return super().parameters() | files

    def _files(self) -> dict[str, list[FileInfo]]:
        return {name: find_lists(path) if (path := getattr(self, name)) else []
                for name in ("lists", "allow", *_WORD_LISTS)}

    def setup_node(self, ctx: Context) -> None:
        self._open()

    def setup(self, ctx: Context) -> None:
        ch.kind_table()
        self._open()
        self._terms = {name: Terms(list(dict.fromkeys(filter(None, map(squeezed, read_words(
            getattr(self, name))))))) for name in _WORD_LISTS}

    def _open(self) -> None:
        files = self._files()
        self._index = shared(files["lists"], self.categories)
        self._allowed = shared(files["allow"], None)

    def process(self, batch: TextBatch) -> TextBatch:
        given = batch.rows.column(self.column).combine_chunks()
        addresses = plain(given).fill_null("").to_pylist()
        found = parts(addresses)
        hashes = Spans(found.joined.codes).hash(found.start, found.stop)
        allowed = set(first_of_rows(found, self._allowed, hashes))
        hits = self._worded(addresses)
        for row, (at, number) in first_of_rows(found, self._index, hashes).items():
            hits[row] = "url" if found.of_path[at] else "domain", self._index.names[number], found.text(at)
        none = (None,) * 3
        told = [none if row in allowed else hits.get(row, none) for row in range(len(batch))]
        columns = {name: pa.array([row[at] for row in told], pa.string())
                   for at, name in enumerate(("url_match", "url_list", "url_entry"))}
        columns["url_allowed"] = pa.array([row in allowed for row in range(len(batch))], pa.bool_(),
                                          mask=given.is_null().to_numpy(zero_copy_only=False))
        return batch.with_columns(columns)

    def _worded(self, addresses: Sequence[str]) -> Hits:
        """The addresses that hold listed words: subwords first, so that what counts more replaces them."""
        hits: Hits = {}
        if not any(map(len, self._terms.values())):
            return hits
        texts = [unquote(address).lower() if "%" in address else address for address in addresses]
        joined = join([text.replace("_", " ") for text in texts])
        if len(self._terms["subwords"]):
            bare = join(list(map(squeezed, texts)))
            place, number = self._terms["subwords"].anywhere(bare, Spans(bare.codes))
            for row, at in reversed(list(zip(bare.document(place).tolist(), number.tolist(), strict=True))):
                hits[row] = "subword", "subwords", self._terms["subwords"].terms[at]
        spans = Spans(joined.codes)
        soft: dict[int, dict[str, None]] = {}  # row to words, each once
        hard: dict[int, dict[str, None]] = {}
        for name, into in (("soft_words", soft), ("words", hard)):
            place, number = self._terms[name].as_words(joined, spans)
            for row, at in zip(joined.document(place).tolist(), number.tolist(), strict=True):
                into.setdefault(row, {})[self._terms[name].terms[at]] = None
        hits |= {row: ("soft_words", "soft_words", ", ".join(some)) for row, some in soft.items()
                 if len(some) >= self.soft_words_min}
        return hits | {row: ("word", "words", next(iter(some))) for row, some in hard.items()}


def squeezed(text: str) -> str:
    """The letters and digits of a text, in lower case."""
    return _BETWEEN.sub("", text.lower())


def first_of_rows(found: Parts, index: Index, hashes: np.ndarray) -> dict[int, tuple[int, int]]:
    """For each row of which a part is listed the first such part, and the number of its list."""
    lists = index.find(hashes)
    at = np.flatnonzero(lists >= 0)
    rows, first = np.unique(found.row[at], return_index=True)
    return {row: (one, number) for row, one, number in zip(
        rows.tolist(), at[first].tolist(), lists[at[first]].tolist(), strict=True)}
