"""From samples to a table: their json objects as columns, beside those of their other parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.io.tables.columns import Seen, conform
from curator.io.tables.json_rows import JsonParser, Parsed
from curator.io.tables.records import Failure, as_text, excerpt, unique_names

_NAMED = ("key", "extension")  # what the json says of these comes before what the member's name says


@dataclass
class Sample:
    """Members of one key. `parts`: values by column; `json`: the object as it is written, None if there is
    none."""

    key: str
    offset: int
    parts: dict[str, Any] = field(default_factory=dict)
    json: bytes | None = None
    extension: str | None = None  # of the part that became `bytes`
    size: int = 0
    endings: set[str] = field(default_factory=set)
    error: Exception | None = None
    raw: bytes = b""

    def fail(self, error: Exception, raw: bytes = b"") -> None:
        """The first thing that is wrong with it; what was read of it is let go."""
        if self.error is None:
            self.error, self.raw, self.parts, self.json = error, raw[:4096], {}, None


class SampleTable:
    """Makes tables of the samples of one file, in order, and learns their columns on the way.

    `columns`: types known before. `select`: the columns to make, None for all.
    """

    def __init__(self, uri: str, columns: dict[str, Seen], max_record_bytes: int,
                 select: Sequence[str] | None) -> None:
        self._uri, self._columns, self._select = uri, columns, select
        of_json = {name: seen for name, seen in columns.items()
                   if name not in _NAMED and not pa.types.is_binary(seen.type)}
        self._parser = _SampleJson(uri, of_json, max_record_bytes, select, None)

    def make(self, samples: Sequence[Sample]) -> Parsed:
        """The good samples as rows, where each begins in its file, and what is wrong with the others."""
        failures = [Failure(f"{self._uri}:byte={s.offset}", s.offset, _named(self._uri, s.error),
                            excerpt(s.raw)) for s in samples if s.error is not None]
        objects, broken, mixed = self._objects([s for s in samples if s.error is None])
        failures += broken
        bad = {failure.offset for failure in failures}
        good = [s for s in samples if s.offset not in bad]
        positions = np.array([s.offset for s in good], np.int64)
        rows = self._joined(self._parts(good), objects)
        if self._select is not None:
            rows = rows.select([name for name in rows.column_names if name in self._select])
        return Parsed(self._conformed(rows), positions, failures, mixed)

    def _objects(self, samples: Sequence[Sample]) -> tuple[pa.Table, list[Failure], int]:
        """The json of those samples whose json is none or good, a row each, and what is wrong with the
        others."""
        with_json = [s for s in samples if s.json is not None]
        parsed = self._parser.parse_samples(with_json)
        if len(with_json) == len(samples):
            return parsed.rows, parsed.failures, parsed.mixed
        bad = {failure.offset for failure in parsed.failures}
        numbers = iter(range(len(parsed.positions)))
        at = pa.array([None if s.json is None else next(numbers) for s in samples if s.offset not in bad],
                      pa.int64())
        empty = pa.table({name: pa.nulls(len(at), parsed.rows.schema.field(name).type)
                          for name in parsed.rows.column_names})
        return (parsed.rows.take(at) if len(parsed.rows) else empty), parsed.failures, parsed.mixed

    def _parts(self, samples: Sequence[Sample]) -> dict[str, pa.Array]:
        """The columns of the parts; of two kinds with one name (`txt` and `txt.bin`) the later one gets a
        number."""
        parts = [(name, type(value)) for s in samples for name, value in s.parts.items()]
        found = {"key": pa.array([s.key for s in samples], pa.string())}
        kinds: list[tuple[str, type]] = [("bytes", bytes), *parts]
        for name, kind in dict.fromkeys(kinds):
            values: list[Any] = [value if isinstance(value := s.parts.get(name), kind) else None
                                 for s in samples]
            column = unique_names([*found, name])[-1]
            found[column] = binary(values) if kind is bytes else pa.array(values, _TYPES[kind])
        return found | {"extension": pa.array([s.extension for s in samples], pa.string())}

    def _joined(self, parts: dict[str, pa.Array], objects: pa.Table) -> pa.Table:
        """One table. Where a part and a key of the json have one name, the key's column gets a number."""
        columns: dict[str, Any] = dict(parts)
        for name, values in zip(objects.column_names, objects.columns, strict=True):
            if values.null_count == len(values) and (name in columns or name in self._columns):
                continue  # what is known and not there comes with its type in the end
            if name not in columns:
                columns[name] = values
            elif name in _NAMED:
                columns[name] = pc.coalesce(as_text(values), columns[name])
            else:
                if name in parts and values.type.equals(parts[name].type):
                    columns[name] = pc.coalesce(parts[name], values)
                    values = pc.if_else(parts[name].is_valid(), values, None)
                if values.null_count < len(values):
                    columns[unique_names([*columns, name])[-1]] = values
        return pa.table(columns)

    def _conformed(self, rows: pa.Table) -> pa.Table:
        """With the types of the source's columns; a column that cannot have its type gets another name."""
        rows, conflicts = conform(rows, self._columns)
        if not conflicts:
            return rows
        given: list[str] = []
        for name in rows.column_names:
            given.append(unique_names([*given, *rows.column_names, name])[-1] if name in conflicts else name)
        return conform(rows.rename_columns(given), self._columns)[0]


def binary(values: Sequence[bytes | None]) -> pa.Array:
    """A binary column; unlike `pyarrow.array`, with one copy of the values and no more."""
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    valid = pa.array([value is not None for value in values],
                     pa.bool_()).buffers()[1] if None in values else None
    data = b"".join([value for value in values if value is not None])
    return pa.Array.from_buffers(pa.binary(), len(values), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


class _SampleJson(JsonParser):
    """The parser of JSON Lines, for lines that stand in members of an archive: places are those of the
    samples."""

    def parse_samples(self, samples: Sequence[Sample]):
        """The json of the samples, in order; failures are at the samples' places."""
        lines = [s.json or b"" for s in samples]
        starts = np.concatenate([[0], np.cumsum([len(line) + 1 for line in lines], dtype=np.int64)])
        self._at = dict(zip(starts.tolist(), samples, strict=False))
        return self.parse(b"\n".join(lines), 0)

    def located(self, data: bytes, start: int, offset: int) -> tuple[int, str]:
        sample = self._at[start]
        return sample.offset, f"{self.uri}: {sample.key}.json"


_TYPES = {str: pa.string(), int: pa.int64()}


def _named(uri: str, error: Exception) -> Exception:
    named = type(error)(f"{uri}: {error}")
    return named.with_traceback(error.__traceback__)
