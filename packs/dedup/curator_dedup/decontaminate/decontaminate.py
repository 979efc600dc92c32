"""Drop records in which the texts of a benchmark stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError, RecipeError
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.ngrams.folding import fold, warm_up
from curator.ngrams.hashing import groups, hash_words, polynomials, rolling, split_words
from curator_dedup.decontaminate.references import (
    Reference,
    check_references,
    find_references,
    read_references,
)

COLUMNS: dict[str, pa.DataType | None] = {
    "contaminated_by": pa.string(), "contaminated_match": pa.string(),
    "contaminated_ngrams": pa.int32(), "contaminated_share": pa.float32()}


@dataclass(kw_only=True)
class Decontaminate(Stage):
    """Send records that share `ngram` words in a row with a benchmark to `dropped`; the reason is
    `contaminated: <file>`.

    `references`: the benchmark's texts: files, folders, globs or URLs of JSON Lines, Parquet, CSV or plain
    text (a line is a text). `columns`: the columns of these files that count, text or lists of texts; null
    for all columns of text. `storage_options`: what their filesystem wants. `column`: the text of the
    records.

    Words are compared without case, punctuation, diacritics and white space (see `curator.ngrams.folding`). A
    reference of fewer than `ngram` words matches where it stands whole, if it has at least `min_words`; a
    shorter one is no evidence. `min_matches`: how many matching n-grams make a record contaminated;
    `min_share`: which share of its words must be in them.

    `contaminated_by`: the file that has the first match, without its suffix. `contaminated_match`: that
    match, as compared. `contaminated_ngrams`: how many n-grams match. `contaminated_share`: the share of the
    words that lie in them. `action`: `drop` gives these columns to what is dropped; `mark` gives them to all
    records (null and 0 where nothing matches) and drops none. Either way funnel or stats show how many
    records each benchmark has matches in.

    Source: GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C): 13 words; there, and in
    lm-evaluation-harness, 200 characters around a match go, and a document that falls into more than ten
    pieces. datatrove drops the document, at 12 words. Known difference: question and answer are references of
    their own; no n-gram reaches from one into the other. Words are compared by 64-bit hashes: with a million
    n-grams to find, 10^12 words have a false match in one run of twenty. Memory: 20 bytes an n-gram, and up
    to 128 MB.
    """

    references: str | list[str]
    columns: list[str] | None = None
    column: str = "text"
    ngram: int = 13
    min_words: int = 5
    min_matches: int = 1
    min_share: float = 0.0
    action: Literal["drop", "mark"] = "drop"
    storage_options: dict[str, Any] | None = setting(default=None)

    def __post_init__(self) -> None:
        self._files: list[Reference] | None = None
        # whether the files are listed already, for the fingerprint that is asked for next
        self._checked = False
        if not self.references:
            raise RecipeError("decontaminate: references names no file")
        for name, least in (("ngram", 1), ("min_words", 1), ("min_matches", 1), ("min_share", 0)):
            if getattr(self, name) < least:
                raise RecipeError(f"decontaminate: {name} must be {least} or more, got {getattr(self, name)}")
        if self.min_share > 1:
            raise RecipeError(f"decontaminate: min_share must be at most 1, got {self.min_share}")
        if self.columns is not None and not self.columns:
            raise RecipeError("decontaminate: columns is empty; leave it out to take all columns of text")
        if self.action not in ("drop", "mark"):
            raise RecipeError(f"decontaminate: action must be drop or mark, got {self.action!r}")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds=COLUMNS if self.action == "mark" else {})

    def reasons(self) -> tuple[str, ...]:
        return tuple(_reason(reference.name) for reference in self._found()) if self.action == "drop" else ()

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_references(self._list(), self.columns, self.storage_options)
        self._checked = True

    def parameters(self) -> dict[str, Any]:
        """With size and version of each reference: an edited benchmark is another fingerprint."""
        # a plan checks first and asks for the fingerprint then
        files = self._found() if self._checked else self._list()
        self._checked = False
        return super().parameters() | {"references": [[r.name, r.file.size_bytes, r.file.version]
                                                      for r in files]}

    def _list(self) -> list[Reference]:
        self._files = find_references(self.references, self.storage_options)
        return self._files

    def _found(self) -> list[Reference]:
        """As the plan listed them; workers get the list with the stage, so that all have what the plan
        saw."""
        return self._list() if self._files is None else self._files

    def setup(self, ctx: Context) -> None:
        warm_up()
        references = self._found()
        self._names = [reference.name for reference in references]
        self._index = Index(self.ngram, self.min_words)
        for number, texts in read_references(references, self.columns, self.storage_options):
            self._index.add(number, texts)
        self._index.build()
        if not self._index.tables:
            raise InputError(f"the references {self.references} have no text of "
                             f"{min(self.min_words, self.ngram)} words")

    def process(self, batch: Batch) -> Outputs:
        found = self._index.found(batch.rows.column(self.column).to_pylist())
        if self.action == "mark":
            return Outputs(out=self._described(batch, found, np.arange(len(batch))))
        bad = (found.by >= 0) & (found.ngrams >= self.min_matches) & (found.share >= self.min_share)
        dropped = self._described(batch.filter(bad), found, np.flatnonzero(bad))
        reasons = [_reason(name) for name in dropped.column("contaminated_by")]
        return Outputs(out=batch.filter(~bad), dropped=dropped.with_reason(reasons))

    def _described(self, batch: Batch, found: Found, rows: np.ndarray) -> Batch:
        names = [self._names[number] if number >= 0 else None for number in found.by[rows].tolist()]
        values = (names, found.match[rows], found.ngrams[rows], found.share[rows])
        return batch.with_columns({name: pa.array(column, kind)
                                   for (name, kind), column in zip(COLUMNS.items(), values, strict=True)})


def _reason(name: str) -> str:
    """Of its own for each benchmark, so that the funnel says how many records each one costs."""
    return f"contaminated: {name}"


@dataclass
class Found:
    """What was found in each record: the number of the reference or -1, the first match, how many, the share
    of the words."""

    by: np.ndarray
    match: np.ndarray
    ngrams: np.ndarray
    share: np.ndarray


class Index:
    """The n-grams of the references by their hashes. Of an n-gram that several have the first one is named.

    To look for several lengths at the cost of one, the first `least` words of each place are looked for;
    where a reference begins so, which is rare, the lengths are tried one by one.
    """

    def __init__(self, n: int, min_words: int) -> None:
        self.n, self.min_words = n, min(min_words, n)
        # by length in words: hashes, ascending, and references
        self.tables: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._begins: list[np.ndarray] = []

    def add(self, number: int, texts: list[str]) -> None:
        """Take in texts of a reference; those of a lower number come first."""
        for rows in groups(texts):
            words = split_words(fold([texts[row] for row in rows]))
            hashes, sizes = hash_words(words), np.diff(words.of)
            begins = rolling(hashes, self.min_words)
            for length in np.unique(np.minimum(sizes, self.n)).tolist():
                if length < self.min_words:
                    continue
                if length < self.n:
                    at = words.of[:-1][sizes == length]
                else:
                    at = np.flatnonzero(np.repeat(words.of[1:], sizes) - np.arange(len(hashes)) >= length)
                keys = np.unique(polynomials(hashes, at, np.full(len(at), length)))
                self._parts.setdefault(length, []).append((keys, np.full(len(keys), number, np.int32)))
                self._begins.append(np.unique(begins[at]))

    def build(self) -> None:
        """Make ready to look things up; nothing can be added any more."""
        for length, parts in sorted(self._parts.items()):
            keys, owners = (np.concatenate(columns) for columns in zip(*parts, strict=True))
            keys, first = np.unique(keys, return_index=True)  # of equal ones the first
            self.tables[length] = keys, owners[first]
        self.begins = begins = np.unique(np.concatenate([np.empty(0, np.uint64), *self._begins]))
        self._shift = np.uint64(64 - min(27, max(16, len(begins).bit_length() + 5)))
        self._likely = np.zeros(1 << 64 - int(self._shift), bool)  # by the upper bits: few others pass
        self._likely[begins >> self._shift] = True
        self._parts, self._begins = {}, []

    def found(self, texts: Sequence[str | None]) -> Found:
        """What of the references stands in each text; null is an empty text."""
        found = Found(np.full(len(texts), -1), np.full(len(texts), None, object),
                      np.zeros(len(texts), np.int32),
                      np.zeros(len(texts), np.float32))
        for rows in groups(texts):
            self._find([texts[row] or "" for row in rows], np.array(rows), found)
        return found

    def _find(self, texts: list[str], rows: np.ndarray, found: Found) -> None:
        words = split_words(fold(texts))
        hashes, sizes = hash_words(words), np.diff(words.of)
        if not len(hashes):
            return
        begins = rolling(hashes, self.min_words)
        maybe = np.flatnonzero(self._likely[begins >> self._shift])
        maybe = maybe[self.begins[np.searchsorted(self.begins[:-1], begins[maybe])] == begins[maybe]]
        text = np.searchsorted(words.of, maybe, "right") - 1
        left = words.of[text + 1] - maybe  # words from there to the end of the text
        matches = []
        for length, (keys, owners) in self.tables.items():
            at = np.flatnonzero(left >= length)
            wanted = polynomials(hashes, maybe[at], np.full(len(at), length))
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            same = keys[place] == wanted
            matches.append((maybe[at[same]], text[at[same]], np.full(same.sum(), length),
                            owners[place[same]]))
        starts, text, lengths, owners = (np.concatenate(columns) for columns in zip(*matches, strict=True))
        if not len(starts):
            return
        found.ngrams[rows] = np.bincount(text, minlength=len(texts))
        edges = np.bincount(starts, minlength=len(hashes)
                            + 1) - np.bincount(starts + lengths, minlength=len(hashes) + 1)
        covered = np.append(0, np.cumsum(np.cumsum(edges)[:-1] > 0))
        found.share[rows] = np.diff(covered[words.of]) / np.maximum(sizes, 1)
        order = np.lexsort((-lengths, starts))  # at one place the longest is the first
        text, first = np.unique(text[order], return_index=True)
        first = order[first]
        found.by[rows[text]] = owners[first]
        found.match[rows[text]] = [words.text(start, length)
                                   for start, length in zip(starts[first].tolist(), lengths[first].tolist(),
                                                            strict=True)]
