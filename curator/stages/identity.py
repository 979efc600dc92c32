"""The columns that every record has, and those that a stage was told to find."""

from __future__ import annotations

from collections.abc import Collection

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.registry.names import suggestion

IDENTITY = ("id", "source")  # in every record, always


def require(names: Collection[str], batch: Batch) -> None:
    """Refuse a batch without these columns or payloads; the plan has seen to that wherever columns are known before."""
    there = [*batch.columns, *batch.payloads()]
    for name in names:
        if name not in there:
            hint = suggestion(name, there, f"there are {', '.join(there)}", quoted=True)
            raise RecipeError(f"there is no column {name!r}; {hint}")
