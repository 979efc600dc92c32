"""What the cards of a run's folder and of the hub have in common: seal, head, columns as loaders describe
them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_SEALED = re.compile(r"\n<!-- Written by curator; once it is edited, no run replaces it\. ([0-9a-f]{64}) "
                     r"-->\n$")


def sealed(text: str) -> str:
    """The text with a last line by which it is known that nobody has edited it."""
    return f"{text}\n<!-- Written by curator; once it is edited, no run replaces it. {_hash(text)} -->\n"


def is_sealed(text: str) -> bool:
    """Whether a run wrote it, and nobody has edited it since."""
    said = _SEALED.search(text)
    return said is not None and said[1] == _hash(text[:said.start()])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def head_text(head: Mapping[str, Any]) -> str:
    """The head of a card, between lines of `---`."""
    import yaml

    return yaml.safe_dump(dict(head), sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def feature(column: pa.Field) -> dict[str, Any] | None:
    """A column as `dataset_info` describes it; None for one of a type that it has no word for."""
    kind = _dtype(column.type)
    return None if kind is None else {"name": column.name, **kind}


def _dtype(kind: pa.DataType) -> dict[str, Any] | None:
    types = pa.types
    if types.is_dictionary(kind):
        return _dtype(kind.value_type)
    if types.is_struct(kind):
        fields = [feature(f) for f in kind]
        return None if None in fields else {"struct": fields}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _dtype(kind.value_type)
        if inner is None:
            return None
        key = "large_list" if types.is_large_list(kind) else "list"
        length = {"length": kind.list_size} if types.is_fixed_size_list(kind) else {}
        return {key: next(iter(inner.values())) if inner.keys() <= {"dtype", "struct"} else inner, **length}
    if types.is_nested(kind) or types.is_string_view(kind) or types.is_binary_view(kind):
        return None
    names = {"double": "float64", "float": "float32", "halffloat": "float16", "date32[day]": "date32",
             "date64[ms]": "date64"}
    return {"dtype": names.get(str(kind), str(kind))}
