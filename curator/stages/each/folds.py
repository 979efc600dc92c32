"""What the values of a record's items become: one value of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import is_list, is_number
from curator.api.errors import RecipeError

SCALAR: dict[str, Callable[..., Any]] = {"max": np.max, "min": np.min, "mean": np.mean, "median": np.median,
                                         "std": np.std, "sum": np.sum}
VECTOR = ("max", "min", "mean")
FOLDS = (*SCALAR, "any", "all", "first", "last", "count", "list")
UNIT_WITHIN = 1e-3  # so near to 1 is the length of a vector that was normalised, float16 included


@dataclass(frozen=True)
class Gathered:
    """A column of the record: `into`, made by `fold` of what the items have in `column`."""

    column: str
    fold: str
    into: str


def gathered(gather: Mapping[str, str | Sequence[str] | Mapping[str, str]]) -> tuple[Gathered, ...]:
    """What `gather` asks for: `{score: max}`, `{score: [max, mean]}` as `score_max` and `score_mean`,
    `{score: {max: worst}}`."""
    found = []
    for column, asked in gather.items():
        if isinstance(asked, str):
            named: Mapping[str, str] = {asked: column}
        else:
            named = asked if isinstance(asked, Mapping) else {fold: f"{column}_{fold}" for fold in asked}
        for fold, into in named.items():
            if fold not in FOLDS:
                raise RecipeError(f"gather: {fold!r} is no way to gather {column!r}; "
                                  f"there are {', '.join(FOLDS)}")
            if into in ("id", "source") or not into or into.startswith("_"):
                raise RecipeError(f"gather cannot make the column {into!r}: give it a name of its own, "
                                  f"{column}: {{{fold}: …}}")
            found.append(Gathered(column, fold, into))
    twice = [one.into for one in found if sum(one.into == other.into for other in found) > 1]
    if twice:
        raise RecipeError(f"gather makes the column {twice[0]!r} twice; name them, {{mean: …, max: …}}")
    return tuple(found)


def type_of(one: Gathered, kind: pa.DataType | None) -> pa.DataType | None:
    """The type of the gathered column, given that of the items' column; None where it is not known.

    Raises:
        RecipeError: such values cannot be gathered so.
    """
    fold = one.fold
    if fold == "count":
        return pa.int32()
    if kind is None or pa.types.is_null(kind):
        return pa.bool_() if fold in ("any", "all") else None
    if fold in ("first", "last"):
        return kind
    if fold == "list":
        return pa.list_(kind)
    number = is_number(kind)
    if pa.types.is_boolean(kind) and fold in ("any", "all"):
        return kind
    if fold in ("mean", "median", "std") and (number or pa.types.is_boolean(kind)):
        return _mean_type(kind)
    if fold in ("max", "min", "sum") and number:
        return kind if fold != "sum" else pa.int64() if pa.types.is_integer(kind) else pa.float64()
    if fold in VECTOR and is_list(kind) and is_number(kind.value_type):
        return pa.list_(_mean_type(kind.value_type) if fold == "mean" else kind.value_type)
    of = "truth values" if fold in ("any", "all") else "numbers or vectors" if fold in VECTOR else "numbers"
    raise RecipeError(f"gather: {fold} is of {of}, and {one.column!r} is {kind}")


def folded(fold: str, values: pa.Array) -> Any:
    """The values of one record's items, in their order, as one. Nulls are passed over, but in `list`; of none
    it is null, and the count 0."""
    if fold == "list":
        return values.to_pylist() if len(values) else None
    values = values.drop_null() if values.null_count else values
    if fold == "count":
        return len(values)
    if not len(values) or pa.types.is_null(values.type):
        return None
    if fold in ("first", "last"):
        return values[0 if fold == "first" else -1].as_py()
    if is_list(values.type):
        return _vector(fold, values)
    numbers = values.to_numpy(zero_copy_only=False)
    if fold in ("any", "all"):
        return bool(numbers.any() if fold == "any" else numbers.all())
    if fold not in ("max", "min"):  # in as many digits as there are
        whole = fold == "sum" and np.issubdtype(numbers.dtype, np.integer)
        numbers = numbers.astype(np.int64 if whole else np.float64)
    return SCALAR[fold](numbers)


def _vector(fold: str, values: pa.Array) -> np.ndarray:
    """Place by place. The mean of vectors that all have length 1 has length 1 again, as they are compared by
    angles."""
    width, *more = pc.unique(pc.list_value_length(values)).to_pylist()
    if more:
        raise ValueError(f"the items have vectors of {width} numbers and of {more[0]}: they have no {fold}")
    matrix = values.flatten().to_numpy(zero_copy_only=False).reshape(len(values), width)
    if fold != "mean":
        return SCALAR[fold](matrix, axis=0)
    matrix = matrix.astype(np.float64)
    mean = matrix.mean(axis=0)
    length = np.linalg.norm(mean)
    of_unit = width > 1 and (np.abs(np.linalg.norm(matrix, axis=1) - 1) < UNIT_WITHIN).all()
    return mean / length if of_unit and length > 0 else mean


def _mean_type(kind: pa.DataType) -> pa.DataType:
    return pa.float32() if pa.types.is_floating(kind) and kind.bit_width <= 32 else pa.float64()
