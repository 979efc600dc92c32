"""Conditions and expressions in SQL over the columns of a batch, evaluated by DuckDB.

An expression sees one record: no tables, files, subqueries, aggregates or windows, and no function that
answers differently the next time (random, now), because a resumed run must decide as before. Names of columns
are matched exactly, upper and lower case too. A condition that is NULL is not true; NaN is greater than any
number. DuckDB is imported at first use.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.names import suggestion
from curator.sql.parse import columns_of, connection, first_lines, know, let_go, refuse_twins

__all__ = ["check_all", "check_kind", "columns_of", "compute", "evaluate", "let_go", "needs", "types_of"]

Columns = Mapping[str, pa.DataType | None]  # names and types; None for a type that is not known


def needs(expressions: Mapping[str, str]) -> set[str]:
    """The columns that any of these expressions refers to.

    Raises:
        RecipeError: as `columns_of`, with the expression's name.
    """
    found: set[str] = set()
    for name, text in expressions.items():
        with _naming(name):
            found |= columns_of(text)
    refuse_twins(found, "together the expressions use")
    return found


def parts_of(expressions: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The columns of each expression, by its text: what workers are told, so that they need not parse.

    Raises:
        RecipeError: as `needs`.
    """
    needs(expressions)
    return {text: columns_of(text) for text in expressions.values()}


def begin(parts: Mapping[str, frozenset[str]]) -> None:
    """Start DuckDB in a worker, with what is known of its expressions, so that the first batch waits for
    neither."""
    know(parts)
    connection()


def check_all(conditions: Mapping[str, str], columns: Columns) -> None:
    """Refuse conditions that cannot be evaluated over these columns.

    Raises:
        RecipeError: no valid expression, an unknown column, types that do not fit, or not true or false; with
            the condition's name.
    """
    types_of(conditions, columns, boolean=True)


def types_of(expressions: Mapping[str, str], columns: Columns, *,
             boolean: bool = False) -> dict[str, pa.DataType | None]:
    """The type of each expression's values, by name; None where it rests on a column whose type is not known.

    Raises:
        RecipeError: as `check_all`; values need be true or false only where `boolean` says so.
    """
    types: dict[str, pa.DataType | None] = {}
    needs(expressions)  # says which of them is no expression at all
    together = _bind(list(expressions.values()), columns) if len(expressions) > 1 else []
    for at, (name, text) in enumerate(expressions.items()):
        with _naming(name):
            kind, value = together[at] if together else _bind([text], columns)[0]
            if boolean and value is not None:
                check_kind(text, kind)
            types[name] = value and _plain_type(value, [columns[column] for column in columns_of(text)])
    return types


def check_kind(condition: str, kind: str) -> None:
    """Refuse a condition whose type, in DuckDB's words, is not true or false: a bare number above all.

    Raises:
        RecipeError: it says so.
    """
    if kind not in ("BOOLEAN", '"NULL"'):
        raise RecipeError(f"`{condition}` is {kind}, not a condition: it must be true or false for each "
                          "record, such as word_count < 50")


def evaluate(conditions: Mapping[str, str], table: pa.Table) -> pa.Array:
    """For each row the name of the first condition, in order, that is true; null where none is.

    A later condition is not looked at where an earlier one is true.

    Raises:
        RecipeError: a condition does not fit the table's columns.
        ValueError: a row cannot be evaluated (a text that is no number is cast to one); names the condition.
    """
    wanted = _checked(tuple(conditions.items()), table.schema.remove_metadata(), boolean=True)
    names = pa.array(list(conditions), pa.string())
    if not conditions or table.num_rows == 0:
        return pa.nulls(table.num_rows, pa.string())
    cases = " ".join(f"WHEN ({text}\n) THEN {at}" for at, text in enumerate(conditions.values()))
    first = _project(conditions, {"first": f"CASE {cases} END"}, table, wanted).column(0)
    return names.take(first.combine_chunks().cast(pa.int32()))


