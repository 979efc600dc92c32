"""Answers as objects with fields of known types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from curator_text.llm.forms import Unfit

_TYPES: dict[str, tuple[Any, pa.DataType]] = {  # with what `isinstance` takes
    "string": (str, pa.string()), "integer": (int, pa.int64()), "number": ((int, float), pa.float64()),
    "boolean": (bool, pa.bool_())}
_HALF = re.compile("[\ud800-\udfff]")
Fields = Mapping[str, str | list[str]]


def check_fields(fields: Fields) -> None:
    """Raises ValueError where a type is none."""
    for name, kind in fields.items():
        if not name.isidentifier():
            raise ValueError(f"fields: {name!r} cannot be the name of a column")
        if not (isinstance(kind, list) and kind
                and all(isinstance(word, str) for word in kind)) and kind not in _TYPES:
            raise ValueError(f"fields: the type of {name} is one of {', '.join(_TYPES)}, or a list of the "
                             "texts that are allowed; "
                             f"got {kind!r}")


def columns(fields: Fields) -> dict[str, pa.DataType]:
    return {name: pa.string() if isinstance(kind, list) else _TYPES[kind][1] for name, kind in fields.items()}


def schema(fields: Fields) -> dict[str, Any]:
    """The JSON schema of such an object."""
    properties = {name: {"type": "string", "enum": kind} if isinstance(kind, list) else {"type": kind}
                  for name, kind in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields),
            "additionalProperties": False}


def response_format(fields: Fields) -> dict[str, Any]:
    """The field of a request by which servers keep a model to the schema."""
    return {"type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": schema(fields)}}


def parsed(answer: str, fields: Fields) -> dict[str, Any]:
    """The values of the object in an answer, which may stand in a block of code.

    Raises:
        Unfit: there is none, or a value is missing or of another type.
    """
    found = re.search(r"```(?:json)?\s*(.*?)```", answer, re.DOTALL)
    body = found[1] if found else answer[answer.find("{"):answer.rfind("}") + 1]
    try:
        value = json.loads(body)
    except ValueError as error:
        raise Unfit(f"the answer is no JSON ({error}): {answer.strip()[:80]!r}") from error
    if not isinstance(value, dict):
        raise Unfit(f"the answer is no object: {answer.strip()[:80]!r}")
    return {name: _of_type(name, value.get(name), kind) for name, kind in fields.items()}


def _of_type(name: str, value: Any, kind: str | list[str]) -> Any:
    if isinstance(kind, list):
        if value not in kind:
            raise Unfit(f"{name} is {value!r}, which is none of {', '.join(kind)}")
        return value
    if isinstance(value, str) and _HALF.search(value):
        raise Unfit(f"{name} has half of a surrogate pair, which is no character")
    wanted = _TYPES[kind][0]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean"):
        raise Unfit(f"{name} is {value!r} and no {kind}")
    if kind == "integer" and abs(value) >= 1 << 63:
        raise Unfit(f"{name} is too large a number: {value}")
    return value
