"""What the columns of a stage hold: range, nulls, and the distinct values of short strings.

One pass of Arrow kernels over the columns a stage adds: for 1000 rows about 15 microseconds of CPU a numeric
column, 25 a label. A string column with more distinct values than are listed is not looked at again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

DISTINCT_MAX = 50  # more values than this are no list a person reads
STRING_BYTES_MAX = 64  # mean length above which a string is a text, not a label


@dataclass
class ColumnSummary:
    """One column over all rows seen. `nulls` counts nulls; NaN is none, and is left out of the range.

    `least` and `greatest`: range of a numeric column, finite, None before the first number. `values`: rows by
    value of a column of short strings or booleans; None for other types and when there are too many.
    """

    rows: int = 0
    nulls: int = 0
    least: float | int | None = None
    greatest: float | int | None = None
    values: dict[str, int] | None = field(default_factory=dict)

    def add(self, column: pa.ChunkedArray | pa.Array) -> None:
        """Take in the values of one more batch. Lists, structs and binary are only counted."""
        self.rows += len(column)
        self.nulls += column.null_count
        kind = column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            self.values = None
            ends = pc.min_max(column)
            self._widen(ends["min"].as_py(), ends["max"].as_py())
        elif self.values is not None:
            self._count(self.values, column, kind)

    def merge(self, other: ColumnSummary) -> None:
        """Take in what another worker or unit saw of this column."""
        self.rows += other.rows
        self.nulls += other.nulls
        self._widen(other.least, other.greatest)
        if self.values is None or other.values is None:
            self.values = None
        else:
            self._add_values(self.values, other.values)

    @property
    def constant(self) -> bool:
        """True when every value that is not null is the same one."""
        if self.values is not None:
            return len(self.values) == 1
        return self.least is not None and self.least == self.greatest

    def to_json(self) -> dict[str, Any]:
        """As in `stats.json`: `rows`, `nulls`, `constant`, and `min` and `max` or `values` {value: rows}."""
        summary: dict[str, Any] = {"rows": self.rows, "nulls": self.nulls, "constant": self.constant}
        if self.least is not None:
            summary |= {"min": self.least, "max": self.greatest}
        if self.values:
            summary["values"] = dict(sorted(self.values.items(), key=lambda item: (-item[1], item[0])))
        return summary

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The summary that `to_json` wrote."""
        seen_none = "min" not in data and data["rows"] == data["nulls"]
        values = dict(data["values"]) if "values" in data else {} if seen_none else None
        return cls(data["rows"], data["nulls"], data.get("min"), data.get("max"), values)

    def _widen(self, least: float | int | None, greatest: float | int | None) -> None:
        if least is None or greatest is None or math.isnan(least) or math.isnan(greatest):
            return
        # JSON knows no infinity
        least, greatest = max(least, -sys.float_info.max), min(greatest, sys.float_info.max)
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def _count(self, known: dict[str, int], column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> None:
        if pa.types.is_dictionary(kind):
            column = pc.cast(column, kind.value_type)
            kind = kind.value_type
        listed = pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not listed or column.nbytes > STRING_BYTES_MAX * len(column):
            self.values = None if listed or len(column) > column.null_count else known
            return
        counted = pc.value_counts(column)
        values = counted.field("values").to_pylist() if len(counted) <= DISTINCT_MAX + 1 else None
        if values is None:
            self.values = None
            return
        rows = counted.field("counts").to_pylist()
        self._add_values(known, {str(v).lower() if isinstance(v, bool) else v: n
                                 for v, n in zip(values, rows, strict=True) if v is not None})

    def _add_values(self, known: dict[str, int], values: Mapping[str, int]) -> None:
        for value, rows in values.items():
            known[value] = known.get(value, 0) + rows
        if len(known) > DISTINCT_MAX:
            self.values = None
