"""Manifests: tables that say where media lie, and what is known of them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, Unit
from curator.io.files.folder import Folder, ahead
from curator.io.media.sink import is_bytes
from curator.io.media.types import extension_of
from curator.io.source import FileSource, PathSource
from curator.io.tables.csv import Csv
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import Parquet

ADDED = {"path": pa.string(), "extension": pa.string(), "bytes": pa.binary()}
_KINDS: tuple[type[FileSource], ...] = (Jsonl, Csv, Parquet)
LONGEST_S = 1e9  # 30 years: what is more is no time, and would drown all others in a sum
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)")


@dataclass(kw_only=True)
class Manifest(PathSource):
    """Read JSON Lines, CSV, TSV or Parquet, a record a line. Subclasses say of what.

    A record has `path`, `extension`, `bytes` (null but where they are inside the file) and the columns of the
    manifest. A line that has neither a path nor bytes, or whose seconds are no number, leaves on `failed`.

    `path`: files, folders, globs or URLs, one or several. `root`: the folder from which paths count, if not
    the manifest's. `names`: other names for columns, old to new. `exists`: look whether there is a file at
    each path; a line whose file is missing leaves on `failed`. `storage_options`: what the filesystem wants
    (keys, endpoint). `unit_bytes`: about how much is read, and done again after a crash, as one.
    """

    root: str | None = None
    exists: bool = False
    names: dict[str, str] = field(default_factory=dict)

    media: ClassVar[str] = "files"  # for messages
    example: ClassVar[str] = "{file: path}"
    # The first that is there is a path, or an object of `bytes` and `path`.
    holders: ClassVar[tuple[str, ...]] = ("path",)
    numbers: ClassVar[tuple[str, ...]] = ()  # columns of seconds
    skip: ClassVar[str] = ""  # a column by which a line says that it does not count

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reader: FileSource | None = None  # travels to the workers
        twice = [new for new in self.names.values() if list(self.names.values()).count(new) > 1]
        if twice:
            raise ValueError(f"names makes {twice[0]!r} of two columns; give each a name of its own")

    def units(self) -> list[Unit]:
        self.columns()
        assert self._reader is not None
        return self._reader.units()

    def columns(self) -> dict[str, pa.DataType | None]:
        self._reader = self._opened()
        have = {self.names.get(name, name): kind for name, kind in self._reader.columns().items()}
        holder = next((name for name in self.holders if name in have), None)
        if holder is None and "bytes" not in have:
            raise InputError(f"no column says where {self.media} lie; there are {', '.join(have)}. Name it "
                             f"with `names`, such as {self.example}")
        have = {name: kind for name, kind in have.items() if name not in (holder, self.skip)}
        numbers = {name: pa.float64() for name in self.numbers if name in have}
        return {**have, **numbers, "id": pa.string(), "source": pa.string(), **ADDED}

    def read(self, unit: Unit) -> Iterator[Outputs]:
        assert self._reader is not None, "the source travels to the workers after `units`"
        for part in ahead(unit.parts, self.storage_options):
            for item in self._reader.read(Unit((part,))):
                outputs = item if isinstance(item, Outputs) else Outputs(out=item)
                if "out" in outputs:
                    yield from self._ports(outputs["out"], self.root or posixpath.dirname(part.uri))
                if "failed" in outputs:
                    yield Outputs(failed=outputs["failed"])

    def checked(self, batch: Batch) -> tuple[Batch, list[str | None]]:
        """With columns in the types that `columns` tells, and for each row what is wrong with it."""
        faults: list[str | None] = [None] * len(batch)
        for name in self.numbers:
            if name in batch.columns:
                values, wrong = seconds(batch.rows.column(name))
                batch = batch.with_columns({name: values})
                faults = [fault or (f"no number: {name} is {wrong[row]!r}" if row in wrong else None)
                          for row, fault in enumerate(faults)]
                far = pc.fill_null(pc.greater_equal(pc.abs(values), LONGEST_S), False).to_pylist()
                faults = [fault
                          or (f"no such time: {name} is {values[row].as_py():g} seconds" if late else None)
                          for row, (fault, late) in enumerate(zip(faults, far, strict=True))]
        return batch, faults

    def _opened(self) -> FileSource:
        """The reader of files of this kind."""
        suffixes = tuple(suffix for kind in _KINDS for suffix in kind.suffixes)
        uris = [file.uri for file in self.found(suffixes)]
        kinds = {kind: uri for uri in uris for kind in _KINDS if uri.lower().endswith(kind.suffixes)}
        if strange := [uri for uri in uris if not uri.lower().endswith(suffixes)]:
            raise InputError(f"{strange[-1]} is no manifest: its name ends in none of .jsonl, .json, .csv, "
                             ".tsv, .parquet")
        if len(kinds) > 1:
            raise InputError(f"manifests of several kinds, such as {' and '.join(kinds.values())}: read "
                             "those of each by themselves")
        (kind,) = kinds
        return kind(path=uris, storage_options=self.storage_options, unit_bytes=self.unit_bytes)

    def _ports(self, batch: Batch, base: str) -> Iterator[Outputs]:
        batch = batch.rename({old: new for old, new in self.names.items() if old in batch.columns})
        skipped = np.zeros(len(batch), bool)
        if self.skip in batch.columns:
            skipped = _truths(batch.column(self.skip))
        if skipped.any():
            yield Outputs(dropped=batch.filter(skipped).with_reason(self.skip.strip("_")))
            batch = batch.filter(~skipped)
        made, lost = self._located(batch.without([self.skip]), base)
        if self.exists:
            lost = [fault or gone for fault, gone in zip(lost, self._missing(made), strict=True)]
        made, wrong = self.checked(made)
        faults = [one or other for one, other in zip(lost, wrong, strict=True)]
        good = np.array([fault is None for fault in faults], bool)
        if good.any():
            yield Outputs(out=made.filter(good))
        if not good.all():
            yield Outputs(failed=made.filter(~good).with_error([fault for fault in faults if fault]))

    def _located(self, batch: Batch, base: str) -> tuple[Batch, list[str | None]]:
        """With `path`, `bytes` and `extension`, and for each row what is wrong with its path."""
        holder = next((name for name in self.holders if name in batch.columns), None)
        held = pa.chunked_array([pa.nulls(len(batch))]) if holder is None else batch.rows.column(holder)
        fields = {one.name for one in held.type} if pa.types.is_struct(held.type) else set()
        contents = pa.nulls(len(batch), pa.binary())
        if "bytes" in fields or "bytes" in batch.columns:
            inside = pc.struct_field(held, "bytes") if "bytes" in fields else batch.rows.column("bytes")
            contents = inside.cast(pa.binary()) if is_bytes(inside.type) else contents
        there = contents.is_valid().to_pylist()
        given = (pc.struct_field(held, "path") if "path" in fields else held).to_pylist()
        found = [path if has else _joined(base, path) for path, has in zip(given, there, strict=True)]
        paths = [path if isinstance(path, str) else None for path in found]
        faults = [None if path or has else f"no path: {holder} is {one!r:.80}"
                  for path, has, one in zip(paths, there, given, strict=True)]
        known = batch.column("extension") if "extension" in batch.columns else [None] * len(batch)
        endings = [extension_of(path or "") or (old if isinstance(old, str) else "")
                   for path, old in zip(paths, known, strict=True)]
        made = batch.without([] if holder is None else [holder])
        return made.with_columns({"path": pa.array(paths, pa.string()), "bytes": contents,
                                  "extension": pa.array(endings, pa.string())}), faults

    def _missing(self, batch: Batch) -> list[str | None]:
        """For each row what is wrong where no file lies at its path."""
        held = batch.rows.column("bytes").is_valid().to_pylist()
        paths = batch.column("path")
        gone = set()
        for path in {one for one, has in zip(paths, held, strict=True) if one and not has}:
            folder = Folder(posixpath.dirname(path) or ".", self.storage_options)
            if not folder.exists(posixpath.basename(path)):
                gone.add(path)
        return [f"no such file: {path}" if path in gone and not has else None
                for path, has in zip(paths, held, strict=True)]


def _joined(base: str, path: Any) -> str | None:
    """A path as it is if it says where it begins, else below the base."""
    if not isinstance(path, str) or not path:
        return None
    if "://" in path or path.startswith("/") or not base:
        return path
    return f"{base.rstrip('/')}/{path.removeprefix('./')}"


def _truths(values: list) -> np.ndarray:
    """Which values say yes: NeMo writes true, and tools write 1 and "true"."""
    return np.array([value is True or str(value).lower() in ("true", "1") for value in values], bool)


def seconds(values: pa.ChunkedArray) -> tuple[pa.Array | pa.ChunkedArray, dict[int, Any]]:
    """Seconds as float64, of numbers or texts (12.5, 1:02:03.5, "" is null); and what is none, by row."""
    if pa.types.is_null(values.type) or pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.cast(pa.float64()), {}
    made, wrong = [], {}
    for row, value in enumerate(values.to_pylist()):
        try:
            made.append(None if value in (None, "") else second(value))
        except (TypeError, ValueError):
            wrong[row] = value
            made.append(None)
    return pa.array(made, pa.float64()), wrong


def second(value: Any) -> float:
    """Of a number, or a text.

    Raises:
        TypeError, ValueError: it is neither.
    """
    clock = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    if clock is None:
        return float(value)
    return 3600 * int(clock[1] or 0) + 60 * int(clock[2]) + float(clock[3])
