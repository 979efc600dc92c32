"""Keep, rename and make columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator import sql
from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.names import suggestion
from curator.api.stage import Context, Contract, Stage

IDENTITY = ("id", "source")  # in every record, always


@dataclass(kw_only=True)
class Select(Stage):
    """Keep only the columns and payloads that are named, or all but those.

    `keep`: what stays, besides `id` and `source`, which always stay. `drop`: what goes. One of the two.
    """

    keep: list[str] | None = field(default=None, kw_only=False)
    drop: list[str] | None = None

    def __post_init__(self) -> None:
        if (self.keep is None) == (self.drop is None):
            raise RecipeError("select wants either `keep` or `drop`: the columns that stay, or those that go")
        always = [name for name in self.drop or () if name in IDENTITY]
        if always:
            raise RecipeError(f"select cannot drop {' and '.join(always)}: every record keeps its id and "
                              "source")

    def contract(self) -> Contract:
        return Contract(needs=set(self.keep or self.drop or ()), removes=set(self.drop or ()))

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {name: kind for name, kind in columns.items() if self._stays(name)}

    def process(self, batch: Batch) -> Batch:
        require(self.contract().needs, batch)
        gone = {name: None for name in batch.payloads() if not self._stays(name)}
        return batch.without([name for name in batch.columns if not self._stays(name)]).with_payloads(**gone)

    def _stays(self, name: str) -> bool:
        return name in IDENTITY or (name not in (self.drop or ()) if self.keep is None else name in self.keep)


@dataclass(kw_only=True)
class Rename(Stage):
    """Give columns other names.

    `columns`: old name to new. Two columns may swap names; the name of a column that stays cannot be taken.
    """

    columns: dict[str, str] = field(kw_only=False)

    def __post_init__(self) -> None:
        names = [*self.columns, *self.columns.values()]
        taken = [name for name in IDENTITY if name in names]
        if not self.columns:
            raise RecipeError("rename has nothing to rename: give it old names and new ones (body: text)")
        if taken:
            raise RecipeError(f"rename cannot touch {' and '.join(taken)}: every record keeps its id and "
                              "source")
        if len(set(self.columns.values())) < len(self.columns):
            raise RecipeError("rename gives two columns one name")
        hidden = [name for name in self.columns.values() if not name or name.startswith("_")]
        if hidden:
            raise RecipeError(f"rename: {hidden[0]!r} cannot be a column's name; names with _ in front are "
                              "the engine's")

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


@dataclass(kw_only=True)
class Map(Stage):
    """Add or replace columns by SQL expressions over the columns of the same record.

    `columns`: name to expression (`chars_per_word: length(text) / word_count`). All of them see the record as
    it came in. The type is what SQL gives; decimals that SQL makes of numbers come as float64. Where a value
    cannot be computed (a text that is no number is cast to one) the record fails; `try_cast` gives NULL
    instead.
    """

    columns: dict[str, str] = field(kw_only=False)

    def __post_init__(self) -> None:
        if not self.columns:
            raise RecipeError("map has no expression: give it names and expressions (chars: length(text))")
        for name in self.columns:
            if name in IDENTITY or not name or name.startswith("_"):
                raise RecipeError(f"map cannot make the column {name!r}: id and source stay as they are, and "
                                  "names with _ in front are the engine's")
        self._parts = sql.parts_of(self.columns)

    def contract(self) -> Contract:
        return Contract(needs=frozenset().union(*self._parts.values()), adds=dict.fromkeys(self.columns))

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {**columns, **sql.types_of(self.columns, columns)}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        sql.types_of(self.columns, columns)

    def parameters(self) -> dict[str, Any]:
        return {"columns": list(self.columns.items())}

    def setup(self, ctx: Context) -> None:
        sql.begin(self._parts)

    def process(self, batch: Batch) -> Batch:
        return batch.with_columns(sql.compute(self.columns, batch.rows))


def require(names: Collection[str], batch: Batch) -> None:
    """Refuse a batch without these columns or payloads; the plan has seen to that wherever columns are known
    before."""
    there = [*batch.columns, *batch.payloads()]
    for name in names:
        if name not in there:
            hint = suggestion(name, there, f"there are {', '.join(there)}", quoted=True)
            raise RecipeError(f"there is no column {name!r}; {hint}")
