"""The slow way to the types of JSON records: value by value, so that it can say which record does not fit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from curator.io.tables.columns import Seen, UnfitColumn, common_type

DEPTH_MAX = 100  # levels; pyarrow's parser needs quadratic time and at 100,000 levels kills the process
# more keys than this in a column's objects, and fewer of them in each, are data
KEYS_MAX, FILLED_MIN = 1000, 0.1
_BIG = pa.decimal128(38, 0)
_FAMILIES = {bool: "boolean", int: "number", float: "number", str: "string", list: "list", dict: "object"}
_PLAIN = {type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string()}


def decode(line: bytes) -> dict[str, Any]:
    """One line as an object.

    Raises:
        ValueError: it is not valid UTF-8, not JSON, not an object, nested too deeply, names a key twice or
            holds a number beyond what a float can.
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


def wanted_lines(uri: str, lines: Iterable[bytes], wanted: Collection[str] | None) -> list[bytes]:
    """The lines with only the columns that are wanted, None for all.

    Raises:
        UnfitColumn: the objects of a column have more than a thousand keys of which each has few. Each key
            would be a column, null nearly everywhere: gigabytes for a few megabytes of records.
    """
    keys: dict[str, set[str]] = {}
    filled: Counter = Counter()
    objects: Counter = Counter()
    pending: list[tuple[str, Any]] = []
    kept: list[bytes] = []
    for line in lines:
        with suppress(ValueError, RecursionError):  # the parser will say what is wrong with it
            if isinstance(record := json.loads(line), dict):
                if wanted is not None:
                    record = {name: value for name, value in record.items() if name in wanted}
                    line = json.dumps(record).encode()
                pending.append(("", record))
        kept.append(line)
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
    for path, found in keys.items():
        if len(found) > KEYS_MAX and filled[path] < len(found) * objects[path] * FILLED_MIN:
            raise UnfitColumn(f"{uri}: the objects of column {path or '(the record)'!r} have {len(found):,} "
                              "different keys, few of them in any one record: these keys are data, not "
                              "columns. Make them lists of pairs, or leave the column out with `select`")
    return kept


# -- which records fit ---------------------------------------------------------------------------------------


def typed(records: Sequence[dict[str, Any]], known: dict[str, Seen],
          place: Callable[[int], str]) -> tuple[pa.Table, dict[int, str]]:
    """The records whose types fit, as a table, and the others, by position, with the reason.

    What a column is, `known` says, else what most of the records hold. Numbers widen, null fits everything.
    """
    types: dict[str, pa.DataType] = {}
    reasons: dict[int, str] = {}
    filled = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    for name in filled | dict.fromkeys(name for record in records for name in record):
        values = {i: record[name] for i, record in enumerate(records) if record.get(name) is not None}
        held = known.get(name)
        if held is not None and not pa.types.is_null(held.type):
            family, there, where, kind = family_of(held.type), str(held.type), held.place, held.type
        elif values:
            family = there = Counter(map(_family, values.values())).most_common(1)[0][0]
            where, kind = place(next(i for i, value in values.items() if _family(value) == family)), pa.null()
        else:
            kind = pa.null()
        for i, value in values.items():
            if i in reasons:
                continue
            own = type_of(value) if _family(value) == family else None
            widened = None if own is None else common_type(kind, own)
            if widened is None:
                there = str(kind) if held is not None else family
                reasons[i] = (f"column {name!r} is {_shown(value)} here but {there} in {where}, "
                              "and no type holds both")
            else:
                kind = widened
        if kind.equals(_BIG) and all(type(value) is int and 0 <= value < 2**64 for value in values.values()):
            kind = pa.uint64()  # 64-bit hashes are such columns
        types[name] = kind
    fitting: list[dict[str, Any]] = []
    for i, record in enumerate(records):
        lost = next((n for n, value in record.items() if i not in reasons and _loses(value, types[n])), None)
        if lost is not None:
            reasons[i] = f"column {lost!r} holds an integer that is not exact as a {types[lost]}"
        if i not in reasons:
            fitting.append(record)
    kind = pa.struct(list(types.items()))
    return pa.Table.from_struct_array(pa.array([_held(record, kind) for record in fitting], kind)), reasons


def _family(value: Any) -> str:
    return _FAMILIES[type(value)]


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
    if isinstance(value, dict):
        fields = {name: type_of(v) for name, v in value.items()}
        return None if None in fields.values() else pa.struct(list(fields.items()))
    if isinstance(value, list):
        inner: pa.DataType | None = pa.null()
        for kind in map(type_of, value):
            inner = None if kind is None or inner is None else common_type(inner, kind)
        return None if inner is None else pa.list_(inner)
    if type(value) is not int:
        return _PLAIN[type(value)]
    if -2**63 <= value < 2**63:
        return pa.int64()
    return pa.uint64() if 0 < value < 2**64 else _BIG if abs(value) < 10**38 else None


def _shown(value: Any) -> str:
    kind = type_of(value)
    return f"{_family(value)} of mixed types" if kind is None else str(kind)


def _loses(value: Any, kind: pa.DataType) -> bool:
    """Whether an integer inside cannot be held by the float that the type has for it."""
    if type(value) is int:
        return pa.types.is_floating(kind) and int(float(value)) != value
    if isinstance(value, dict):
        return any(_loses(v, kind.field(name).type) for name, v in value.items())
    return isinstance(value, list) and any(_loses(v, kind.value_type) for v in value)


def _held(value: Any, kind: pa.DataType) -> Any:
    """The value with floats where the type has some: `pa.array` takes no big integer for one."""
    if type(value) is int:
        return float(value) if pa.types.is_floating(kind) else value
    if isinstance(value, dict):
        return {name: _held(v, kind.field(name).type) for name, v in value.items()}
    return [_held(v, kind.value_type) for v in value] if isinstance(value, list) else value
