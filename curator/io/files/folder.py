"""Files and folders on any filesystem: this disk, memory, S3, HTTP and whatever else fsspec knows.

The only module that imports fsspec; local paths do without it. Listings never come from a cache, so that a second
run sees new files.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

from curator.api.errors import InputError
from curator.io.files.compression import codec_of, compressed, decompressed, resolve_codec
from curator.io.files.faults import explained
from curator.io.files.listing import expand
from curator.io.files.local import TEMPORARY, Entry, LocalFiles, Output

__all__ = ["FileInfo", "Folder", "Output", "codec_of", "list_files", "open_input", "open_output"]

# Where an object appears only when its upload is complete, so that no temporary name is needed.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hf"})
# Where of two who create a file at once only one succeeds.
_EXCLUSIVE = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
_VERSION_KEYS = ("ETag", "etag", "generation", "mtime", "LastModified", "last_modified", "updated", "modified",
                 "created")
_LOCAL = LocalFiles()
TOGETHER = 500  # small files that are read at the same time


@dataclass(frozen=True)
class FileInfo:
    """A file as a listing tells it. `version` changes when the content does: modification time or etag."""

    uri: str
    size_bytes: int
    version: str = ""


class RemoteFiles:
    """The adapter for a filesystem of fsspec. Paths are as that filesystem has them, without the protocol."""

    is_local = False

    def __init__(self, protocol: str, options: dict[str, Any]) -> None:
        import fsspec

        self.protocol, self._fs = protocol, fsspec.filesystem(protocol, **options)
        self.is_exclusive = protocol in _EXCLUSIVE

    def path(self, uri: str) -> str:
        return self._fs._strip_protocol(uri)

    def uri(self, path: str) -> str:
        return path if "://" in path else f"{self.protocol}://{path.lstrip('/')}"

    def info(self, path: str) -> Entry | None:
        """The file or folder at a path, None where there is nothing."""
        self._fs.invalidate_cache()
        try:
            return _entry(self._fs.info(path))
        except FileNotFoundError:
            return None

    def ls(self, path: str) -> list[Entry]:
        """Files and folders in a folder; [] if it does not exist."""
        self._fs.invalidate_cache()
        try:
            found = [_entry(i) for i in self._fs.ls(path, detail=True)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [e for e in found if e.path.rstrip("/") != path.rstrip("/")]

    def walk(self, path: str, links: bool = True) -> Iterator[Entry]:
        """Every file below a folder, at any depth: one listing where the store can do that. `links`: there are none."""
        self._fs.invalidate_cache()
        found = self._fs.find(path, detail=True)
        return (e for e in map(_entry, found.values()) if not e.is_folder and not e.path.endswith("/"))

    def read(self, path: str) -> BinaryIO:
        if self.protocol == "memory":  # a file in memory is one object with one position, shared by all its readers
            return io.BytesIO(self._fs.cat_file(path))
        return self._fs.open(path, "rb")

    def read_whole(self, path: str) -> bytes:
        """In one request: an open file of S3 fails when another is written in its place."""
        return self._fs.cat_file(path)

    def read_all(self, paths: list[str]) -> list[bytes]:
        found = self._fs.cat(paths)
        return [found[path] for path in paths]

    def write(self, path: str) -> Output:
        return RemoteOutput(self._fs, path, self.uri(path), self.protocol)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file where there is none; False if there is one."""
        try:
            self._fs.pipe_file(path, data, mode="create")
        except Exception:  # stores have more than one name for it
            if self.info(path) is None:
                raise
            return False
        return True

    def remove(self, folder: str, name: str) -> None:
        """Remove a file below a folder."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{folder.rstrip('/')}/{name}")

    def make(self, path: str) -> None:
        if self.protocol not in _OBJECT_STORES:  # there, folders are only in the names; s3fs would make a bucket
            self._fs.makedirs(path, exist_ok=True)


class RemoteOutput(Output):
    """An upload that finishes at `close`; where a half-written file could be seen, a temporary name, then a rename."""

    def __init__(self, fs: Any, path: str, uri: str, protocol: str) -> None:
        self.closed = True  # until there is something to abort
        self._fs, self._path, self._kind = fs, path, protocol
        folder, _, name = path.rpartition("/")
        self._place = path
        with explained("write", uri):
            if protocol == "memory":
                self._file = io.BytesIO()
            elif protocol in _OBJECT_STORES:
                self._file = fs.open(path, "wb")
            else:
                self._place = f"{folder}/{TEMPORARY}{name}.{uuid.uuid4().hex[:8]}"
                fs.makedirs(folder, exist_ok=True)
                self._file = fs.open(self._place, "wb")
        super().__init__(uri)

    def _write(self, data) -> None:
        self._file.write(data)

    def _commit(self) -> None:
        if self._kind == "memory":
            self._fs.pipe_file(self._path, self._file.getvalue())
            return
        self._file.close()
        if self._place != self._path:
            self._fs.mv(self._place, self._path)

    def _discard(self) -> None:
        if self._kind == "memory":
            return
        # What goes wrong here is not told: the error that made us give up is the one to tell.
        if self._place != self._path:
            with suppress(Exception):
                self._file.close()
            with suppress(Exception):
                self._fs.rm_file(self._place)
            return
        with suppress(Exception):
            self._file.discard()
        self._file.closed = True  # or its destructor would upload what was written so far


def _entry(info: dict[str, Any]) -> Entry:
    version = next((info[k] for k in _VERSION_KEYS if info.get(k) is not None), "")
    if isinstance(version, datetime):
        version = version.timestamp()
    return Entry(info["name"], info["type"] == "directory", int(info.get("size") or 0), str(version))


def _locate(uri: str, options: dict[str, Any] | None) -> tuple[LocalFiles | RemoteFiles, str]:
    """The adapter for a path or URL, and the path inside it."""
    protocol, separator, rest = uri.partition("://")
    if not separator:
        return _LOCAL, os.path.abspath(os.path.expanduser(uri))
    if protocol in ("file", "local"):
        return _LOCAL, os.path.abspath(rest)
    with explained("open", uri):
        files = RemoteFiles(protocol, options or {})
        return files, files.path(uri)


@dataclass(frozen=True)
class Folder:
    """A folder on any filesystem; it need not exist. Get one with `Folder.open`.

    Names are relative to it and may contain slashes. Errors of the filesystem are InputErrors that say path and remedy.
    """

    uri: str
    storage_options: dict[str, Any] | None = field(default=None, repr=False, hash=False)

    @classmethod
    def open(cls, path: str, storage_options: dict[str, Any] | None = None) -> Folder:
        """The folder at a path or URL."""
        files, inner = _locate(str(path), storage_options)
        return cls(files.uri(inner), storage_options)

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def sub(self, name: str) -> Folder:
        """The folder of this name below this one."""
        return Folder(self.path_of(name), self.storage_options)

    def path_of(self, name: str) -> str:
        """The full path or URL of a name."""
        return self.uri + name if self.uri.endswith("://") else f"{self.uri.rstrip('/')}/{name}"

    def names(self, recursive: bool = False) -> list[str]:
        """The files in the folder, sorted; with `recursive` also those below. [] if it does not exist.

        Files that are still being written, or never were finished, are left out; see `everything`.
        """
        files, inner = _locate(self.uri, self.storage_options)
        found = self._below(files, inner, lambda: files.walk(inner) if recursive else files.ls(inner))
        return [n for n in found if not n.rpartition("/")[2].startswith(TEMPORARY)]

    def everything(self) -> list[str]:
        """All files in the folder and below, also what a killed run has left unfinished, sorted; [] if it does not exist.

        What symbolic links below it lead to lies elsewhere, and is left out.
        """
        files, inner = _locate(self.uri, self.storage_options)
        return self._below(files, inner, lambda: files.walk(inner, links=False))

    def _below(self, files: LocalFiles | RemoteFiles, inner: str, listed: Callable[[], Iterable[Entry]]) -> list[str]:
        with explained("list", self.uri):
            below = len(inner.rstrip("/")) + 1
            return sorted(e.path[below:] for e in listed() if not e.is_folder)

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        files, inner = self._at(name)
        with explained("read", self.path_of(name)):
            return files.info(inner) is not None

    def read(self, name: str) -> bytes:
        """The content of a file."""
        files, inner = self._at(name)
        with explained("read", self.path_of(name)):
            return files.read_whole(inner)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """The contents of many small files, in this order; from another machine some hundreds at the same time."""
        for first in range(0, len(names), TOGETHER):
            some = names[first:first + TOGETHER]
            files, _ = self._at(some[0])
            if files.is_local:
                yield from map(self.read, some)
            else:
                with explained("read", self.uri):
                    yield from files.read_all([files.path(self.path_of(name)) for name in some])

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one go: a reader sees the old content or the new, also after a crash."""
        with self.open_file(name, "wb") as file:
            file.write(data)

    @property
    def is_exclusive(self) -> bool:
        """Whether of two who `create` one file at once only one succeeds. (A server of S3 may be too old, and not say so.)"""
        return _locate(self.uri, self.storage_options)[0].is_exclusive

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; False if there is one. The folder must be there (`make`)."""
        files, inner = self._at(name)
        with explained("write", self.path_of(name)):
            return files.create(inner, data)

    def open_file(self, name: str, mode: str = "rb") -> BinaryIO | Output:
        """A file to read (`rb`) or to write (`wb`); what is written appears, whole, at `close`."""
        files, inner = self._at(name)
        if mode == "wb":
            return files.write(inner)
        if mode != "rb":
            raise ValueError(f"mode is rb or wb, not {mode!r}")
        with explained("read", self.path_of(name)):
            return files.read(inner)

    def delete(self, names: str | Iterable[str]) -> None:
        """Remove files; one that is not there is fine, and what lies behind a symbolic link below the folder is left alone.

        Raises:
            ValueError: a name does not lie below the folder.
        """
        files, inner = _locate(self.uri, self.storage_options)
        for name in [names] if isinstance(names, str) else names:
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"{name!r} is no name of a file below {self.uri}")
            with explained("delete", self.path_of(name)):
                files.remove(inner, name)

    def make(self) -> None:
        """Create the folder and those above it, where the filesystem has folders."""
        files, inner = _locate(self.uri, self.storage_options)
        with explained("write", self.uri):
            files.make(inner)

    def _at(self, name: str) -> tuple[LocalFiles | RemoteFiles, str]:
        return _locate(self.path_of(name), self.storage_options)


def list_files(path: str | list[str], storage_options: dict[str, Any] | None = None,
               suffixes: tuple[str, ...] = ()) -> list[FileInfo]:
    """The files that paths, globs (`*`, `?`, `[ab]`, `**`), folders and URLs name, sorted by uri, each once.

    In a folder, and below it, files count whose lower-case name ends with one of `suffixes` (any if there are none);
    names that begin with `.` or `_` are left out, and of the output of a run only the written records are taken.

    Raises:
        InputError: a path that names no file, or that cannot be listed.
    """
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not given:
        raise InputError("no path is given to read from")
    found: dict[str, FileInfo] = {}
    for one in map(str, given):
        files, inner = _locate(one, storage_options)
        with explained("list", one):
            for entry in expand(files, inner, one, suffixes):
                uri = files.uri(entry.path)
                found[uri] = FileInfo(uri, entry.size_bytes, entry.version)
    return [found[uri] for uri in sorted(found)]


def open_input(uri: str, storage_options: dict[str, Any] | None = None, compression: str | None = "infer") -> BinaryIO:
    """A file to read from its beginning, decompressed by its name (`.gz`, `.zst`, `.bz2`, `.xz`) or by `compression`.

    Where nothing is decompressed and the filesystem can, the file is seekable. Damage raises DamagedStream; with
    `read1` all that stands before it is read first.
    """
    codec = resolve_codec(uri, compression)
    files, inner = _locate(uri, storage_options)
    with explained("read", uri):
        return decompressed(files.read(inner), codec, uri)


def open_output(uri: str, storage_options: dict[str, Any] | None = None, compression: str | None = "infer") -> Output:
    """A file to write, compressed by its name (`.gz`, `.zst`) or by `compression`; it appears, whole, at `close`."""
    codec = resolve_codec(uri, compression)
    files, inner = _locate(uri, storage_options)
    return compressed(files.write(inner), codec)
