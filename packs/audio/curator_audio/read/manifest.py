"""Manifests: tables that say where recordings lie, and what is known of them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.findings import Summed
from curator.api.stage import Outputs, Source, Unit, setting
from curator.io.files.folder import list_files
from curator.io.media.types import extension_of
from curator.io.source import FileSource, as_paths
from curator.io.tables.csv import Csv
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import Parquet
from curator.io.units import TARGET_BYTES

PATHS = ("path", "audio_filepath", "audio")  # whichever is there first is where the recording lies
NUMBERS = ("offset", "duration")
SKIP = "skipme_"  # what readers make of NeMo's `_skipme`
_KINDS: tuple[type[FileSource], ...] = (Jsonl, Csv, Parquet)
ADDED = {"path": pa.string(), "extension": pa.string(), "bytes": pa.binary()}


@dataclass(kw_only=True)
class Manifest(Source):
    """Read manifests: NeMo's JSON Lines, CSV, TSV or Parquet, a record a line, for `audio.decode`.

    Columns: `id` (the manifest's own, else made from its name and the line), `source` (the manifest), `path`
    (string: where the recording lies), `extension` (its ending in lower case, without the dot), `bytes`
    (binary; null but where Parquet has them inside, as datasets of the Hugging Face hub do), and all others
    as they are. `offset` and `duration` are seconds (float64, where the manifest has them): `audio.decode`
    reads that part only.

    The recording is in `path`, `audio_filepath` (NeMo) or `audio` (a text, or an object of `bytes` and
    `path`); another column becomes it by `names`. A path that is not absolute counts from the manifest's
    folder. A line that cannot be read, has no path, or whose seconds are no number leaves on `failed`; one
    with `_skipme` leaves on `dropped`, reason `skipme`.

    `path`: files, folders, globs or URLs, one or several. `root`: the folder from which paths count, if not
    the manifest's. `names`: other names for columns, old to new: `{wav: path, sentence: text}`.
    `storage_options`: what the filesystem wants (keys, endpoint). `unit_bytes`: about how much is read, and
    done again after a crash, as one.

    Source: NVIDIA NeMo,
    https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/asr/datasets.html.
    """

    path: str | list[str] = setting()
    root: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    storage_options: dict[str, Any] | None = setting(default=None)
    unit_bytes: int = setting(default=TARGET_BYTES)

    name = "manifest"
    _reader: ClassVar[FileSource | None] = None  # an instance's own hides it, and travels to the workers

    def __post_init__(self) -> None:
        self.path = as_paths(self.path)
        if self.unit_bytes < 1:
            raise ValueError(f"unit_bytes must be 1 or more, got {self.unit_bytes}")
        twice = [new for new in self.names.values() if list(self.names.values()).count(new) > 1]
        if twice:
            raise ValueError(f"names makes {twice[0]!r} of two columns; give each a name of its own")

    def amounts(self) -> dict[str, Summed]:
        return {"duration": "seconds"}

    def units(self) -> list[Unit]:
        self.columns()
        assert self._reader is not None
        return self._reader.units()

    def columns(self) -> dict[str, pa.DataType | None]:
        self._reader = self._reader or self._opened()
        have = {self.names.get(name, name): kind for name, kind in self._reader.columns().items()}
        holder = next((name for name in PATHS if name in have), None)
        if holder is None:
            raise InputError(f"no column says where recordings lie; there are {', '.join(have)}. Name it with `names`, such as "
                             "{wav: path}")
        have = {name: kind for name, kind in have.items() if name not in (holder, SKIP)}
        numbers = {name: pa.float64() for name in NUMBERS if name in have}
        return {**have, **numbers, "id": pa.string(), "source": pa.string(), **ADDED}

    def read(self, unit: Unit) -> Iterator[Outputs]:
        assert self._reader is not None, "the source travels to the workers after `units`"
        for part in unit.parts:
            for item in self._reader.read(Unit((part,))):
                outputs = item if isinstance(item, Outputs) else Outputs(out=item)
                if "out" in outputs:
                    yield from self._ports(outputs["out"], self.root or posixpath.dirname(part.uri))
                if "failed" in outputs:
                    yield Outputs(failed=outputs["failed"])

    def _opened(self) -> FileSource:
        """The reader of files of this kind."""
        files = list_files(self.path, self.storage_options, tuple(s for kind in _KINDS for s in kind.suffixes))
        kinds = {next((kind for kind in _KINDS if file.uri.lower().endswith(kind.suffixes)), None): file.uri for file in files}
        if None in kinds:
            raise InputError(f"{kinds[None]} is no manifest: its name ends in none of .jsonl, .json, .csv, .tsv, .parquet")
        if len(kinds) > 1:
            raise InputError(f"manifests of several kinds, such as {' and '.join(kinds.values())}: read those of each by themselves")
        (kind,) = kinds
        return kind(path=[file.uri for file in files], storage_options=self.storage_options, unit_bytes=self.unit_bytes)

    def _ports(self, batch: Batch, base: str) -> Iterator[Outputs]:
        batch = batch.rename({old: new for old, new in self.names.items() if old in batch.columns})
        skipped = _truths(batch.column(SKIP)) if SKIP in batch.columns else np.zeros(len(batch), bool)
        if skipped.any():
            yield Outputs(dropped=batch.filter(skipped).with_reason("skipme"))
            batch = batch.filter(~skipped)
        made, faults = _located(batch.without([SKIP]), base)
        for name in NUMBERS:
            if name in made.columns:
                values, wrong = _seconds(made.rows.column(name))
                made = made.with_columns({name: values})
                faults = [fault or (f"no number: {name} is {wrong[row]!r}" if row in wrong else None) for row, fault in enumerate(faults)]
        good = np.array([fault is None for fault in faults], bool)
        if good.any():
            yield Outputs(out=made.filter(good))
        if not good.all():
            yield Outputs(failed=made.filter(~good).with_error([fault for fault in faults if fault is not None]))


def _located(batch: Batch, base: str) -> tuple[Batch, list[str | None]]:
    """With `path`, `bytes` and `extension`, and for each row what is wrong with its path."""
    holder = next(name for name in PATHS if name in batch.columns)
    given = batch.column(holder)
    inside = [one if isinstance(one, dict) else {"path": one} for one in given]
    contents = [one.get("bytes") for one in inside]
    found = [one.get("path") if data is not None else _joined(base, one.get("path"))
             for one, data in zip(inside, contents, strict=True)]
    paths = [path if isinstance(path, str) else None for path in found]
    faults = [None if path or data is not None else f"no path: {holder} is {one!r:.80}"
              for path, data, one in zip(paths, contents, given, strict=True)]
    columns = {"path": pa.array(paths, pa.string()), "bytes": pa.array(contents, pa.binary()),
               "extension": pa.array([extension_of(path or "") for path in paths], pa.string())}
    return batch.without([holder]).with_columns(columns), faults


def _joined(base: str, path: Any) -> str | None:
    """A path as it is if it says where it begins, else below the base."""
    if not isinstance(path, str) or not path:
        return None
    return path if "://" in path or path.startswith("/") or not base else f"{base.rstrip('/')}/{path.removeprefix('./')}"


def _truths(values: list) -> np.ndarray:
    """Which values say yes: NeMo writes true, and tools write 1 and "true"."""
    return np.array([value is True or str(value).lower() in ("true", "1") for value in values], bool)


def _seconds(values: pa.ChunkedArray) -> tuple[pa.Array | pa.ChunkedArray, dict[int, Any]]:
    """Numbers as float64, and what is none by its row; an empty text is null."""
    if pa.types.is_null(values.type) or pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.cast(pa.float64()), {}
    made, wrong = [], {}
    for row, value in enumerate(values.to_pylist()):
        number = None
        if value not in (None, ""):
            try:
                number = float(value)
            except (TypeError, ValueError):
                wrong[row] = value
        made.append(number)
    return pa.array(made, pa.float64()), wrong
