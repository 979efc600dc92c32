"""The texts that a benchmark is made of, read from files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs
from curator.io.files.compression import SUFFIXES, without_codec
from curator.io.files.folder import FileInfo, list_files, open_input
from curator.io.tables.columns import check_named
from curator.io.tables.csv import Csv
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import Parquet

TEXT_SUFFIXES = (".txt", *(".txt" + codec for codec in SUFFIXES))
_OWN = ("id", "source")  # columns that every reader adds


@dataclass(frozen=True)
class Reference:
    """A file of reference texts, under a name that no other one has."""

    name: str
    file: FileInfo


def find_references(paths: str | Sequence[str], storage_options: Mapping[str, Any] | None) -> list[Reference]:
    """The files that the paths name: JSON Lines, Parquet, CSV or plain text, by their suffixes.

    A file's name is that of the file without suffixes, with its folder before it where two are called the
    same.

    Raises:
        InputError: a path names no file, or one of another kind.
    """
    suffixes = (*Jsonl.suffixes, *Parquet.suffixes, *Csv.suffixes, *TEXT_SUFFIXES)
    files = list_files(paths if isinstance(paths, str) else list(paths), _options(storage_options), suffixes)
    for file in files:
        if not file.uri.lower().endswith(suffixes):
            raise InputError(f"{file.uri} is no reference that can be read: it is to be JSON Lines, Parquet, "
                             "CSV or .txt")
    names = [file.uri for file in files]
    for shorter in (lambda uri: _stem(os.path.basename(uri)),
                    lambda uri: _stem("/".join(uri.split("/")[-2:]))):
        short = [shorter(file.uri) for file in files]
        if max(Counter(short).values()) == 1:
            names = short
            break
    return [Reference(name, file) for name, file in zip(names, files, strict=True)]


def check_references(references: Sequence[Reference], columns: Sequence[str] | None,
                     storage_options: Mapping[str, Any] | None) -> None:
    """Look at the beginning of each file.

    Raises:
        InputError: one cannot be read, or has none of the columns, or none has one of them.
    """
    seen: dict[str, None] = {}
    for reference in references:
        reader = _reader(reference.file, storage_options)
        if reader is None:
            continue
        there = reader.columns()
        seen |= dict.fromkeys(there)
        texts = _text_columns(there, reference.file.uri, columns)
        if columns is not None and not texts:
            check_named("columns", list(columns), [name for name in there if name not in _OWN],
                        reference.file.uri)
    if columns is not None and seen:
        check_named("columns", list(columns), list(seen), "the references")


def read_references(references: Sequence[Reference], columns: Sequence[str] | None,
                    storage_options: Mapping[str, Any] | None) -> Iterator[tuple[int, list[str]]]:
    """The texts of each reference, a few thousand at a time, with its number.

    `columns`: those that are read, where a file has them: text, or lists of texts, each of which is a text of
    its own. None for all columns of text. Of a plain text file every line is a text.

    Raises:
        InputError: something in a file cannot be read.
    """
    for number, reference in enumerate(references):
        reader = _reader(reference.file, storage_options)
        if reader is None:
            with open_input(reference.file.uri, _options(storage_options)) as file:
                lines = file.read().decode("utf-8", "replace").splitlines()
            yield number, [line for line in lines if line.strip()]
            continue
        texts = _text_columns(reader.columns(), reference.file.uri, columns)
        for unit in reader.units():
            for answer in reader.read(unit):
                batch = answer if isinstance(answer, Batch) else _whole(answer, reference.file.uri)
                for name in texts:
                    yield number, _texts(batch.rows.column(name))


def _options(storage_options: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(storage_options) if storage_options else None


def _stem(name: str) -> str:
    folder, slash, last = without_codec(name).rpartition("/")
    return folder + slash + os.path.splitext(last)[0]


def _reader(file: FileInfo, storage_options: Mapping[str, Any] | None) -> Any:
    """The source that reads a file, None for plain text."""
    for kind in (Jsonl, Parquet, Csv):
        if file.uri.lower().endswith(kind.suffixes):
            return kind(path=file.uri, storage_options=_options(storage_options))
    return None


def _text_columns(there: Mapping[str, pa.DataType | None], uri: str,
                  columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return [name for name, kind in there.items() if kind is not None and _is_text(kind)
                and name not in _OWN]
    for name in columns:
        kind = there.get(name)
        if kind is not None and not _is_text(kind) and not _is_list(kind):
            raise InputError(f"column {name!r} of the reference {uri} is {kind}; a reference is text, or a "
                             "list of texts")
    return [name for name in columns if there.get(name) is not None]


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_text(kind.value_type)


def _texts(values: pa.ChunkedArray) -> list[str]:
    found = values.to_pylist()
    if _is_list(values.type):
        found = [text for texts in found for text in texts or ()]
    return [text for text in found if text]


def _whole(answer: Outputs, uri: str) -> Batch:
    failed = answer.get("failed")
    if failed is not None and len(failed):
        raise InputError(f"the reference {uri} has a record that cannot be read: {failed.column('error')[0]}")
    return answer["out"]
