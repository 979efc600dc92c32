"""What the readers of record files share: parameters, listing, types seen in heads, one part after
another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.format import listing
from curator.api.stage import Outputs, Source, SourceRange, Unit, setting
from curator.io.files.compression import codec_of
from curator.io.files.faults import path_text
from curator.io.files.folder import FileInfo, ahead, list_files, open_input
from curator.io.files.listing import HIDDEN, ending
from curator.io.tables.columns import Seen, check_named, conform, look_into
from curator.io.tables.records import EXCERPT, Failure, as_records, failed_rows, pieces, visible_names
from curator.io.units import TARGET_BYTES, plan_units

LASTING = (FileNotFoundError, PermissionError, IsADirectoryError)  # trying again would not help


@dataclass(kw_only=True)
class PathSource(Source):
    """What lies at paths. `path`: files, folders, globs or URLs, one or several. `storage_options`: what the
    filesystem wants (keys, endpoint). `unit_bytes`: about how much is read, and done again after a crash, as
    one."""

    path: str | list[str] = setting()
    storage_options: dict[str, Any] | None = setting(default=None)
    unit_bytes: int = setting(default=TARGET_BYTES)

    # no fields: files of another kind in the folders, by ending, and what the run itself writes to
    passed, not_read = Counter[str](), tuple[str, ...]()

    def __post_init__(self) -> None:
        self.path = as_paths(self.path)
        self.at_least(1, "unit_bytes")

    def remarks(self) -> list[str]:
        return passed_over(self.path, self.passed)

    def found(self, suffixes: tuple[str, ...], hidden: str = HIDDEN) -> list[FileInfo]:
        """The files; in a folder, those with these endings. What the run itself wrote is left out, unless
        a path names nothing else."""
        found, passed = dict[str, FileInfo](), list[FileInfo]()
        for path in [self.path] if isinstance(self.path, str) else self.path:
            files = list_files(path, self.storage_options, suffixes, hidden, passed)
            found |= {file.uri: file for file in self._of_others(files) or files}
        self.passed = Counter(ending(file.name) or "no ending" for file in self._of_others(passed))
        return [found[uri] for uri in sorted(found)]

    def _of_others(self, files: list[FileInfo]) -> list[FileInfo]:
        return [file for file in files if not f"{file.uri}/".startswith(self.not_read)]


@dataclass(kw_only=True)
class RecordSource(PathSource):
    """Records with columns. `select`: the columns to read, None for all. `id_column`: the column that names
    a record; where it is missing, the id comes from file and position."""

    select: list[str] | None = None
    id_column: str = "id"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.select, str) or self.select == []:
            raise ValueError(f"select must be a list of column names, got {self.select!r}")


@dataclass(kw_only=True)
class VersionedSource(RecordSource):
    """Records of one table or dataset, of which a version is read. `path`: names it."""

    path: str = setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._opened: Any = None  # a worker's own, of the version: it does not travel
        if isinstance(self.path, list) and len(self.path) == 1:
            self.path = self.path[0]
        if not isinstance(self.path, str):
            raise ValueError(f"path must name one table or dataset, got {self.path!r}")

    def close(self) -> None:
        self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


@dataclass(kw_only=True)
class FileSource(RecordSource):
    """Records from files. Subclasses say what a file's columns are (`head`) and read it (`read_part`)."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    # no fields; an instance's own: the files, where they are known, and what `units` or `columns` has seen
    listed, _seen = list[FileInfo](), dict[str, Seen]()

    def units(self) -> list[Unit]:
        files = self._files()
        self._look(files)
        return plan_units(files, self.unit_bytes, self.splittable)

    def columns(self) -> dict[str, pa.DataType | None]:
        """The columns of the source, as the heads of some of its files show them; type None where no value
        was seen.

        Raises:
            InputError: nothing matches, or one column has types in two files that cannot be joined.
        """
        seen = self._look(self._files())
        known = {name: None if pa.types.is_null(s.type) else s.type
                 for name, s in zip(visible_names(list(seen)), seen.values(), strict=True)}
        return {**known, "id": pa.string(), "source": pa.string()}

    def read(self, unit: Unit) -> Iterator[Batch | Outputs]:
        for part in ahead(unit.parts, self.storage_options):
            try:
                yield from self.read_part(part)
            except InputError as error:
                if not isinstance(error.__cause__, (type(None), *LASTING)):
                    raise  # it may go away: the engine tries the unit again
                yield failures(part, [Failure(part.uri, None, error)])

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        """The columns of one file, from its beginning. Raises InputError if it has none that can be read."""
        raise TypeError(f"{type(self).__name__} has no head method")

    def read_part(self, part: SourceRange) -> Iterator[Batch | Outputs]:
        """The records of a file or of a range of one."""
        raise TypeError(f"{type(self).__name__} has no read_part method")

    def check_seen(self, seen: dict[str, Seen]) -> None:
        """Raise InputError if a parameter does not go with the columns that were seen."""

    def splittable(self, file: FileInfo) -> bool:
        """Whether byte ranges of the file can be read alone."""
        return False

    def wanted(self) -> list[str] | None:
        """The columns to take from a file, None for all: those selected, and those an `id` and a `source`
        come from."""
        return None if self.select is None else list(dict.fromkeys([*self.select, self.id_column, "source"]))

    @property
    def seen(self) -> dict[str, Seen]:
        """The columns seen in the heads of the files, by the names they have there."""
        return self._seen or {}  # not the class's own

    def records(self, rows: pa.Table, uri: str, positions: np.ndarray) -> Iterator[Batch | Outputs]:
        """Rows of a file that has types of its own, as records with the types of all files; where a type
        does not go with them, on `failed`. `positions`: the place of each row in the file."""
        rows, conflicts = conform(rows, self.seen)
        odd = rows.select(list(conflicts))
        records = as_records(rows.drop_columns(list(conflicts)), uri, positions, self.id_column)
        if not conflicts:
            yield from pieces(records)
            return
        raw = [json.dumps(row, ensure_ascii=False, default=str)[:EXCERPT] for row in odd.to_pylist()]
        offsets = pa.array(positions, pa.int64())
        bad = Batch(rows=records).with_error("; ".join(conflicts.values()))
        yield Outputs(failed=bad.with_columns({"offset": offsets, "raw": pa.array(raw, pa.string())}))

    def _files(self) -> list[FileInfo]:
        return self.listed or self.found(self.suffixes)

    def _look(self, files: list[FileInfo]) -> dict[str, Seen]:
        seen = look_into(files, self.head)
        if self.select is not None:
            if not seen.keys() >= set(self.select):
                everything = look_into(files[:1], replace(self, select=None).head)
                more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
                check_named("select", self.select, [*everything, *seen], files[0].uri + more)
            wanted = self.wanted() or ()
            seen = {name: s for name, s in seen.items() if name in wanted}
        self.check_seen(seen)
        self._seen = seen  # travels to the workers with the source, so that all of them give the same types
        return seen


