"""How often a page is to be repeated, by how often it was found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Contract, Stage
from curator.io.files.folder import open_input
from curator_text.language.language_codes import short_code
from curator_text.lists.word_files import digest

# By hand, in FineWeb-2's ablations: from so many copies on, so often.
BY_HAND = {1: 1, 2: 2, 3: 3, 5: 5, 100: 8, 1000: 1}


@dataclass(kw_only=True)
class Rehydrate(Stage):
    """Say how often a page is to be repeated, by the number of its copies that deduplication found.

    Adds `weight` (int32; null where `copies` is), for `repeat: {column: weight}`. What was found once, or
    very often, is worse on average than what lies between.

    `copies`: the column that `dedup.near: {copies: copies}` adds. `weights`: null takes FineWeb-2's table by
    hand for all languages: 1 copy 1, 2 copies 2, 3 and 4 copies 3, from 5 on 5, from 100 on 8, from 1,000 on
    1. Or a file of its `misc/rehydration/weights` (`up_to_10_reps.json`), a JSON object of languages with
    objects from numbers of copies to weights, each of which counts up to the next: a language counts by its
    very code (`ita_Latn`), else by the first code of the same language; one that is not there has 1.
    `language_column`: the language of a row.

    Source: FineWeb-2 (Penedo et al. 2025, arXiv 2506.20920), section 5, and
    github.com/huggingface/fineweb-2, misc/rehydration, where weights are made of the share that the filters
    remove at each number of copies: 1 where it is that of all pages or more, the most where it is least.
    """

    copies: str = "copies"
    weights: str | None = None
    language_column: str = "language"
    into: str = "weight"

    @cached_property
    def _tables(self) -> dict[str, dict[int, int]]:
        return {} if self.weights is None else read_weights(self.weights)

    @cached_property
    def _by_short_code(self) -> dict[str | None, str]:
        return {short_code(code): code for code in reversed(self._tables)}

    def contract(self) -> Contract:
        needs: dict[str, Any] = {self.copies: None}
        if self.weights is not None:
            needs[self.language_column] = pa.string()
        return Contract(needs=needs, adds={self.into: pa.int32()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        _ = self._tables  # a table that is wrong is told before anything runs

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"weights": digest(self._tables or {"": BY_HAND})}

    def process(self, batch: Batch) -> Batch:
        copies = batch.array(self.copies, null=0.0)
        if self.weights is None:
            found = weights_of(copies, BY_HAND)
        else:
            found = np.ones(len(batch), np.int64)
            codes = np.array([self._code(code) for code in batch.column(self.language_column)], object)
            for code in set(codes) - {None}:
                rows = np.flatnonzero(codes == code)
                found[rows] = weights_of(copies[rows], self._tables[code])
        return batch.with_columns({self.into: pa.array(found, pa.int32(), mask=~(copies >= 1))})

    def _code(self, code: str | None) -> str | None:
        return code if code in self._tables else self._by_short_code.get(short_code(code))


def weights_of(copies: np.ndarray, table: Mapping[int, int]) -> np.ndarray:
    """The weight of each number of copies, 1 below the first of the table."""
    begins = np.array(sorted(table))
    values = np.array([1, *(table[begin] for begin in begins.tolist())])
    return values[np.searchsorted(begins, copies, side="right")]


def read_weights(path: str) -> dict[str, dict[int, int]]:
    """Language to number of copies to weight.

    Raises:
        InputError: no such file, or it is none of weights; naming the language that is wrong.
    """
    with open_input(path) as stream:
        try:
            told = json.loads(stream.read())
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(told, dict) or not told:
        raise InputError(f"{path} has no weights: an object such as {{\"ita_Latn\": {{\"1\": 1, \"2\": 3}}}} "
                         "is expected")
    tables: dict[str, dict[int, int]] = {}
    for language, table in told.items():
        try:
            tables[language] = {int(copies): weight for copies, weight in table.items()}
        except (AttributeError, ValueError):
            tables[language] = {}
        if not tables[language] or not all(copies >= 1 and type(weight) is int and 0 <= weight <= 1000
                                           for copies, weight in tables[language].items()):
            raise InputError(f"{path}, {language}: numbers of copies, 1 or more, lead to weights, whole "
                             f"numbers from 0 to 1000; it has {str(table)[:80]}")
    return tables
