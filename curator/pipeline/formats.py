"""The source or sink for a path, by its suffix."""

from __future__ import annotations

import re
from os import PathLike, fspath
from typing import Any

from curator.api.errors import RecipeError
from curator.api.stage import Sink, Source
from curator.io.tables.arrow import Arrow
from curator.io.tables.one_file import ToFile, kind_of
from curator.registry.packs import build, stage_class

SOURCES = ("jsonl", "parquet", "csv", "arrow", "webdataset", "files", "hub", "lance", "iceberg")
SINKS = SOURCES[:-1]
# what any pipeline over tables can read instead of another
TABLES = ("jsonl", "parquet", "csv", "arrow", "hub", "lance", "iceberg")
SUFFIXES = {".metadata.json": "iceberg", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl",
            ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".tar": "webdataset",
            ".lance": "lance", **dict.fromkeys(Arrow.suffixes, "arrow")}

# endings that nobody gives a folder
FILES = (".json", ".ndjson", ".tsv", ".pq", ".feather", ".txt", ".xlsx", ".avro", ".orc", ".zip", ".tar")


def source_for(source: str | PathLike[str] | list[str], format: str | None = None, **options: Any) -> Source:
    """The source that reads these paths; see `curator.front.read`."""
    first = source if isinstance(source, (str, PathLike)) else next(iter(source), "")
    kind = format or format_of(fspath(first))
    if kind not in SOURCES:
        raise RecipeError(f"the format of {fspath(first)!r} cannot be told from its name; say format= with "
                          f"one of {', '.join(SOURCES)}")
    made = build(stage_class(kind), path=source, **options)
    assert isinstance(made, Source), made
    return made


def write(path: str | PathLike[str] | None = None, format: str | None = None, **options: Any) -> Sink:
    """The sink that writes files of this format, by default JSON lines.

    `path`: one file, if it ends in `.parquet`, `.jsonl`, `.csv` or `.arrow` (see `ToFile`). Else of a
    pipeline's only sink, the folder of its run, which gets the data in `data/` and what was dropped beside
    it. Where the run's folder is said (`run(out=…)`), the folder of this sink alone, and None for `data/`
    in that of the run.
    """
    if path is not None and (one := kind_of(fspath(path))) is not None:
        if format in (None, one[0].name.removeprefix("to_")):
            return ToFile(file=fspath(path), **options)
        raise RecipeError(f"{fspath(path)!r} is the name of a file of another format than {format!r}: end "
                          "the name of a folder with /, or leave format out")
    if format is None and path is not None and fspath(path).lower().endswith(FILES):
        raise RecipeError(f"{fspath(path)!r} is named like a file in a format that no file is written in: "
                          "end it in .jsonl, .parquet, .csv or .arrow, or the name of a folder with /")
    format = format or "jsonl"
    if format not in SINKS:
        raise RecipeError(f"there is no format {format!r} to write; there are {', '.join(SINKS)}")
    made = build(stage_class(f"to_{format}"), path=path, **options)
    assert isinstance(made, Sink), made
    return made


def format_of(path: str) -> str | None:
    """The format that a file's name says, None if it says none; a suffix of a compression is no matter."""
    name = path.lower().rstrip("/")
    for packed in (".gz", ".zst", ".bz2", ".xz"):
        name = name.removesuffix(packed)
    found = next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)
    return found or ("hub" if re.fullmatch(r"hf://datasets/[^/]+/[^/]+/?", name) else None)
