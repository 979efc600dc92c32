"""From tables to records: each gets an `id` and a `source`, and comes in pieces of a few MB."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from curator.api.batch import Batch

PIECE_ROWS = 1000
PIECE_BYTES = 4 << 20
EXCERPT = 1000  # characters of a bad record that are kept


def generated_ids(uri: str, positions: np.ndarray) -> pa.Array:
    """16 hex digits for each position in a file. Two positions of one file never share an id.

    The position is mixed with a hash of the uri by the finaliser of splitmix64, which is a bijection.
    Source: Steele, Lea & Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, figure 13.
    """
    mixed = (positions.astype(np.uint64) + np.uint64(xxhash.xxh3_64_intdigest(uri.encode())))
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    digits = mixed.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(0, 16 * len(mixed) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(mixed), pa.py_buffer(offsets), pa.py_buffer(digits))


def visible_name(name: str, taken: Sequence[str] = ()) -> str:
    """The name a column gets. Names that begin with `_` are the engine's: `_id` becomes `id_`. Twins get a
    number."""
    bare = name.lstrip("_")
    named = (bare or ("column" if name else "")) + "_" * (len(name) - len(bare))
    candidate, count = named, 1
    while candidate in taken:
        count += 1
        candidate = f"{named}_{count}"
    return candidate


def visible_names(names: Sequence[str]) -> list[str]:
    """`visible_name` for each of a table's columns."""
    given: list[str] = []
    for name in names:
        given.append(visible_name(name, given))
    return given


def unique_names(names: Sequence[str]) -> list[str]:
    """The names of a file's columns, twins with a number: `a`, `a_2`."""
    given: list[str] = []
    for name in names:
        count = sum(1 for other in given if other == name or re.fullmatch(re.escape(name) + r"_\d+", other))
        candidate = name
        while candidate in given:
            count += 1
            candidate = f"{name}_{count}"
        given.append(candidate)
    return given


def as_records(rows: pa.Table, uri: str, positions: np.ndarray, id_column: str = "id") -> pa.Table:
    """The rows with `id` and `source`: the input's own as strings, and where it has none, from file and
    position.

    Where another column is the id, a column `id` of the input becomes `id_original`.
    """
    names = visible_names(rows.column_names)
    if names != rows.column_names:
        rows = rows.rename_columns(names)
    own = id_column if id_column in names else visible_name(id_column)
    ids = as_text(rows.column(own)) if own in names else pa.nulls(len(rows), pa.string())
    if own != "id" and "id" in names:
        names = ["id_original" if name == "id" else name for name in names]
        rows = rows.rename_columns(names)
    if ids.null_count:
        ids = pc.if_else(ids.is_valid(), ids, generated_ids(uri, positions))
    sources = as_text(rows.column("source")) if "source" in names else pa.nulls(len(rows), pa.string())
    sources = pc.fill_null(sources, uri)
    return _with(_with(rows, "id", ids, first=True), "source", sources)


def _with(rows: pa.Table, name: str, values: pa.Array, first: bool = False) -> pa.Table:
    at = rows.schema.get_field_index(name)
    if at >= 0:
        return rows.set_column(at, name, values)
    return rows.add_column(0, name,
                           values) if first and rows.num_columns else rows.append_column(name, values)


def as_text(values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Values as strings; what is neither text nor a whole number as JSON."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_integer(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind) \
            or (pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type)):
        return values.cast(pa.string())
    written = [None if v is None else v if isinstance(v, str)
               else json.dumps(v, ensure_ascii=False, default=str) for v in values.to_pylist()]
    return pa.array(written, pa.string())


def pieces(rows: pa.Table) -> Iterator[Batch]:
    """The rows in batches of at most PIECE_ROWS rows and about PIECE_BYTES, without copying."""
    if not rows.num_rows:
        return
    per_row = max(1, rows.nbytes // rows.num_rows)
    step = int(min(PIECE_ROWS, max(1, PIECE_BYTES // per_row)))
    for start in range(0, rows.num_rows, step):
        yield Batch(rows=rows.slice(start, step))


@dataclass(frozen=True)
class Failure:
    """A record that could not be read. `offset`: bytes (rows in Parquet and CSV) from the beginning of the
    file."""

    place: str
    offset: int | None
    error: BaseException | str
    raw: str = ""


def failed_rows(uri: str, failures: Sequence[Failure]) -> Batch:
    """What goes to the port `failed`. `id` is the place; `raw` holds the first 1,000 characters of the bad
    record."""
    return Batch(rows=pa.table({
        "id": pa.array([f.place for f in failures], pa.string()),
        "source": pa.array([uri] * len(failures), pa.string()),
        "offset": pa.array([f.offset for f in failures], pa.int64()),
        "error": pa.array([f.error if isinstance(f.error, str) else f"{type(f.error).__name__}: {f.error}"
                           for f in failures], pa.string()),
        "traceback": pa.array([f.error if isinstance(f.error, str)
                               else "".join(traceback.format_exception(f.error)) for f in failures],
                              pa.string()),
        "raw": pa.array([f.raw[:EXCERPT] for f in failures], pa.string())}))


def excerpt(raw: bytes) -> str:
    """The beginning of a bad record as text; what is not UTF-8 is escaped."""
    return raw[:4 * EXCERPT].decode("utf-8", "backslashreplace")[:EXCERPT]
