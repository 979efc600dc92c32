"""Keep some columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Contract, Stage
from curator.stages.identity import IDENTITY, require


@dataclass(kw_only=True)
class Select(Stage):
    """Keep only the columns and payloads that are named, or all but those.

    `keep`: what stays, besides `id` and `source`, which always stay. `drop`: what goes. One of the two.
    """

    keep: list[str] | None = None
    drop: list[str] | None = None

    def __post_init__(self) -> None:
        if (self.keep is None) == (self.drop is None):
            raise RecipeError("select wants either `keep` or `drop`: the columns that stay, or those that go")
        always = [name for name in self.drop or () if name in IDENTITY]
        if always:
            raise RecipeError(f"select cannot drop {' and '.join(always)}: every record keeps its id and source")

    def contract(self) -> Contract:
        return Contract(needs=set(self.drop if self.keep is None else self.keep), removes=set(self.drop or ()))

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        return {name: kind for name, kind in columns.items() if self._stays(name)}

    def process(self, batch: Batch) -> Batch:
        require(self.contract().needs, batch)
        gone = {name: None for name in batch.payloads() if not self._stays(name)}
        return batch.without([name for name in batch.columns if not self._stays(name)]).with_payloads(**gone)

    def _stays(self, name: str) -> bool:
        return name in IDENTITY or (name in self.keep if self.keep is not None else name not in self.drop)
