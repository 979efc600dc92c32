"""Lance datasets: a version read by fragments, and a version made of what a run wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import abspath
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import InputError, RecipeError
from curator.api.format import plural
from curator.api.stage import SourceRange, WrittenFile, setting
from curator.io.files.faults import lacking
from curator.io.files.folder import FileInfo
from curator.io.lake.source import LakeSource
from curator.io.tables.parquet import ToParquet
from curator.io.tables.parts import rows_of, schema_of
from curator.io.tables.records import PIECE_ROWS

_MADE_OF = b"curator.files"  # in a schema: the digest of the files that a version was made of
_FRAGMENT = "#fragment="


@dataclass(kw_only=True)
class Lance(LakeSource):
    """Read a Lance dataset, by fragments; rows that were deleted are left out.

    A run reads one version from its beginning to its end; continued, it does those fragments that are new or
    have other deletions. A fragment that cannot be read is one row on `failed`, and the others come through.

    `path`: the dataset's folder or URL. `revision`: the number or tag of a version; None for the newest.
    `select`, `id_column`, `unit_bytes`: as for `parquet`. `storage_options`: as Lance names them. Needs
    `curator-core[lance]`.
    """

    revision: int | str | None = setting(default=None)

    name = "lance"

    def pin(self, version: str | int | None = None) -> None:
        self.pinned = self._open(self.revision if version is None else version).version
        self._opened = None

    def look(self) -> tuple[pa.Schema, list[FileInfo]]:
        dataset, files = self._open(self.pinned), []
        for fragment in dataset.get_fragments():
            about = fragment.metadata
            size = sum(file.file_size_bytes or 0 for file in about.files) or about.physical_rows
            digest = hashlib.blake2b(repr(about).encode(), digest_size=8).hexdigest()
            files.append(FileInfo(f"{self._place}{_FRAGMENT}{fragment.fragment_id}", size, digest))
        return dataset.schema.remove_metadata(), files

    def rows(self, part: SourceRange) -> Iterator[tuple[pa.Table, np.ndarray]]:
        if self._opened is None:
            self._opened = self._open(self.pinned)
        fragment = self._opened.get_fragment(int(part.uri.rpartition(_FRAGMENT)[2]))
        columns = self.wanted(self._opened.schema.names)
        for batch in fragment.to_batches(columns=columns, batch_size=PIECE_ROWS, with_row_address=True):
            rows = pa.Table.from_batches([batch]).replace_schema_metadata()
            places = rows.column("_rowaddr").to_numpy()
            yield rows.drop_columns(["_rowaddr"]), places

    def source_of(self, part: SourceRange) -> str:
        return self._place

    @property
    def _place(self) -> str:
        return self.path if "://" in self.path else abspath(self.path)

    def _open(self, revision: int | str | None) -> Any:
        lance = _lance()
        try:
            return lance.dataset(self._place, version=revision, storage_options=self.storage_options)
        except (ValueError, OSError, RuntimeError) as error:
            at = "" if revision is None else f", version {revision}"
            raise InputError(f"cannot read the Lance dataset {self.path}{at}: {_first(error)}. Check path "
                             "and version") from error


@dataclass(kw_only=True)
class ToLance(ToParquet):
    """Write Parquet files, and make a version of a Lance dataset of them when the run has ended well.

    The version replaces the one before, in one commit; earlier ones stay until Lance cleans them up. A run
    that changed nothing makes no version. It is made by the process of the run, some batches at a time. A
    dataset whose newest version no run made is left alone: the run stops before it begins.

    `dataset`: its folder or URL, made if it is not there. `lance_options`: `storage_options` as Lance names
    them. The rest as for `parquet`. Needs `curator-core[lance]`.
    """

    dataset: str = setting()
    lance_options: dict[str, Any] | None = setting(default=None)

    name = "to_lance"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dataset or not isinstance(self.dataset, str):
            raise ValueError(f"dataset must be a folder or URL, got {self.dataset!r}")

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        try:
            _lance()
        except InputError as error:
            raise RecipeError(str(error)) from error

    def may_publish(self) -> None:
        before = self._before()
        if before is not None and _MADE_OF not in (before.schema.metadata or {}):
            raise InputError(f"{self.dataset} is a Lance dataset whose version {before.version} no run made: "
                             "write another dataset, or move it away")

    def _before(self) -> Any:
        """The dataset as it is; None if there is none."""
        place = self.dataset if "://" in self.dataset else abspath(self.dataset)
        try:
            return _lance().dataset(place, storage_options=self.lance_options)
        except ValueError:
            return None
        except (OSError, RuntimeError) as error:
            raise InputError(f"cannot read the Lance dataset {self.dataset}: {_first(error)}") from error

    def publish(self, files: Sequence[WrittenFile], about: str) -> str:
        names = [[file.path.rpartition("/")[2], file.size_bytes] for file in files]
        digest = hashlib.blake2b(json.dumps(names).encode(), digest_size=16).hexdigest().encode()
        place = self.dataset if "://" in self.dataset else abspath(self.dataset)
        before = self._before()
        if before is not None and (before.schema.metadata or {}).get(_MADE_OF) == digest:
            return f"{self.dataset} has all of it already, as version {before.version}."
        if not files:
            return f"No record was written, so {self.dataset} is left as it is."
        schema = schema_of(files, self.storage_options)
        batches = (batch for rows in rows_of(files, self.storage_options, schema)
                   for batch in rows.to_batches())
        reader = pa.RecordBatchReader.from_batches(schema.with_metadata({_MADE_OF: digest}), batches)
        try:
            made = _lance().write_dataset(reader, place, mode="create" if before is None else "overwrite",
                                       storage_options=self.lance_options)
        except (ValueError, OSError, RuntimeError) as error:
            raise InputError(f"cannot write the Lance dataset {self.dataset}: {_first(error)}. The run is "
                             "done; the same command tries this again") from error
        rows = plural(sum(file.rows for file in files), "row")
        return f"{rows} are version {made.version} of {self.dataset}."


def _lance() -> Any:
    try:
        import lance
    except ImportError as error:
        raise InputError(lacking("pylance", "a Lance dataset needs")) from error
    return lance


def _first(error: Exception) -> str:
    """What it says, without where in Lance's own code."""
    return str(error).split(", /")[0].splitlines()[0]
