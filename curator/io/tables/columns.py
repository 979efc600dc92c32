"""Which columns a source has: seen in the heads of its files, widened where they differ."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.errors import InputError
from curator.io.files.folder import FileInfo

HEAD_FILES = 16  # files that are looked into before a run, spread evenly over the listing

_EXACT_INTEGERS = pa.decimal128(38, 0)  # holds all of int64 and uint64


@dataclass(frozen=True)
class Seen:
    """A column's type, null where no value was seen, and a place where it has it: `file:line`."""

    type: pa.DataType
    place: str


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds the values of both, None if there is none: numbers widen, null becomes
    anything."""
    if a.equals(b):
        return a
    # a way to store values, not another kind of value
    if pa.types.is_dictionary(a) or pa.types.is_dictionary(b):
        return common_type(*(kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (a, b)))
    if pa.types.is_integer(a) and pa.types.is_integer(b) and a.equals(pa.uint64()) != b.equals(pa.uint64()) \
            and (pa.types.is_signed_integer(a) or pa.types.is_signed_integer(b)):
        return _EXACT_INTEGERS
    if pa.types.is_list(a) and pa.types.is_list(b):
        inner = common_type(a.value_type, b.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        kinds = {field.name: field.type for field in a}
        for field in b:
            kinds[field.name] = common_type(kinds.get(field.name, field.type), field.type)
        return None if any(kind is None for kind in kinds.values()) else pa.struct(list(kinds.items()))
    # text is not bytes, although Arrow would turn it into some
    if pa.types.is_binary(a) != pa.types.is_binary(b):
        return b if pa.types.is_null(a) else a if pa.types.is_null(b) else None
    try:
        joined = pa.unify_schemas([pa.schema([("x", a)]), pa.schema([("x", b)])],
                                  promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return joined.field(0).type


def merge(columns: dict[str, Seen], schema: Iterable[tuple[str, Seen]]) -> None:
    """Add the columns of one file to those of the files before it.

    Raises:
        InputError: a column has types that no common type holds; both places are named.
    """
    for name, new in schema:
        old = columns.get(name)
        if old is None or pa.types.is_null(old.type):
            columns[name] = new
            continue
        widened = common_type(old.type, new.type)
        if widened is None:
            raise InputError(
                f"column {name!r} is {old.type} in {old.place} and {new.type} in {new.place}, and no type "
                "holds both. "
                "Convert one of them, read the files in separate runs, or leave the column out with `select`")
        if not widened.equals(old.type):
            columns[name] = Seen(widened, new.place if widened.equals(new.type) else old.place)


def look_into(files: Sequence[FileInfo],
              head: Callable[[FileInfo], list[tuple[str, Seen]]]) -> dict[str, Seen]:
    """The columns of a source, from the heads of some of its files.

    `head` gives the columns of one file. A file whose head raises InputError does not count, unless all do.

    Raises:
        InputError: types that cannot be joined, or no file whose head can be read.
    """
    def answer(file: FileInfo) -> list[tuple[str, Seen]] | InputError:
        try:
            return head(file)
        except UnfitColumn:
            raise
        except InputError as error:
            return error

    chosen = [files[i] for i in np.unique(np.linspace(0, len(files) - 1, HEAD_FILES).round().astype(int))]
    remote = any("://" in file.uri for file in chosen)
    with ThreadPoolExecutor(8 if remote else 1) as pool:
        answers = list(pool.map(answer, chosen))
    faults = [a for a in answers if isinstance(a, InputError)]
    if faults and len(faults) == len(answers):
        raise faults[0]
    columns: dict[str, Seen] = {}
    for schema in answers:
        if not isinstance(schema, InputError):
            merge(columns, schema)
    return columns


class UnfitColumn(InputError):
    """A column of one file that no table can hold. Unlike a file that cannot be read, one such file stops the
    run."""


def check_named(parameter: str, names: Iterable[str], columns: Iterable[str], where: str) -> None:
    """Nothing, if all columns that a parameter names are there.

    Raises:
        InputError: a column is in none of the files' heads.
    """
    there = list(columns)
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(name, there, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise InputError(f"{parameter}: there is no column {name!r}{hint} in {where}. There are: "
                             f"{', '.join(there)}")


def conform(rows: pa.Table, columns: dict[str, Seen]) -> tuple[pa.Table, dict[str, str]]:
    """The rows with the types of the source's columns, where that loses nothing, and with its missing columns
    as null.

    Also gives the columns that cannot have their type, each with the reason; they are left as they are.
    """
    conflicts: dict[str, str] = {}
    for name, seen in columns.items():
        at = rows.schema.get_field_index(name)
        if at < 0:
            rows = rows.append_column(name, pa.nulls(len(rows), seen.type))
            continue
        kind = rows.schema.field(at).type
        widened = common_type(kind, seen.type)
        if widened is None:
            conflicts[name] = f"column {name!r} is {kind} here but {seen.type} in {seen.place}"
        elif not widened.equals(kind):
            rows = _cast(rows, at, widened)
    return rows, conflicts


def _cast(rows: pa.Table, at: int, kind: pa.DataType) -> pa.Table:
    """The column in a wider type, or as it is where a value would change (2**53 + 1 as a float)."""
    try:
        return rows.set_column(at, rows.schema.field(at).with_type(kind), rows.column(at).cast(kind))
    except pa.ArrowException:
        return rows


def leaves(values: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """The columns of plain values inside a column of lists and objects."""
    if (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
        or pa.types.is_fixed_size_list(values.type)):
        yield from leaves(pc.list_flatten(values))
    elif pa.types.is_struct(values.type):
        for i in range(values.type.num_fields):
            yield from leaves(pc.struct_field(values, [i]))
    else:
        yield values
