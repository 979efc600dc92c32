"""Lists of records, a page at a time, and one record with all that belongs to it.

A page is found by its keys first (the order's value and `id`), then its few records are read. What comes next
is asked for by the last key of the page before, so the thousandth page costs what the first one did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from curator.api.errors import CuratorError
from curator.explore.histograms import group_of, measure_of
from curator.explore.records import Records
from curator.explore.rules import Rules
from curator.io.media.types import HEAD_BYTES, PLAIN, media_type
from curator.results.tables import sql_name

ROWS_MAX = 200
EXCERPT = 600  # characters
TEXT_CHARS = 200_000  # of a text of one record
RELATED = 12  # records that are shown of those that belong to one
FIRST_NEAR, MORE_NEAR = 64, 64  # how many are looked through for each that is wanted; and then
BY = "_by"  # the value that a query orders by: named as no column of a run is
IDENTITY = ("_place", "_stage", "_file")
BRIEF = ("id", *IDENTITY, "reason", "duplicate_of", "similarity", "error", "source", "key", "url", "title",
         "language", "extension", "duration", "parent", "start_s", "end_s")


def page(records: Records, rules: Rules, given: dict[str, Any]) -> dict[str, Any]:
    """`{filter, sort, descending, after, limit}`: records in order, those without a value last, and `next`,
    what to give as `after` for those behind them; null at the end.

    Raises:
        CuratorError: the filter, the order, or `after` is none.
    """
    where, values = records.where(given.get("filter"))
    limit = min(max(1, int(given.get("limit") or 50)), ROWS_MAX)
    by = records.expression(given["sort"]) if given.get("sort") else "CAST(NULL AS INTEGER)"
    descending, skip = bool(given.get("descending")), 0
    if given.get("after"):
        value, name, skip = _key(given["after"])
        behind, asked = _behind(value, name, descending, records.types.get(given.get("sort") or "", ""))
        where, values = f"{where} AND ({behind})", [*values, *asked]
    keys = records.ask(
        f"SELECT {BY}, id, {', '.join(IDENTITY)} FROM (SELECT *, {by} AS {BY} FROM records) WHERE {where} "
        f"ORDER BY {BY} {'DESC' if descending else 'ASC'} NULLS LAST, id, {', '.join(IDENTITY)} "
        f"LIMIT {limit + 1 + skip}", values)[skip:]
    more, keys = keys[limit:], keys[:limit]
    rows = _brief(records, rules, keys, by, given.get("sort"))
    return {"rows": rows, "next": _after(keys, given.get("after")) if more else None}


def _behind(value: Any, name: str, descending: bool, kind: str) -> tuple[str, list[Any]]:
    """What comes from a key on, as SQL. NaN is greater than any number, which the statistics of Parquet files
    do not know: it is asked for by itself."""
    if value is None:
        return f"{BY} IS NULL AND id >= ?", [name]
    if isinstance(value, float) and math.isnan(value):
        rest = f" OR NOT isnan({BY})" if descending else ""
        return f"{BY} IS NULL OR (isnan({BY}) AND id >= ?){rest}", [name]
    nans = f" OR isnan({BY})" if kind in ("FLOAT", "DOUBLE") and not descending else ""
    behind = f"{BY} {'<' if descending else '>'} ? OR {BY} IS NULL OR ({BY} = ? AND id >= ?){nans}"
    return behind, [value, value, name]


def _key(text: Any) -> tuple[Any, str, int]:
    try:
        value, name, skip = json.loads(text)
        return (float(value["number"]) if isinstance(value, dict) else value), str(name), max(0, int(skip))
    except (ValueError, TypeError, KeyError) as error:
        raise CuratorError("`after` is not what a page before had as `next`") from error


def _after(keys: Sequence[tuple], before: Any) -> str:
    """The last key, and how many records with the same one have been shown: nothing else tells them apart."""
    told = [(_told(value), name) for value, name, *_ in keys]
    same = told.count(told[-1])
    if before and same == len(told):
        value, name, shown = _key(before)
        same += shown if (_told(value), name) == told[-1] else 0
    return json.dumps([*told[-1], same])


def _told(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def near(records: Records, rules: Rules, given: dict[str, Any]) -> dict[str, Any]:
    """`{rule: {stage, reason, at}, value, filter, limit}`: the records on both sides of a threshold that it
    decides about, the nearest first, each with its `_value`."""
    where, values = records.where(given.get("filter"))
    rule, at = rules.chosen(given.get("rule"))
    measure, _, _ = measure_of(records, rule, at)
    value, limit = given.get("value"), min(max(1, int(given.get("limit") or 4)), ROWS_MAX)
    if not isinstance(value, (int, float)):
        raise CuratorError("`value` is a number")
    equal_is_above = rule.thresholds[at].operator in ("<", ">=")
    column = rule.thresholds[at].column
    compared = f"TRY({measure})"
    if column is not None and records.kind(column) == "number":  # of such the files have statistics
        compared = sql_name(column)
    group, found = group_of(records, rules, rule, at), {}
    for side, operator, back, end, way in (("below", "<" if equal_is_above else "<=", ">=", "min", "DESC"),
                                           ("above", ">=" if equal_is_above else ">", "<=", "max", "ASC")):
        some, side_of = limit * FIRST_NEAR, f"({where}) AND {compared} {operator} ?"
        while True:
            # First how far the nearest values lie, whoever has them: that reads one column.
            [(last, n)] = records.ask(
                f"SELECT {end}({BY}), count(*) FROM (SELECT {compared} AS {BY} FROM records WHERE {side_of} "
                f"ORDER BY {BY} {way} LIMIT {some})", [*values, value])
            keys = records.ask(
                f"SELECT {BY}, id, {', '.join(IDENTITY)} FROM (SELECT *, {compared} AS {BY}, {group} "
                f"AS _group FROM records WHERE {side_of} AND {compared} {back} ?) WHERE _group IN (1, 3, 4) "
                f"ORDER BY {BY} {way}, id LIMIT {limit}", [*values, value, last]) if n else []
            if len(keys) == limit or n < some:
                break
            some *= MORE_NEAR
        within = (f"{compared} {operator} ? AND {compared} {back} ?", [value, last])
        found[side] = _brief(records, rules, keys, compared, within=within)
    return found


def _brief(records: Records, rules: Rules, keys: Sequence[tuple], value: str = "NULL",
           sort: str | None = None, within: tuple[str, list[Any]] = ("true", [])) -> list[dict[str, Any]]:
    """The records of these keys (a value, `id`, and where it lies), in their order, with what a list shows of
    them. `value`: the first part of the keys as SQL; each record has it as `_value`. `within`: what is true
    of all of them, and of few others."""
    if not keys:
        return []
    text = records.text_column
    ruled = [column for rule in rules.all for column in rule.columns]
    shown = [c for c in dict.fromkeys([*BRIEF, *ruled, *([sort] if sort else [])])
             if c in records.types and c != text and records.kind(c) != "bytes"]
    parts = [_short(records, c) for c in shown]
    if text:
        shown.append("_text")
        parts.append(f"substr(CAST({sql_name(text)} AS VARCHAR), 1, {EXCERPT})")
    ids = list(dict.fromkeys(key[1] for key in keys))
    # a join with the keys reads the other columns of their rows only; `IN (…)` those of all rows
    own = "id IN (SELECT unnest(?))" + (" OR id IS NULL" if None in ids else "")
    found = records.rows(f"SELECT {value}, {', '.join(parts)} FROM records WHERE {within[0]} AND ({own})",
                         [*within[1], [i for i in ids if i is not None]], names=["_value", *shown])
    by_key: dict[str, list[dict]] = {}
    for row in found:
        by_key.setdefault(repr((row["_value"], row["id"], *(row[c] for c in IDENTITY))), []).append(row)
    return [plain({name: value for name, value in by_key[repr(key)].pop(0).items() if value is not None})
            for key in keys]


def _short(records: Records, column: str) -> str:
    if records.kind(column) != "text" or column in ("id", *IDENTITY):
        return sql_name(column)
    return f"substr({sql_name(column)}, 1, {EXCERPT})"


def record(records: Records, rules: Rules, given: dict[str, Any]) -> dict[str, Any]:
    """`{id, place, stage}`: all columns of a record that have a value, and `related`: the record that stayed
    in its place, its parent, its copies, its children.

    Raises:
        CuratorError: there is none.
    """
    where, values = "id = ?", [str(given.get("id"))]
    for column, name in (("_place", "place"), ("_stage", "stage")):
        if given.get(name):
            where += f" AND {column} = ?"
            values.append(str(given[name]))
    parts = []
    for column in records.types:
        kind, name = records.kind(column), sql_name(column)
        if kind == "bytes":
            name = f"struct_pack(n := octet_length({name}), head := {name}[1:{HEAD_BYTES}])"
        elif kind == "text" and column not in ("id", *IDENTITY):
            name = f"left({name}, {TEXT_CHARS})"
        parts.append(name)
    found = records.rows(f"SELECT {', '.join(parts)} FROM records WHERE {where} LIMIT 1", values,
                         names=list(records.types))
    if not found:
        raise CuratorError(f"the run has no record {str(given.get('id'))[:200]!r}")
    row = {name: value for name, value in found[0].items() if value is not None}
    blobs = {}
    for name in [c for c in row if records.kind(c) == "bytes"]:
        value = row.pop(name)
        if value["n"] is not None:
            head = bytes(value["head"])
            if value["n"] <= HEAD_BYTES and media_type(head) == PLAIN:
                row[name] = head.hex()  # a hash, most likely
            else:
                blobs[name] = {"size": value["n"], "type": media_type(head)}
    return {"row": plain(row), "blobs": blobs, "related": _related(records, rules, row)}


def _related(records: Records, rules: Rules, row: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for column, one, many in (("duplicate_of", "stays in its place", "copies of it"),
                              ("copy_of", "is a copy of", "copies made of it"),
                              ("parent", "parent", "children")):
        if column not in records.types:
            continue
        other = row.get(column)
        for title, where, value in ((one, "id = ?", other), (many, f"{column} = ?", row.get("id"))):
            if value is not None:
                keys = records.ask(f"SELECT NULL, id, {', '.join(IDENTITY)} FROM records WHERE {where} "
                                   f"ORDER BY id LIMIT {RELATED}", [value])
                if keys:
                    found.append({"title": title, "column": column if title == many else "id", "value": value,
                                  "rows": _brief(records, rules, keys)})
    return found


def plain(value: Any) -> Any:
    """A value as JSON has it. Numbers that JSON or a browser has not are texts."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value[:HEAD_BYTES].hex()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)
    return str(value)