@dataclass(kw_only=True)
class LineSource(FileSource):
    """Records from files of text, of which plain ones can be read from any line on."""

    max_record_bytes: int = 100_000_000  # a longer record fails

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "max_record_bytes")

    def splittable(self, file: FileInfo) -> bool:
        return codec_of(file.uri) is None and not file.uri.startswith(("http://", "https://"))

    def opened(self, part: SourceRange) -> BinaryIO:
        """The file, decompressed; a range is one of a file that is not compressed."""
        return open_input(part.uri, self.storage_options, "infer" if part.stop is None else None)


def passed_over(path: str | list[str], endings: Mapping[str, int]) -> list[str]:
    """What is said of files of other kinds than those that are read; `endings`: how many there are."""
    if not endings:
        return []
    there = listing(f"{count} {ending}" for ending, count in sorted(endings.items()))
    return [f"{listing([path] if isinstance(path, str) else path)}: files of other kinds are not read: "
            f"{there}. If they are to be, read them by a source of their own"]


def as_paths(path: Any) -> str | list[str]:
    """What a source is to read, as text or a list of texts.

    Raises:
        ValueError: it names nothing.
    """
    if isinstance(path, (str, PathLike)):
        path = path_text(fspath(path))
    elif isinstance(path, (list, tuple)):
        path = [path_text(fspath(p)) if isinstance(p, (str, PathLike)) else p for p in path]
    if not path or not isinstance(path, (str, list)):
        raise ValueError(f"path must name at least one file, folder, glob or URL, got {path!r}")
    return path


def unreadable(part: SourceRange, place: str, at: int, what: str, error: BaseException) -> Outputs:
    """A part of a file that cannot be read, which `what` says, on the port `failed`."""
    fault = InputError(f"{part.uri}: {what} cannot be read: {error}")
    fault.__cause__ = error
    return failures(part, [Failure(f"{part.uri}:{place}={at}", at, fault)])


def failures(part: SourceRange, found: list[Failure]) -> Outputs:
    """Bad records on the port `failed`."""
    return Outputs(failed=failed_rows(part.uri, found))
