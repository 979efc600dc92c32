"""Files and folders on any filesystem: this disk, memory, S3, HTTP and whatever else fsspec knows."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO, Literal, overload

from curator.api.errors import InputError
from curator.api.stage import SourceRange
from curator.io.files.compression import decompressed, resolve_codec
from curator.io.files.faults import explained, path_text
from curator.io.files.listing import HIDDEN, expand
from curator.io.files.local import TEMPORARY, FileInfo, LocalFiles, Output
from curator.io.files.reading import opened
from curator.io.files.remote import CONCURRENT, RemoteFiles

__all__ = ["FileInfo", "Folder", "Output", "ahead", "list_files", "open_input"]

_LOCAL = LocalFiles()
_TOGETHER = 500  # small files that are read at the same time
_AHEAD_FILES, _AHEAD_BYTES = 16, 16 << 20  # that are on their way, and held, for one reader
# contents of files that a reader comes to, by URL and options
_fetched: dict[tuple[str, str], Future[list[bytes]]] = {}


@contextmanager
def _files(doing: str, uri: str, options: dict[str, Any] | None) -> Iterator[LocalFiles | RemoteFiles]:
    """The half for a path or URL; what goes wrong inside the block is an InputError that says what was done
    to it."""
    protocol, separator, _ = uri.partition("://")
    with explained(doing, uri):
        here = not separator or protocol in ("file", "local")
        yield _LOCAL if here else RemoteFiles(protocol, options or {})


@dataclass(frozen=True)
class Folder:
    """A folder on any filesystem; it need not exist. Get one with `Folder.open`.

    Names are relative to it and may contain slashes. Errors of the filesystem are InputErrors that say path
    and remedy.
    """

    uri: str
    storage_options: dict[str, Any] | None = field(default=None, repr=False, hash=False)

    @classmethod
    def open(cls, path: str, storage_options: dict[str, Any] | None = None) -> Folder:
        """The folder at a path or URL."""
        with _files("open", path_text(str(path)), storage_options) as files:
            return cls(files.full(str(path)).encode().decode(), storage_options)

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def sub(self, name: str) -> Folder:
        """The folder of this name below this one."""
        return Folder(self.path_of(name), self.storage_options)

    def path_of(self, name: str) -> str:
        """The full path or URL of a name."""
        return self.uri + name if self.uri.endswith("://") else f"{self.uri.rstrip('/')}/{name}"

    def full_path(self, file: str) -> str:
        """The path or URL of a file that is named from here, or in full where it lies elsewhere."""
        return file if file.startswith("/") or "://" in file else self.path_of(file)

    def names(self, recursive: bool = False) -> list[str]:
        """The files in the folder, sorted; with `recursive` also those below. [] if it does not exist.

        Files that are still being written, or never were finished, are left out; see `everything`.
        """
        with _files("list", self.uri, self.storage_options) as files:
            found = self._below(files.walk(self.uri) if recursive else files.ls(self.uri))
        return [n for n in found if not n.rpartition("/")[2].startswith(TEMPORARY)]

    def everything(self) -> list[str]:
        """All files in the folder and below, also what a killed run has left unfinished, sorted; [] if it
        does not exist.

        What symbolic links below it lead to lies elsewhere, and is left out.
        """
        with _files("list", self.uri, self.storage_options) as files:
            return self._below(files.walk(self.uri, links=False))

    def _below(self, found: Iterable[FileInfo]) -> list[str]:
        begin = len(self.path_of(""))
        return sorted(file.uri[begin:] for file in found if not file.is_folder)

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        with self._at("read", name) as (files, uri):
            return files.info(uri) is not None

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self._at("read", name) as (files, uri):
            return files.read_all([uri])[0]

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        """The contents of many small files, in this order; from another machine some hundreds at the same
        time."""
        step = 1 if self.is_local else _TOGETHER
        for first in range(0, len(names), step):
            some = [self.path_of(name) for name in names[first:first + step]]
            with _files("read", some[0] if len(some) == 1 else self.uri, self.storage_options) as files:
                contents = files.read_all(some)
            yield from contents

    def write(self, name: str, data: bytes) -> None:
        """Write a file in one go: a reader sees the old content or the new, also after a crash."""
        with self.open_file(name, "wb") as file:
            file.write(data)

    @property
    def is_exclusive(self) -> bool:
        """Whether of two who `create` one file at once only one succeeds. (A server of S3 may be too old, and
        not say so.)"""
        with _files("open", self.uri, self.storage_options) as files:
            return files.is_exclusive

    def create(self, name: str, data: bytes) -> bool:
        """Write a file where there is none; False if there is one. The folder must be there (`make`)."""
        with self._at("write", name) as (files, uri):
            return files.create(uri, data)

    @overload
    def open_file(self, name: str, mode: Literal["rb"] = "rb") -> BinaryIO: ...
    @overload
    def open_file(self, name: str, mode: Literal["wb"]) -> Output: ...
    def open_file(self, name: str, mode: str = "rb") -> BinaryIO | Output:
        """A file to read (`rb`) or to write (`wb`); what is written appears, whole, at `close`."""
        if mode not in ("rb", "wb"):
            raise ValueError(f"mode is rb or wb, not {mode!r}")
        with self._at("write" if mode == "wb" else "read", name) as (files, uri):
            return files.write(uri) if mode == "wb" else files.read(uri)

    def delete(self, names: str | Iterable[str]) -> None:
        """Remove files; one that is not there is fine, and what lies behind a symbolic link below the folder
        is left alone.

        Raises:
            ValueError: a name does not lie below the folder.
        """
        for name in [names] if isinstance(names, str) else names:
            if not name or name.startswith("/") or ".." in name.split("/"):
                raise ValueError(f"{name!r} is no name of a file below {self.uri}")
            with self._at("delete", name) as (files, _):
                files.remove(self.uri, name)

    def move(self, names: Iterable[str], to: Folder) -> None:
        """Give files of this folder the same names in another one of the same filesystem; one that is there
        already, and not here any more, has been moved before."""
        left = iter(names)
        while some := list(islice(left, _TOGETHER)):
            with _files("move to", to.uri, self.storage_options) as files:
                files.move([(self.path_of(name), to.path_of(name)) for name in some])

    def make(self) -> None:
        """Create the folder and those above it, where the filesystem has folders."""
        with _files("write", self.uri, self.storage_options) as files:
            files.make(self.uri)

    def fsspec(self) -> Any:
        """The filesystem of a folder elsewhere, for libraries that read by one."""
        return RemoteFiles(self.uri.partition("://")[0], self.storage_options or {}).fs

    @contextmanager
    def _at(self, doing: str, name: str) -> Iterator[tuple[LocalFiles | RemoteFiles, str]]:
        uri = self.path_of(name)
        with _files(doing, uri, self.storage_options) as files:
            yield files, files.full(uri)


def list_files(path: str | list[str], storage_options: dict[str, Any] | None = None,
               suffixes: tuple[str, ...] = (), hidden: str = HIDDEN,
               passed: list[FileInfo] | None = None) -> list[FileInfo]:
    """The files that paths, globs (`*`, `?`, `[ab]`, `**`), folders and URLs name, sorted by uri, each once.

    In a folder, and below it, files count whose lower-case name ends with one of `suffixes` (any if there are
    none); names that begin with a character of `hidden` are left out, and of the output of a run only the
    written records are taken. `passed`: is given those that are passed over in a folder.

    Raises:
        InputError: a path that names no file, or that cannot be listed.
    """
    given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not given:
        raise InputError("no path is given to read from")
    found: dict[str, FileInfo] = {}
    for one in map(str, given):
        with _files("list", one, storage_options) as files:
            found |= {file.uri: file for file in expand(files, files.full(one), one, suffixes, hidden,
                                                    passed)}
    return [found[uri] for uri in sorted(found)]


def open_input(uri: str, storage_options: dict[str, Any] | None = None,
               compression: str | None = "infer") -> BinaryIO:
    """A file to read from its beginning, decompressed by its name (`.gz`, `.zst`, `.bz2`, `.xz`) or by
    `compression`.

    Where nothing is decompressed and the filesystem can, the file is seekable. Damage raises DamagedStream;
    with `read1` all that stands before it is read first.
    """
    codec = resolve_codec(uri, compression)
    with _files("read", uri, storage_options) as files:
        # what went wrong with it is said by opening the file
        content = _fetched.get((uri, repr(storage_options)))
        raw = (files.read(files.full(uri)) if content is None or content.exception()
               else io.BytesIO(content.result()[0]))
        opened(uri, raw)
        return decompressed(raw, codec, uri)


def ahead(parts: Sequence[SourceRange], storage_options: dict[str, Any] | None,
          opens: Callable[[SourceRange], Any] = lambda part: True) -> Iterator[SourceRange]:
    """The parts, in order. While one is read, the files behind it are on their way from where they lie, some
    at a time, as far ahead as their bytes allow; `open_input` has them then. `opens`: whether one is
    opened at all. Files of unknown size are not fetched ahead: nothing would bound the memory they take.

    To open a file elsewhere takes longer than to get a small one, so one after another they would be waited
    for.
    """
    todo = deque(part for part in parts if part.uri.partition("://")[0] in CONCURRENT
                 and part.stop is None and 0 < part.size_bytes <= _AHEAD_BYTES and opens(part))
    if len(todo) < 2:
        yield from parts
        return
    pool, held, given = ThreadPoolExecutor(_AHEAD_FILES), 0, repr(storage_options)
    try:
        for part in parts:
            while todo and held + todo[0].size_bytes <= _AHEAD_BYTES:
                one = todo.popleft()
                with _files("read", one.uri, storage_options) as files:
                    _fetched[one.uri, given] = pool.submit(files.read_all, [files.full(one.uri)])
                held += one.size_bytes
            yield part
            held -= part.size_bytes if _fetched.pop((part.uri, given), None) else 0
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for part in parts:
            _fetched.pop((part.uri, given), None)
