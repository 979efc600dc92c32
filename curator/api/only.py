"""Stages that measure many columns: which of them are wanted."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import pyarrow as pa


def chosen(only: Sequence[str] | None, columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns that the parameter `only` names, in their own order; all where it is None.

    Raises:
        ValueError: it names none, or one that is not there.
    """
    if only is None:
        return dict(columns)
    if not only:
        raise ValueError("only names no column, so that nothing would be measured; leave it out to measure "
                         "all")
    for name in only:
        if name not in columns:
            near = difflib.get_close_matches(name, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(columns)}"
            raise ValueError(f"only: no column is called {name!r}; {hint}")
    return {name: kind for name, kind in columns.items() if name in only}
