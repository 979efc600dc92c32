"""The slow way to the types of JSON records: value by value, so that it can say which record does not fit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from curator.io.tables.columns import Seen, common_type

DEPTH_MAX = 100  # levels; pyarrow's parser needs quadratic time and at 100,000 levels kills the process
KEYS_MAX, FILLED_MIN = 1000, 0.1  # more keys than this in a column's objects, and fewer of them in each, are data
_EXACT_FLOAT = 2**53
_BIG = pa.decimal128(38, 0)
_FAMILIES = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}


def decode(line: bytes) -> dict[str, Any]:
    """One line as an object.

    Raises:
        ValueError: it is not valid UTF-8, not JSON, not an object, nested too deeply, names a key twice or holds a
            number beyond what a float can.
    """
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_float=_finite)
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.object[error.start]:#04x} at {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(value, dict):
        raise ValueError(f"not an object but a {_FAMILIES.get(type(value), 'null')}")
    if b"\\u" in line:
        _check_surrogates(value)
    if _depth(value) > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} comes twice")
    return made


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is too big")
    return value


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half a surrogate pair, \\u{ord(error.object[error.start]):04x}") from None


def _depth(value: Any) -> int:
    level, below = 0, [value]
    while below and level <= DEPTH_MAX:
        level += 1
        below = [child for v in below for child in (v.values() if isinstance(v, dict) else v)
                 if isinstance(child, (dict, list))]
    return level


def scattered_keys(records: Sequence[Any]) -> tuple[str, int]:
    """The column whose objects have more than a thousand keys of which each has few, and how many; "" if there is none.

    Each key would be a column, null nearly everywhere: gigabytes for a few megabytes of records.
    """
    keys: dict[str, set[str]] = {}
    filled: Counter = Counter()
    objects: Counter = Counter()
    pending = [("", record) for record in records]
    while pending:
        path, value = pending.pop()
        if isinstance(value, list):
            pending += [(path, child) for child in value]
        elif isinstance(value, dict):
            keys.setdefault(path, set()).update(value)
            filled[path] += len(value)
            objects[path] += 1
            pending += [(f"{path}.{key}" if path else key, child) for key, child in value.items()
                        if isinstance(child, (dict, list))]
    return next(((path or "(the record)", len(found)) for path, found in keys.items()
                 if len(found) > KEYS_MAX and filled[path] < len(found) * objects[path] * FILLED_MIN), ("", 0))


# -- which records fit --------------------------------------------------------------------------------------------


def choose(records: Sequence[dict[str, Any]], known: dict[str, Seen],
           places: Sequence[str]) -> tuple[dict[str, pa.DataType], dict[int, str]]:
    """The type of each column, and the records that do not fit, by position, with the reason.

    What a column is, `known` says, else what most of the records hold. Numbers widen, null fits everything.
    """
    families = _families(records)
    types: dict[str, pa.DataType] = {}
    reasons: dict[int, str] = {}
    for name, votes in families.items():
        held = known.get(name)
        if held is not None and not pa.types.is_null(held.type):
            reference, where, types[name] = family_of(held.type), held.place, held.type
        else:
            reference = votes.most_common(1)[0][0]
            first = next(i for i, r in enumerate(records) if _family(r.get(name)) == reference)
            where, types[name] = places[first], pa.null()
        for i, record in enumerate(records):
            value = record.get(name)
            if value is None or i in reasons:
                continue
            kind = type_of(value) if _family(value) == reference else None
            widened = None if kind is None else common_type(types[name], kind)
            if widened is None:
                there = types[name] if held is not None else reference
                reasons[i] = (f"column {name!r} is {_shown(value)} here but {there} in {where}, "
                              "and no type holds both")
            else:
                types[name] = widened
    types = {name: _unsigned(kind, records, name) for name, kind in types.items()}
    for i, record in enumerate(records):
        if i not in reasons and (name := _inexact(record, types)) is not None:
            reasons[i] = f"column {name!r} holds an integer that is not exact as a {types[name]}"
    return types, reasons


def _unsigned(kind: pa.DataType, records: Sequence[dict[str, Any]], name: str) -> pa.DataType:
    """uint64 for a column of big integers where that is enough: 64-bit hashes are such columns."""
    if not kind.equals(_BIG):
        return kind
    values = [record.get(name) for record in records]
    fits = all(type(v) is int and 0 <= v < 2**64 for v in values if v is not None)
    return pa.uint64() if fits else kind


def _families(records: Sequence[dict[str, Any]]) -> dict[str, Counter]:
    families: dict[str, Counter] = {}
    for record in records:
        for name, value in record.items():
            if value is not None:
                families.setdefault(name, Counter())[_family(value)] += 1
    return families


def _family(value: Any) -> str | None:
    return _FAMILIES.get(type(value))


def family_of(kind: pa.DataType) -> str:
    """The kind of JSON value that an Arrow type stands for."""
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_struct(kind):
        return "object"
    if pa.types.is_list(kind):
        return "list"
    return "string" if pa.types.is_string(kind) else "number"


def type_of(value: Any) -> pa.DataType | None:
    """The Arrow type of a JSON value, None where its inside has types that cannot be joined."""
    if value is None:
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, dict):
        fields = {name: type_of(v) for name, v in value.items()}
        return None if None in fields.values() else pa.struct(list(fields.items()))
    inner: pa.DataType | None = pa.null()
    for child in value:
        kind = type_of(child)
        inner = None if kind is None or inner is None else common_type(inner, kind)
    return None if inner is None else pa.list_(inner)


def _integer(value: int) -> pa.DataType | None:
    if -2**63 <= value < 2**63:
        return pa.int64()
    if 0 < value < 2**64:
        return pa.uint64()
    return _BIG if abs(value) < 10**38 else None


def _shown(value: Any) -> str:
    kind = type_of(value)
    return f"{_family(value)} of mixed types" if kind is None else str(kind)


def _inexact(record: dict[str, Any], types: dict[str, pa.DataType]) -> str | None:
    """The column whose value, an integer, a float cannot hold, if there is one."""
    return next((name for name, value in record.items() if name in types and _loses(value, types[name])), None)


def _loses(value: Any, kind: pa.DataType) -> bool:
    if type(value) is int:
        return abs(value) > _EXACT_FLOAT and pa.types.is_floating(kind) and int(float(value)) != value
    if isinstance(value, dict):
        return any(_loses(v, kind.field(name).type) for name, v in value.items())
    if isinstance(value, list):
        return any(_loses(v, kind.value_type) for v in value)
    return False
