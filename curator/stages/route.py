"""Split records into branches, and unite branches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from curator import sql
from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import SIDE_OUTPUTS, Context, Contract, Outputs, Stage

UNMATCHED = "unmatched"


@dataclass(kw_only=True)
class Route(Stage):
    """Send each record to the port of the first condition that is true for it.

    `routes`: port to SQL condition over columns (`high: quality >= 0.8`), in order; `rest: true` at the end
    takes all others. Records for which none is true go to `dropped` with the reason `unmatched`; NULL is not
    true.
    """

    routes: dict[str, str] = field(kw_only=False)

    def __post_init__(self) -> None:
        if not self.routes:
            raise RecipeError("route has no port: give it some, each with a condition (high: quality >= 0.8)")
        for name in self.routes:
            if name in SIDE_OUTPUTS or not re.fullmatch(r"[A-Za-z0-9][\w-]*", name):
                raise RecipeError(f"route: {name!r} cannot be the name of a port; take letters, digits, _ "
                                  f"and -, and none of {', '.join(SIDE_OUTPUTS)}")
        self.ports = tuple(self.routes)
        self._parts = sql.parts_of(self.routes)

    def contract(self) -> Contract:
        return Contract(needs=frozenset().union(*self._parts.values()))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        sql.check_all(self.routes, columns)

    def parameters(self) -> dict[str, Any]:
        """The routes in order, which decides."""
        return {"routes": list(self.routes.items())}

    def setup(self, ctx: Context) -> None:
        sql.begin(self._parts)

    def process(self, batch: Batch) -> Outputs:
        labels = sql.evaluate(self.routes, batch.rows).to_pylist()
        parts = batch.split(labels)
        unmatched = parts.pop(None, None)
        if unmatched is not None:
            parts["dropped"] = unmatched.with_reason(UNMATCHED)
        return Outputs(parts)


@dataclass(kw_only=True)
class Merge(Stage):
    """Take in the records of several branches and send them on as they are, in no particular order.

    A column that only some of the branches have is null for the records of the others.
    """

    def contract(self) -> Contract:
        return Contract()

    def process(self, batch: Batch) -> Batch:
        return batch
