"""Rename columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Contract, Stage
from curator.stages.identity import IDENTITY, require


@dataclass(kw_only=True)
class Rename(Stage):
    """Give columns other names.

    `columns`: old name to new. Two columns may swap names; the name of a column that stays cannot be taken.
    """

    columns: dict[str, str]

    def __post_init__(self) -> None:
        names = [*self.columns, *self.columns.values()]
        taken = [name for name in IDENTITY if name in names]
        if not self.columns:
            raise RecipeError("rename has nothing to rename: give it old names and new ones (body: text)")
        if taken:
            raise RecipeError(f"rename cannot touch {' and '.join(taken)}: every record keeps its id and source")
        if len(set(self.columns.values())) < len(self.columns):
            raise RecipeError("rename gives two columns one name")
        hidden = [name for name in self.columns.values() if not name or name.startswith("_")]
        if hidden:
            raise RecipeError(f"rename: {hidden[0]!r} cannot be a column's name; names with _ in front are the engine's")

    def contract(self) -> Contract:
        gone = set(self.columns) - set(self.columns.values())
        return Contract(needs=set(self.columns), adds=dict.fromkeys(self.columns.values()), removes=gone)

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {self.columns.get(name, name): kind for name, kind in columns.items()}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        for old, new in self.columns.items():
            if new in columns and new not in self.columns:
                raise RecipeError(f"cannot rename {old!r} to {new!r}: there is a column of that name; "
                                  "rename or drop that one before")

    def process(self, batch: Batch) -> Batch:
        require(self.columns, batch)
        self.check(dict.fromkeys(batch.columns))
        return batch.rename(self.columns)
