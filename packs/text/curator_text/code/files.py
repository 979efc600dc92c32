"""Source files from folders and archives of repositories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from curator.api.errors import InputError
from curator.api.stage import Contract, Outputs, SourceRange, Unit
from curator.io.files.folder import Folder, ahead, open_input
from curator.io.files.listing import is_glob
from curator.io.source import PathSource
from curator.io.units import plan_units
from curator_text.code.archives import ENDINGS, Broken, Entry, ending_of, entries
from curator_text.code.languages import Languages, load_languages, table_digest
from curator_text.code.licenses import FILE_CHARS, is_license_file, load_licenses, together
from curator_text.extract.decode import decode_text
from curator_text.read.rows import Rows, is_lasting

COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("id", "source", "repository", "path", "text", "charset"), pa.string()),
    "size_bytes": pa.int64(), "repository_license": pa.string(), "repository_license_file": pa.string()}


class Place(NamedTuple):
    """Where a file lies: its repository, its path in it, and the folder where the repository begins."""

    repository: str
    path: str
    root: str


@dataclass(kw_only=True)
class CodeFiles(PathSource):
    """Read source files, one document a file: from folders, and from tar and zip archives of repositories.

    Columns: `id` (a hash of the file's path), `source` (its path; in an archive the archive's and its own),
    `repository`, `path` (its path in the repository), `text`, `charset` (the encoding it was read in,
    detected), `size_bytes`, `repository_license` and `repository_license_file`: the licence that the
    LICENSE or COPYING nearest to the file is the text of, from its folder up to the repository's; null
    where none is there or none is known. Of several in one folder `OR` of them.

    In a folder and in an archive the files count whose name the table of languages knows; names that begin
    with a dot do not, those with an underscore do. Files that are no text leave on `failed`, files that are
    too large or, with `languages`, turn out to be in another one on `dropped`, reasons `too_large` and
    `language`.

    `path`: folders, files, archives (.tar, .tar.gz, .tgz, .tar.bz2, .tar.xz, .tar.zst, .zip), globs or
    URLs, one or several. `languages`: which ones, by default all of the table. `table`: a YAML of your own
    in place of `curator_text/code/languages.yaml`. `repository_depth`: how many folders below `path` name a
    repository: 0, it is one; 1, each folder in it is; 2, `owner/name`. An archive is one, without the
    folder that all its files lie in. `max_file_bytes`: largest file that is read. `storage_options`: what
    the filesystem wants. `unit_bytes`: about how much is read, and done again after a crash, as one.

    Known limit: a run that goes on after a LICENSE alone was changed does not read the other files anew.
    """

    languages: list[str] | None = None
    table: str | None = None
    repository_depth: int = 0
    max_file_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "max_file_bytes")
        self.at_least(0, "repository_depth")
        for language in self.languages or ():
            if not self._table.suffixes([language]):
                raise ValueError(f"languages: no ending stands for {language!r}; they are written as in the "
                                 "table, such as Python, C++ or Shell")

    @cached_property
    def _table(self) -> Languages:
        return load_languages(self.table)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"table": table_digest(self.table)}

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def remarks(self) -> list[str]:
        return []  # a repository has files of many kinds

    def units(self) -> list[Unit]:
        wanted = (*self._table.suffixes(self.languages), *ENDINGS)
        named = [self.path] if isinstance(self.path, str) else self.path
        files = self.found(wanted, hidden=".")
        return plan_units([file for file in files if file.uri in named or self._counts(file.uri)],
                          self.unit_bytes)

    def read(self, unit: Unit) -> Iterator[Outputs]:
        rows = Rows(pa.schema(list(COLUMNS.items())))
        bases = [base for path in ([self.path] if isinstance(self.path, str) else self.path)
                 if (base := self._base(path)) is not None]
        near: dict[str, tuple[str, str] | None] = {}
        for part in ahead(unit.parts, self.storage_options, self._opens):
            files = self._add_archive(rows, part) if ending_of(part.uri) else \
                self._add_file(rows, part, bases, near)
            for _ in files:
                if rows.full():
                    yield rows.take()
        if rows:
            yield rows.take()

    def _counts(self, name: str) -> bool:
        """Whether a file's name is one that the table knows, or an archive's."""
        return ending_of(name) is not None or self._table.of(name, "") is not None

    def _opens(self, part: SourceRange) -> bool:
        """Whether it is an archive, or a file that is not too large."""
        return ending_of(part.uri) is not None or part.size_bytes <= self.max_file_bytes

    # -- files of folders ------------------------------------------------------------------------------------

    def _base(self, path: str) -> str | None:
        """The folder that a path names, or that a glob begins with."""
        fixed = path
        while is_glob(fixed.rsplit("/", 1)[-1]) or ("/" in fixed and is_glob(fixed)):
            fixed = fixed.rsplit("/", 1)[0] if "/" in fixed else "."
        if "://" not in fixed:
            return os.path.abspath(os.path.expanduser(fixed or "/"))
        return Folder.open(fixed, self.storage_options).uri

    def _place(self, uri: str, bases: list[str]) -> Place:
        fitting = [base for base in bases if uri.startswith(base.rstrip("/") + "/")]
        base = max(fitting, key=len, default=uri.rpartition("/")[0])
        parts = uri[len(base.rstrip("/")) + 1:].split("/")
        depth = self.repository_depth if len(parts) > self.repository_depth else 0
        name = "/".join(parts[:depth]) or base.rstrip("/").rpartition("/")[2]
        return Place(name, "/".join(parts[depth:]), "/".join([base.rstrip("/"), *parts[:depth]]))

    def _add_file(self, rows: Rows, part: SourceRange, bases: list[str],
                  near: dict[str, tuple[str, str] | None]) -> Iterator[None]:
        place = self._place(part.uri, bases)
        row = _row(part.uri, place.repository, place.path, part.size_bytes)
        try:
            if not self._opens(part):
                rows.add("dropped", row | {"reason": "too_large"})
            else:
                row |= _licensed(self._nearest(part.uri.rpartition("/")[0], place.root, near))
                with open_input(part.uri, self.storage_options, compression=None) as file:
                    self._add(rows, row, file.read(self.max_file_bytes + 1))
        except InputError as error:
            if not is_lasting(error):
                raise
            rows.fail(row, error)
        yield

    def _nearest(self, folder: str, root: str,
                 near: dict[str, tuple[str, str] | None]) -> tuple[str, str] | None:
        """The licences in a folder, or in the next above it that has some, up to the root."""
        if folder not in near:
            here = Folder(folder, self.storage_options)
            found = {}
            for name in filter(is_license_file, here.names()):
                with here.open_file(name) as file:
                    told = self._licence_of(file.read(FILE_CHARS))
                if told is not None:
                    found[name] = told
            near[folder] = together(found)
            if near[folder] is None and folder != root and len(folder) > len(root):
                near[folder] = self._nearest(folder.rpartition("/")[0], root, near)
        return near[folder]

    def _licence_of(self, content: bytes) -> str | None:
        return load_licenses(None).in_file(content.decode("utf-8", "replace"))

    # -- files of archives -----------------------------------------------------------------------------------

    def _add_archive(self, rows: Rows, part: SourceRange) -> Iterator[None]:
        archive = part.uri
        name = archive.rpartition("/")[2]
        repository = name[:len(name) - len(ending_of(archive) or "")]
        try:
            licenses, top = self._licenses_of(archive)
            for entry in entries(archive, self.storage_options):
                self._add_entry(rows, entry, _row(archive, repository, "", part.size_bytes), licenses, top)
                yield
        except InputError as error:
            if not is_lasting(error):
                raise
            rows.fail(_row(archive, repository, "", part.size_bytes), error)
            yield

    def _add_entry(self, rows: Rows, entry: Entry | Broken, whole: dict[str, Any],
                   licenses: dict[str, tuple[str, str] | None], top: str) -> None:
        archive = whole["source"]
        if isinstance(entry, Broken):
            rows.fail(whole | {"id": archive + entry.place}, entry.error)
            return
        path = entry.name.removeprefix("./")
        if not self._reads(path):
            return
        row = _row(f"{archive}/{path}", whole["repository"], path.removeprefix(top), entry.size_bytes)
        if entry.size_bytes > self.max_file_bytes:
            rows.add("dropped", row | {"reason": "too_large"})
            return
        folder = path
        while folder and (folder := folder.rpartition("/")[0]) not in licenses:
            pass
        try:
            self._add(rows, row | _licensed(licenses.get(folder)), entry.read())
        except ValueError as error:
            rows.fail(row, error)

    def _reads(self, path: str) -> bool:
        return (not any(part.startswith(".") for part in path.split("/")) and ending_of(path) is None
                and self._counts(path))

    def _licenses_of(self, archive: str) -> tuple[dict[str, tuple[str, str] | None], str]:
        """The licences by folder, and the folder that all files lie in, with its slash, "" if there is none.
        Read beforehand, since a LICENSE may stand behind what it is about."""
        found: dict[str, dict[str, str]] = {}
        tops: set[str] = set()
        for entry in entries(archive, self.storage_options):
            if isinstance(entry, Broken):
                continue
            folder, _, name = entry.name.removeprefix("./").rpartition("/")
            tops.add(folder.partition("/")[0] if folder else "")
            if is_license_file(name) and entry.size_bytes <= self.max_file_bytes:
                try:
                    told = self._licence_of(entry.read()[:FILE_CHARS])
                except ValueError:
                    continue  # the second reading says so
                if told is not None:
                    found.setdefault(folder, {})[name] = told
        top = tops.pop() + "/" if len(tops) == 1 and "" not in tops else ""
        return {folder: together(names) for folder, names in found.items()}, top

    # -- both ------------------------------------------------------------------------------------------------

    def _add(self, rows: Rows, row: dict[str, Any], content: bytes) -> None:
        """The row of a file, on the port where it belongs."""
        if len(content) > self.max_file_bytes:
            rows.add("dropped", row | {"reason": "too_large"})
            return
        try:
            text, charset = decode_text(content)
        except ValueError as error:
            rows.fail(row, error)
            return
        row |= {"text": text, "charset": charset}
        if self.languages and self._table.of(row["path"], text) not in self.languages:
            rows.add("dropped", row | {"reason": "language"})
        else:
            rows.add("out", row)


def _row(source: str, repository: str, path: str, size_bytes: int) -> dict[str, Any]:
    return {"id": xxhash.xxh3_64_hexdigest(source.encode()), "source": source,
            "repository": repository, "path": path, "size_bytes": size_bytes}


def _licensed(found: tuple[str, str] | None) -> dict[str, str | None]:
    return {"repository_license": found and found[0], "repository_license_file": found and found[1]}
