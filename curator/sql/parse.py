"""SQL expressions taken apart by DuckDB's own parser: which columns they use, and whether they are such as we
allow.

What is known of an expression without its columns. `curator.sql` says what is allowed, and why.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from curator.api.errors import RecipeError
from curator.api.names import suggestion

SELECT = "SELECT "
REFUSED = {
    "SUBQUERY": "a subquery; an expression sees one record only (for lists there are list_contains and x IN "
                "(1, 2))",
    "WINDOW": "a window function; an expression sees one record only",
    "STAR": "a star; name the columns",
    "PARAMETER": "a parameter (?, $1); write the value",
    "DEFAULT": "DEFAULT, which means nothing here",
    "POSITIONAL_REFERENCE": "a position (#1); name the column",
}
SCHEMAS = {"main", "system", "pg_catalog"}
TAKE_LAMBDAS = {"list_transform", "array_transform", "list_apply", "array_apply", "apply", "list_filter",
                "array_filter", "filter", "list_reduce", "array_reduce", "reduce"}


def columns_of(expression: str) -> frozenset[str]:
    """The columns that an expression refers to.

    Raises:
        RecipeError: it is no single SQL expression over one record, or calls a function that is not there or
        not allowed.
    """
    if not isinstance(expression, str) or not expression.strip():
        raise RecipeError(f"{expression!r} is no SQL expression: write one over columns, such as word_count "
                          "< 50")
    return _known[expression] if expression in _known else _parsed(expression)


def know(columns: Mapping[str, frozenset[str]]) -> None:
    """Take over which columns expressions refer to, from the process that found it out."""
    _known.update(columns)


_known: dict[str, frozenset[str]] = {}


@functools.lru_cache(maxsize=1024)
def _parsed(expression: str) -> frozenset[str]:
    columns: set[str] = set()
    functions: set[str] = set()
    for node in _nodes(tree_of(expression), frozenset(), columns):
        if node.get("class") in REFUSED:
            raise RecipeError(f"`{expression}` has {REFUSED[node['class']]}")
        if node.get("class") == "FUNCTION":
            functions.add(node["function_name"].lower())
    for name in sorted(functions):
        _check_function(name, expression)
    refuse_twins(columns, f"`{expression}` uses")
    return frozenset(columns)


def refuse_twins(columns: set[str], who: str) -> None:
    """DuckDB cannot tell `Text` from `text`."""
    twins = [a for a in sorted(columns) if any(a != b and a.lower() == b.lower() for b in columns)]
    if twins:
        raise RecipeError(f"{who} columns that differ only in case: {', '.join(twins)}; rename one of them "
                          "before")


@functools.lru_cache(maxsize=1024)
def tree_of(expression: str) -> dict:
    """The syntax tree of the one expression that this text is; nobody changes it."""
    answer = rows_of("SELECT json_serialize_sql(?)", [SELECT + expression])[0][0]
    tree = json.loads(answer)
    if tree["error"]:
        raise RecipeError(_syntax_message(expression, tree))
    statements = tree["statements"]
    if len(statements) != 1 or expression.rstrip().endswith(";"):
        raise RecipeError(f"`{expression}` has a semicolon; write one expression, without one")
    node = statements[0]["node"]
    plain = node["type"] == "SELECT_NODE" and node["from_table"]["type"] == "EMPTY" and not node["modifiers"]
    clauses = ("where_clause", "group_expressions", "having", "qualify", "sample")
    if not plain or any(node.get(c) for c in clauses) or node["cte_map"]["map"]:
        raise RecipeError(f"`{expression}` is a query (FROM, ORDER BY, …); write an expression over columns "
                          "only")
    items = node["select_list"]
    if len(items) != 1:
        raise RecipeError(f"`{expression}` is {len(items)} expressions with commas between; write one")
    if items[0].get("alias"):
        raise RecipeError(f"`{expression}` gives itself a name ({items[0]['alias']}); write the expression "
                          "only")
    return items[0]


def _syntax_message(expression: str, tree: Mapping[str, Any]) -> str:
    problem = tree.get("error_message", "no valid SQL")
    if str(tree.get("position", "")).isdigit():
        # DuckDB counts bytes of UTF-8 from the beginning of the statement that we put around the expression.
        before = (SELECT + expression).encode()[:int(tree["position"])].decode(errors="ignore")
        problem += f", at character {max(1, len(before) - len(SELECT) + 1)}"
    return f"`{expression}` is not valid SQL: {problem}"


def _nodes(tree: Any, bound: frozenset[str], columns: set[str], in_call: str = "") -> Iterator[dict]:
    """Every node of a syntax tree; the columns are gathered on the way, but for what a lambda binds."""
    if isinstance(tree, list):
        for item in tree:
            yield from _nodes(item, bound, columns, in_call)
        return
    if not isinstance(tree, dict):
        return
    yield tree
    kind = tree.get("class")
    if kind == "COLUMN_REF":
        columns.update({tree["column_names"][0]} - bound)
    elif kind == "LAMBDA" and (tree.get("syntax_type") == "LAMBDA_KEYWORD" or in_call in TAKE_LAMBDAS):
        names: set[str] = set()
        list(_nodes(tree["lhs"], frozenset(), names))
        yield from _nodes(tree["expr"], bound | names, columns)
        return
    call = tree["function_name"].lower() if kind == "FUNCTION" else "" if kind else in_call
    if kind == "FUNCTION":  # `text.lower()` is parsed as the function `lower` of the schema `text`
        path = [part for part in (tree.get("catalog"), tree.get("schema")) if part]
        columns.update({p for p in path[:1] if p not in SCHEMAS} - bound)
    for value in tree.values():
        yield from _nodes(value, bound, columns, call)


def _check_function(name: str, expression: str) -> None:
    kinds = _functions().get(name)
    if kinds is None:
        hint = suggestion(name, _functions(), "DuckDB's documentation lists those there are", quoted=True)
        raise RecipeError(f"`{expression}`: there is no function {name!r}; {hint}")
    usable = [stability for kind, stability in kinds if kind in ("scalar", "macro")]
    if not usable:
        word = ("an aggregate over many records" if "aggregate" in {k for k, _ in kinds}
                else "a function that makes rows")
        raise RecipeError(f"`{expression}`: {name!r} is {word}; an expression sees one record and gives one "
                          "value")
    if name == "ago" or all(s not in (None, "CONSISTENT") for s in usable):
        raise RecipeError(f"`{expression}`: {name!r} answers differently each time, and a resumed run must "
                          "decide as "
                          "before; write the value itself, or for a random choice use the stage `sample`")


@functools.cache
def _functions() -> dict[str, frozenset[tuple[str, str | None]]]:
    """Every function that DuckDB has: kind (scalar, macro, aggregate, table) and stability."""
    found: dict[str, set] = {}
    listing = "SELECT DISTINCT function_name, function_type, stability FROM duckdb_functions()"
    for name, kind, stability in rows_of(listing):
        found.setdefault(name.lower(), set()).add((kind, stability))
    found["unnest"] = {("table", None)}
    return {name: frozenset(kinds) for name, kinds in found.items()}


# -- DuckDB --------------------------------------------------------------------------------------------------

# Kept by process, as DuckDB hangs when a forked child destroys the connection that it inherited.
_connections: dict[tuple[int, int], Any] = {}


def connection() -> Any:
    """This thread's connection to DuckDB: in memory, one thread, no files, no network, no extensions."""
    key = (os.getpid(), threading.get_ident())
    if key not in _connections:
        import duckdb

        _connections[key] = duckdb.connect(":memory:", config={
            "threads": 1, "enable_external_access": "false", "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false", "python_enable_replacements": "false",
            "temp_directory": "", "lock_configuration": "true"})
    return _connections[key]


def let_go() -> None:
    """Close this thread's connection, which holds 7 MB; who wants one again waits 17 ms for it."""
    made = _connections.pop((os.getpid(), threading.get_ident()), None)
    if made is not None:
        made.close()


def rows_of(query: str, values: list | None = None) -> list[tuple]:
    return connection().execute(query, values or []).fetchall()


def first_lines(error: BaseException) -> str:
    """What DuckDB says, without the excerpt of a query that the user did not write."""
    text = str(error).split("\n\nLINE ")[0].split("\nLINE ")[0].split("\tCandidate functions")[0]
    return " ".join(line.strip() for line in text.partition("Error: ")[2].splitlines()
                    if line.strip()) or str(error)
