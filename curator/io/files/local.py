"""Files of this machine, without fsspec: listing is fast and a finished file survives a crash."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import BinaryIO

from curator.io.files.faults import explained

TEMPORARY = ".tmp-"  # names of files that are not complete begin so
_FOLDER = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True)
class Entry:
    """A file or folder in a listing. `version` changes when a file's content does."""

    path: str
    is_folder: bool
    size_bytes: int = 0
    version: str = ""

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


class Output:
    """A file being written: it appears under its name, whole, when `close` returns, and never when `abort` is called.

    In a `with` block an exception aborts. Raises InputError with path and remedy (disk full, no permission, …).
    """

    def __init__(self, uri: str) -> None:
        self.uri, self.closed = uri, False
        self._written = 0

    def write(self, data) -> int:
        with explained("write", self.uri):
            self._write(data)
        count = memoryview(data).nbytes
        self._written += count
        return count

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing: only a closed file counts."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            with explained("write", self.uri):
                self._commit()
        except BaseException:
            self._discard()
            raise

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self._discard()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close() if kind is None else self.abort()

    def __del__(self) -> None:
        self.abort()  # a file nobody closed is not complete

    def _write(self, data) -> None:
        raise NotImplementedError

    def _commit(self) -> None:
        raise NotImplementedError

    def _discard(self) -> None:
        raise NotImplementedError


class LocalOutput(Output):
    """A temporary name in the same folder, fsync, then rename."""

    def __init__(self, path: str) -> None:
        self.closed = True  # until there is something to abort
        folder, name = os.path.split(path)
        self._path, self._temporary = path, os.path.join(folder, f"{TEMPORARY}{name}.{uuid.uuid4().hex[:8]}")
        with explained("write", path):
            os.makedirs(folder, exist_ok=True)
            self._file = open(self._temporary, "xb", buffering=1 << 18)  # noqa: SIM115
        super().__init__(path)

    def _write(self, data) -> None:
        self._file.write(data)

    def _commit(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)
        sync_folder(os.path.dirname(self._path))

    def _discard(self) -> None:
        with suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self._file.close()
        with suppress(OSError):  # gone already, or its folder is
            os.unlink(self._temporary)


def sync_folder(path: str) -> None:
    """Make the names in a folder survive a power cut, where the system can."""
    with suppress(OSError):  # some network filesystems cannot sync a folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class LocalFiles:
    """The adapter for this machine's files. Paths are absolute."""

    is_local = True
    is_exclusive = True

    def uri(self, path: str) -> str:
        return path

    def info(self, path: str) -> Entry | None:
        """The file or folder at a path, None where there is nothing."""
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _entry(path, found)

    def ls(self, path: str) -> list[Entry]:
        """Files and folders in a folder; [] if it does not exist."""
        try:
            with os.scandir(path) as entries:
                return [e for e in map(_of_scan, entries) if e is not None]
        except FileNotFoundError:
            return []

    def walk(self, path: str, links: bool = True) -> Iterator[Entry]:
        """Every file below a folder, at any depth; with `links` symbolic links are followed, but never in a circle."""
        pending, seen = [path], {os.path.realpath(path)}
        while pending:
            for entry in self.ls(pending.pop()):
                if not entry.is_folder:
                    yield entry
                    continue
                if os.path.islink(entry.path):
                    real = os.path.realpath(entry.path)
                    if real in seen or not links:
                        continue
                    seen.add(real)
                pending.append(entry.path)

    def read(self, path: str) -> BinaryIO:
        return open(path, "rb")

    def read_whole(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str) -> Output:
        return LocalOutput(path)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file where there is none; False if there is one. A reader may see it before it is whole."""
        try:
            with open(path, "xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def remove(self, folder: str, name: str) -> None:
        """Remove a file below a folder. What a symbolic link below it leads to is left alone: it does not lie there."""
        *above, last = [part for part in name.split("/") if part not in ("", ".")]
        with suppress(FileNotFoundError), ExitStack() as opened:
            at = None
            for step in (folder, *above):
                try:
                    at = os.open(step, _FOLDER if at is None else _FOLDER | os.O_NOFOLLOW, dir_fd=at)
                except NotADirectoryError:  # a link, or a file
                    return
                opened.callback(os.close, at)
            os.unlink(last, dir_fd=at)

    def make(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)


def _of_scan(found: os.DirEntry) -> Entry | None:
    try:
        return _entry(found.path, found.stat())
    except FileNotFoundError:  # removed meanwhile, or a link to nothing
        return None


def _entry(path: str, found: os.stat_result) -> Entry:
    if stat.S_ISDIR(found.st_mode):
        return Entry(path, True)
    return Entry(path, False, found.st_size, str(found.st_mtime_ns))
