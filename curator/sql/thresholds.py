"""The numbers in a condition that a measure is compared with: where they stand, and how to put another one
there."""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from curator.api.errors import RecipeError
from curator.sql.parse import SELECT, columns_of, rows_of, tree_of

_OPERATORS = {"COMPARE_LESSTHAN": "<", "COMPARE_LESSTHANOREQUALTO": "<=",
              "COMPARE_GREATERTHAN": ">", "COMPARE_GREATERTHANOREQUALTO": ">="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMBER = re.compile(r"[+-]?\s*(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


@dataclass(frozen=True)
class Threshold:
    """One comparison with a number: `measure operator value`.

    `measure`: SQL over columns, most often a column alone. `column`: its name then, else None. `operator`:
    <, <=, > or >=, with the measure on its left. `start`, `stop`: where the number stands in the condition,
    in characters.
    """

    measure: str
    column: str | None
    operator: str
    value: float
    start: int
    stop: int


@functools.lru_cache(maxsize=1024)
def thresholds(condition: str) -> tuple[Threshold, ...]:
    """Every comparison of a measure with a number in a condition, in the order of the text.

    `x BETWEEN 1 AND 5` is two of them. `=` and `<>` are none, nor is a comparison of two columns.

    Raises:
        RecipeError: as `columns_of`.
    """
    columns_of(condition)
    found = (one for tree in _trees(tree_of(condition)) for one in _of(tree, condition))
    return tuple(sorted(found, key=lambda one: one.start))


def only_threshold(condition: str) -> Threshold | None:
    """The comparison of a column with a number, where a condition is that and nothing else."""
    columns_of(condition)
    found = [one for one in _of(tree_of(condition), condition) if one.column is not None]
    return found[0] if len(found) == 1 else None


def moved(condition: str, threshold: Threshold, value: float) -> str:
    """The condition with another number at this place. A whole number is written without a point."""
    text = str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
    # `a-5` is one number fewer than `a- -3`
    before = condition[:threshold.start]
    return before + (" " if value < 0 and before.endswith("-") else "") + text + condition[threshold.stop:]


def _trees(tree: Any) -> Iterator[dict]:
    if isinstance(tree, list):
        for item in tree:
            yield from _trees(item)
    elif isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _trees(value)


def _of(tree: dict, condition: str) -> Iterator[Threshold]:
    """The thresholds that this node itself is."""
    kind = tree.get("type")
    if kind == "COMPARE_BETWEEN":
        for side, operator in (("lower", ">="), ("upper", "<=")):
            yield from _made(tree["input"], operator, tree[side], condition)
    elif kind in _OPERATORS:
        operator = _OPERATORS[kind]
        yield from _made(tree["left"], operator, tree["right"], condition)
        yield from _made(tree["right"], _TURNED[operator], tree["left"], condition)


def _made(measure: dict, operator: str, number: dict, condition: str) -> Iterator[Threshold]:
    if number.get("class") != "CONSTANT" or all(t.get("class") != "COLUMN_REF" for t in _trees(measure)):
        return
    # DuckDB counts bytes of UTF-8 from the beginning of the statement that stands around the condition.
    before = (SELECT + condition).encode()[:number["query_location"]]
    at = len(before.decode(errors="ignore")) - len(SELECT)
    if text := _NUMBER.match(condition, at):
        names = measure.get("column_names", ())
        yield Threshold(_written(measure), names[0] if len(names) == 1 else None, operator,
                        float(re.sub(r"[_\s]", "", text[0])), text.start(), text.end())


@functools.cache
def _frame() -> dict:
    return json.loads(rows_of("SELECT json_serialize_sql('SELECT 1')")[0][0])


def _written(tree: dict) -> str:
    """An expression's tree as SQL, as DuckDB writes it."""
    statement = copy.deepcopy(_frame())
    statement["statements"][0]["node"]["select_list"] = [tree]
    text = rows_of("SELECT json_deserialize_sql(?)", [json.dumps(statement)])[0][0]
    if not text.startswith(SELECT):
        raise RecipeError(f"DuckDB writes {text!r} for an expression")
    return text.removeprefix(SELECT)
