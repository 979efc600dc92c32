"""New columns from SQL expressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator import sql
from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Context, Contract, Stage
from curator.stages.identity import IDENTITY


@dataclass(kw_only=True)
class Map(Stage):
    """Add or replace columns by SQL expressions over the columns of the same record.

    `columns`: name to expression (`chars_per_word: length(text) / word_count`). All of them see the record as it
    came in. The type is what SQL gives; decimals that SQL makes of numbers come as float64. Where a value cannot be
    computed (a text that is no number is cast to one) the record fails; `try_cast` gives NULL instead.
    """

    columns: dict[str, str]

    def __post_init__(self) -> None:
        if not self.columns:
            raise RecipeError("map has no expression: give it names and expressions (chars: length(text))")
        for name in self.columns:
            if name in IDENTITY or not name or name.startswith("_"):
                raise RecipeError(f"map cannot make the column {name!r}: id and source stay as they are, and names with "
                                  "_ in front are the engine's")
        self._needs = frozenset(sql.needs(self.columns))

    def contract(self) -> Contract:
        return Contract(needs=self._needs, adds=dict.fromkeys(self.columns))

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {**columns, **sql.types_of(self.columns, columns)}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        sql.types_of(self.columns, columns)

    def parameters(self) -> dict[str, Any]:
        return {"columns": list(self.columns.items())}

    def setup(self, ctx: Context) -> None:
        sql.needs(self.columns)  # starts DuckDB and parses, so that the first batch does not wait for it

    def process(self, batch: Batch) -> Batch:
        return batch.with_columns(sql.compute(self.columns, batch.rows))