def compute(expressions: Mapping[str, str], table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The values of each expression, by name. All of them see the table as it was given.

    Decimals, and integers wider than 64 bits, that SQL makes out of other types (`0.5`, `sum`) come as
    float64.

    Raises:
        RecipeError, ValueError: as `evaluate`.
    """
    wanted = _checked(tuple(expressions.items()), table.schema.remove_metadata())
    if not expressions:
        return {}
    values = _project(expressions, {f"v{at}": text for at, text in enumerate(expressions.values())}, table,
                      wanted)
    columns = {}
    for name, column in zip(expressions, values.columns, strict=True):
        kind = _plain_type(column.type, [table.schema.field(c).type for c in columns_of(expressions[name])])
        columns[name] = column if column.type == kind else column.cast(kind)
    return columns


def _bind(texts: list[str], columns: Columns) -> list[tuple[str, pa.DataType | None]]:
    """The types of expressions in DuckDB's words and in Arrow's, None if that cannot be known. Gives nothing
    of several where one of them is wrong or not known: each is then asked for alone, which takes longer."""
    import duckdb

    wanted = sorted(set().union(*map(columns_of, texts)))
    types = [columns.get(name) for name in wanted]
    known = not any(kind is None or pa.types.is_null(kind) for kind in types)
    if len(texts) > 1 and not known:
        return []
    for name in wanted:
        if name not in columns:
            raise RecipeError(_unknown_column(texts[0], name, columns))
    empty = pa.table({name: pa.array([], kind or pa.null())
                      for name, kind in zip(wanted, types, strict=True)})
    try:
        relation = _relation(empty).project(", ".join(f"({t}\n) AS v{at}" for at, t in enumerate(texts)))
        values = relation.to_arrow_table().schema.types if known else [None]
        return list(zip(map(str, relation.types), values, strict=True))
    except duckdb.Error as error:
        if known and len(texts) == 1:
            raise RecipeError(f"`{texts[0]}` cannot be evaluated: {first_lines(error)}") from None
        return [] if known else [("", None)]


def _unknown_column(expression: str, name: str, columns: Mapping[str, Any]) -> str:
    hint = suggestion(name, columns, f"there are {', '.join(sorted(columns)) or 'none'}", quoted=True)
    return f"`{expression}` uses the column {name!r}, which is not there; {hint}"


@functools.lru_cache(maxsize=64)
def _checked(expressions: tuple[tuple[str, str], ...], schema: pa.Schema, boolean: bool = False) -> list[str]:
    """The columns that the expressions refer to, all of them found to fit this schema."""
    types_of(dict(expressions), {field.name: field.type for field in schema}, boolean=boolean)
    return sorted(needs(dict(expressions)))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which of several expressions is wrong."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{name}: {error}") from None


def _plain_type(kind: pa.DataType, inputs: list[pa.DataType | None]) -> pa.DataType:
    """What a value of this type is handed out as."""
    if pa.types.is_decimal(kind) and not any(k is not None and pa.types.is_decimal(k) for k in inputs):
        return pa.float64()
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _relation(table: pa.Table) -> Any:
    if table.num_columns == 0:  # DuckDB wants a column to know the number of rows from
        table = pa.table({"_": np.zeros(table.num_rows, np.int8)})
    halves = [f.name for f in table.schema if pa.types.is_float16(f.type)]  # DuckDB has no type for them
    for name in halves:
        table = table.set_column(table.schema.get_field_index(name), name,
                                 table.column(name).cast(pa.float32()))
    return connection().from_arrow(table)


def _project(expressions: Mapping[str, str], values: Mapping[str, str], table: pa.Table,
             wanted: list[str]) -> pa.Table:
    """One query over the columns it needs; rows stay in their order."""
    import duckdb

    listed = ", ".join(f"({text}\n) AS {name}" for name, text in values.items())
    needed = table.select(wanted) if wanted else pa.table({"_": np.zeros(table.num_rows, np.int8)})
    try:
        answer = _relation(needed).project(listed).to_arrow_table()
    except duckdb.OutOfMemoryException as error:
        raise MemoryError(str(error)) from error
    except duckdb.Error as error:
        raise ValueError(f"{_blamed(expressions, needed)}{first_lines(error)}") from error
    assert answer.num_rows == table.num_rows, (
        f"{answer.num_rows} values for {table.num_rows} rows of {listed}")
    return answer


def _blamed(expressions: Mapping[str, str], table: pa.Table) -> str:
    """Which of the expressions fails on this table."""
    import duckdb

    for name, text in expressions.items():
        try:
            _relation(table).project(f"({text}\n) AS value").to_arrow_table()
        except duckdb.Error:
            return f"{name}: `{text}`: "
    return ""
