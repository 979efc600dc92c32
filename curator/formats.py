"""`read` and `write`: the source or sink for a path, by its suffix."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from curator.errors import RecipeError
from curator.io.csv import Csv
from curator.io.jsonl import Jsonl
from curator.io.media_files import Files
from curator.io.parquet import Parquet
from curator.io.to_csv import ToCsv
from curator.io.to_files import ToFiles
from curator.io.to_jsonl import ToJsonl
from curator.io.to_parquet import ToParquet
from curator.io.to_webdataset import ToWebDataset
from curator.io.webdataset import WebDataset
from curator.pipeline import Pipeline, from_source
from curator.stage import Sink, Source

SOURCES = {"jsonl": Jsonl, "parquet": Parquet, "csv": Csv, "webdataset": WebDataset, "files": Files}
SINKS = {"jsonl": ToJsonl, "parquet": ToParquet, "csv": ToCsv, "webdataset": ToWebDataset, "files": ToFiles}
SUFFIXES = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".pq": "parquet", ".csv": "csv",
            ".tsv": "csv", ".tar": "webdataset"}


def read(source: str | PathLike[str] | list[str] | Source, format: str | None = None, **options: Any) -> Pipeline:
    """A pipeline that reads these paths, globs or URLs, or this source.

    `format`: `jsonl`, `parquet`, `csv`, `webdataset` or `files`; by default what the suffixes say.
    `options`: the source's parameters.
    """
    if isinstance(source, Source):
        return from_source(source)
    first = source if isinstance(source, (str, PathLike)) else next(iter(source), "")
    kind = format or _format_of(fspath(first))
    if kind not in SOURCES:
        raise RecipeError(f"the format of {fspath(first)!r} cannot be told from its name; say format= with one of "
                          f"{', '.join(SOURCES)}")
    return from_source(SOURCES[kind](path=source, **options))


def write(path: str | PathLike[str] | None = None, format: str = "jsonl", **options: Any) -> Sink:
    """The sink that writes files of this format.

    `path`: of a pipeline's only sink, the folder of its run, which gets the data in `data/` and what was dropped beside it.
    Where the run's folder is said (`run(out=…)`), the folder of this sink alone, and None for `data/` in that of the run.
    """
    if format not in SINKS:
        raise RecipeError(f"there is no format {format!r} to write; there are {', '.join(SINKS)}")
    return SINKS[format](path=path, **options)


def _format_of(path: str) -> str | None:
    name = path.lower()
    for packed in (".gz", ".zst", ".bz2", ".xz"):
        name = name.removesuffix(packed)
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), None)
