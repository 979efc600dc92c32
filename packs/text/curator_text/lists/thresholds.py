"""Thresholds that depend on the language, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Contract, Stage
from curator_text.language.language_codes import short_code
from curator_text.lists.tables import PACKAGED, Table, read_thresholds
from curator_text.lists.word_files import digest


@dataclass(kw_only=True)
class Thresholds(Stage):
    """Put the thresholds of its language beside each record, so that conditions can compare with them.

    Adds the columns of the table (float64; null where the table has nothing for the language). They are
    called like our statistics, with `_min` or `_max` behind: `drop: {duplicate_lines: duplicate_line_ratio >
    duplicate_line_ratio_max}`. The rule set `fineweb2` has these conditions; `select: {drop: […]}` takes
    the columns out again.

    `table`: `fineweb2`, FineWeb-2's thresholds for 13 large languages; a CSV file to edit, whose first line
    names the columns (`language,language_score_min,word_count_min`); or a folder of FineWeb-2's
    `configs/*.yml` for all its 1,929 languages. `language_column`: codes of ISO 639 with or without a script
    (`fr`, `fra`, `fra_Latn`): a row of the table counts for its very code, else for its language if it is the
    only one of it, or the first.

    Source: FineWeb-2 (Penedo et al. 2025, arXiv 2506.20920) and github.com/huggingface/fineweb-2.
    """

    table: str = PACKAGED
    language_column: str = "language"

    @cached_property
    def _table(self) -> Table:
        return read_thresholds(self.table)

    @cached_property
    def _by_short_code(self) -> dict[str | None, str]:
        """The first code of each language in the table."""
        return {short_code(code): code for code in reversed(self._table)}

    def contract(self) -> Contract:
        names = next(iter(self._table.values()), {})
        return Contract(needs={self.language_column: pa.string()}, adds=dict.fromkeys(names, pa.float64()))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if not next(iter(self._table.values()), {}):
            raise InputError(f"{self.table} has no language, or no threshold")

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"table": digest(self._table)}

    def process(self, batch: Batch) -> Batch:
        rows = [self._table.get(code) or self._table.get(self._by_short_code.get(short_code(code), ""), {})
                for code in batch.column(self.language_column)]
        return batch.with_columns({name: pa.array([row.get(name) for row in rows], pa.float64())
                                   for name in self.contract().adds})
