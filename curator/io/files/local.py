"""Files of this machine.

Not by fsspec: that lists at a fraction of the speed, and its files are neither synced to the disk nor removed
past symbolic links.
"""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from curator.api.errors import InputError
from curator.io.files.faults import explained, path_text

TEMPORARY = ".tmp-"  # names of files that are not complete begin so
ATTEMPT = "part-"  # and so those of folders that one attempt at a unit has for itself
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f])")


@dataclass(frozen=True)
class FileInfo:
    """A file or folder as a listing tells it. `version` changes when a file's content does: modification time
    or etag."""

    uri: str
    size_bytes: int = 0
    version: str = ""
    is_folder: bool = False

    @property
    def name(self) -> str:
        return self.uri.rstrip("/").rpartition("/")[2]


class Output:
    """A file being written: it appears under its name, whole, when `close` returns, and never when `abort` is
    called.

    In a `with` block an exception aborts. Raises InputError with path and remedy (disk full, no permission,
    …).
    """

    def __init__(self, uri: str) -> None:
        self.uri, self.closed = uri, False
        self._written = 0
        self._refused: BaseException | None = None  # why nothing more can be written

    def write(self, data) -> int:
        if self._refused is not None:  # Arrow writes on where it closes, and this is the error to report
            raise self._refused
        try:
            with explained("write", self.uri):
                self._write(data)
        except BaseException as error:  # what it took of a full disk is free again
            self._refused = error
            self.abort()
            raise
        count = memoryview(data).nbytes
        self._written += count
        return count

    def tell(self) -> int:
        return self._written

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

    __del__ = abort  # a file nobody closed is not complete

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close() if kind is None else self.abort()

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
        _sync(os.path.dirname(self._path))

    def _discard(self) -> None:
        with suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self._file.close()
        with suppress(OSError):  # gone already, or its folder is, or has other files
            os.unlink(self._temporary)
            if os.path.basename(os.path.dirname(self._temporary)).startswith(ATTEMPT):
                os.rmdir(os.path.dirname(self._temporary))


def _sync(folder: str) -> None:
    """Make the names in a folder survive a power cut, where the system can."""
    with suppress(OSError):  # some network filesystems cannot sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class LocalFiles:
    """The local half of a `Folder`. Paths are absolute."""

    is_exclusive = True

    def full(self, path: str) -> str:
        return _on_disk(os.path.abspath(path.partition("://")[2] if "://" in path
                                        else os.path.expanduser(path)))

    def info(self, path: str) -> FileInfo | None:
        """The file or folder at a path, None where there is nothing.

        Raises:
            InputError: it is a pipe or a device.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(path)
            if not _is_lasting(found):
                raise InputError(f"{path} is a pipe or a device, which can be read only once, if at all: "
                                 "write what it gives into a file")
            return _info(path, found)
        return None

    def ls(self, path: str, links: bool = True) -> list[FileInfo]:
        """Files and folders in a folder, no pipes and devices; [] if it does not exist. With `links` a
        symbolic link that leads to nothing is a file, too: who reads it says so."""
        found = []
        with suppress(FileNotFoundError), os.scandir(_on_disk(path)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed meanwhile
                    # one that leads to itself leads to nothing
                    broken = entry.is_symlink() and not os.path.exists(entry.path)
                    if not broken or links:
                        seen = entry.stat(follow_symlinks=not broken)
                        # who reads a pipe may wait for ever
                        if broken or _is_lasting(seen):
                            found.append(_info(entry.path, seen))
        return found

    def walk(self, path: str, links: bool = True) -> Iterator[FileInfo]:
        """Every file below a folder, at any depth; with `links` symbolic links are followed, but never in a
        circle."""
        pending, seen = [path], {os.path.realpath(path)}
        while pending:
            for entry in self.ls(pending.pop(), links):
                if not entry.is_folder:
                    yield entry
                    continue
                if os.path.islink(folder := _on_disk(entry.uri)):
                    real = os.path.realpath(folder)
                    if real in seen or not links:
                        continue
                    seen.add(real)
                pending.append(folder)

    def read(self, path: str) -> BinaryIO:
        self.info(path)  # who opens a pipe waits for ever
        return open(path, "rb")

    def read_all(self, paths: list[str]) -> list[bytes]:
        """The contents of whole files."""
        return [Path(path).read_bytes() for path in paths]

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
        """Remove a file below a folder, and folders of an attempt that are empty then. What a symbolic link
        below it leads to is left alone: it does not lie there."""
        *above, last = [part for part in name.split("/") if part not in ("", ".")]
        with suppress(FileNotFoundError), ExitStack() as opened:
            at: list[int] = []
            for step in (folder, *above):
                try:
                    at.append(os.open(step, _FOLDER | os.O_NOFOLLOW, dir_fd=at[-1]) if at
                              else os.open(step, _FOLDER))
                except NotADirectoryError:  # a link, or a file
                    return
                opened.callback(os.close, at[-1])
            os.unlink(last, dir_fd=at[-1])
            with suppress(OSError):  # it has other files
                while any(step.startswith(ATTEMPT) for step in above):
                    os.rmdir(above.pop(), dir_fd=at[len(above)])

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Rename files, from and to; one that has its new name already stays so."""
        folders = {os.path.dirname(target) for _, target in pairs}
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        for source, target in pairs:
            try:
                os.rename(source, target)
            except FileNotFoundError:
                if not os.path.exists(target):
                    raise
        for folder in folders:
            _sync(folder)

    def make(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)


def _on_disk(path: str) -> str:
    """The path that `path_text` was given, if something is there."""
    if "\\x" not in path or os.path.lexists(path):
        return path
    was = os.fsdecode(_ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), os.fsencode(path)))
    return was if os.path.lexists(was) else path


def _is_lasting(found: os.stat_result) -> bool:
    """Whether it is a file or a folder."""
    return stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)


def _info(path: str, found: os.stat_result) -> FileInfo:
    name, path = path, path_text(path)
    if path != name and os.path.lexists(path):
        raise InputError(f"{path} is the name of two files: one's has bytes that are not UTF-8; rename it")
    if stat.S_ISDIR(found.st_mode):
        return FileInfo(path, is_folder=True)
    return FileInfo(path, found.st_size, str(found.st_mtime_ns))
