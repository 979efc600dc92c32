"""Files of other machines, and in memory, by fsspec: the only module that imports it."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any, BinaryIO

from curator.io.files.faults import BUCKETS, explained
from curator.io.files.local import TEMPORARY, FileInfo, Output

# Where an object appears only when its upload is complete, so that no temporary name is needed.
_OBJECT_STORES = BUCKETS | {"hf"}
# Where of two who create a file at once only one succeeds.
_EXCLUSIVE = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
# What several threads may ask at once. Of SFTP and FTP there is one connection, in which one thread waits for
# ever for the answer that another has taken.
CONCURRENT = _OBJECT_STORES | {"http", "https", "memory"}
_MOVES = 16  # files that are moved at a time
_VERSION_KEYS = ("ETag", "etag", "generation", "mtime", "LastModified", "last_modified", "updated",
                 "modified", "created", "blob_id", "xet_hash")


class RemoteFiles:
    """The half of a `Folder` for what lies elsewhere. Listings never come from a cache: a second run sees new
    files."""

    def __init__(self, protocol: str, options: dict[str, Any]) -> None:
        import fsspec

        # a place as it is called, and where it is read: a branch at one of its commits
        pinned: tuple[str, str] = options.get("pinned") or ("", "")
        self._named, self._at = pinned
        options = {name: value for name, value in options.items() if name != "pinned"}
        self.protocol, self.fs = protocol, fsspec.filesystem(protocol, **options)
        self.is_exclusive = protocol in _EXCLUSIVE
        host = f"{options.get('host', 'default')}/"  # what SFTP, FTP, SMB and HDFS leave out of their paths
        self._host = host if self.fs._strip_protocol(f"{protocol}://{host}x") == "/x" else ""

    def full(self, uri: str) -> str:
        return self._uri(self.path(uri))

    def path(self, uri: str) -> str:
        """A URL as the filesystem has it: most have no protocol."""
        return self.fs._strip_protocol(_other(uri, self._named, self._at))

    def info(self, uri: str) -> FileInfo | None:
        """The file or folder at a URL, None where there is nothing."""
        self.fs.invalidate_cache()
        with suppress(FileNotFoundError):
            return self._info(self.fs.info(self.path(uri)))
        return None

    def ls(self, uri: str) -> list[FileInfo]:
        """Files and folders in a folder; [] if it does not exist."""
        self.fs.invalidate_cache()
        path = self.path(uri)
        with suppress(FileNotFoundError, NotADirectoryError):
            return [self._info(i) for i in self.fs.ls(path, detail=True)
                    if i["name"].rstrip("/") != path.rstrip("/")]
        return []

    def walk(self, uri: str, links: bool = True) -> Iterator[FileInfo]:
        """Every file below a folder, at any depth: one listing where the store can do that. `links`: there
        are none."""
        self.fs.invalidate_cache()
        found = map(self._info, self.fs.find(self.path(uri), detail=True).values())
        return (entry for entry in found if not entry.is_folder and not entry.uri.endswith("/"))

    def read(self, uri: str) -> BinaryIO:
        # a file in memory is one object with one position, shared by all its readers
        if self.protocol == "memory":
            return io.BytesIO(self.fs.cat_file(self.path(uri)))
        return self.fs.open(self.path(uri), "rb")

    def read_all(self, uris: list[str]) -> list[bytes]:
        """The contents of whole files, at the same time; each in one request, as an open one fails when it is
        replaced."""
        paths = [self.path(uri) for uri in uris]
        if len(paths) == 1:
            return [self.fs.cat_file(paths[0])]
        found = self.fs.cat(paths)
        return [found[path] for path in paths]

    def write(self, uri: str) -> Output:
        return _InMemory(self, uri) if self.protocol == "memory" else _Upload(self, uri)

    def create(self, uri: str, data: bytes) -> bool:
        """Write a file where there is none; False if there is one."""
        try:
            self.fs.pipe_file(self.path(uri), data, mode="create")
        except Exception:  # stores have more than one name for it
            if self.info(uri) is None:
                raise
            return False
        return True

    def remove(self, folder: str, name: str) -> None:
        """Remove a file below a folder."""
        with suppress(FileNotFoundError):
            self.fs.rm_file(f"{self.path(folder).rstrip('/')}/{name}")

    def move(self, pairs: list[tuple[str, str]]) -> None:
        """Give files other URLs, from and to, some at a time; one that has its new one already keeps it.
        Object stores copy, without a byte on its way through this machine."""
        with ThreadPoolExecutor(_MOVES) as threads:
            for moved in [threads.submit(self._move, *pair) for pair in pairs]:
                moved.result()

    def _move(self, source: str, target: str) -> None:
        self.make(target.rpartition("/")[0])
        try:
            self.fs.cp_file(self.path(source), self.path(target))
            self.fs.rm_file(self.path(source))
        except FileNotFoundError:
            if self.info(target) is None:
                raise

    def make(self, uri: str) -> None:
        # there, folders are only in the names; s3fs would make a bucket
        if self.protocol not in _OBJECT_STORES:
            self.fs.makedirs(self.path(uri), exist_ok=True)

    def _uri(self, path: str) -> str:
        uri = path if "://" in path else f"{self.protocol}://{self._host}{path.lstrip('/')}"
        return _other(uri, self._at, self._named)

    def _info(self, info: dict[str, Any]) -> FileInfo:
        version = next((info[k] for k in _VERSION_KEYS if info.get(k) is not None), "")
        if isinstance(version, datetime):
            version = version.timestamp()
        return FileInfo(self._uri(info["name"]), int(info.get("size") or 0), str(version),
                        info["type"] == "directory")


def _other(uri: str, begin: str, instead: str) -> str:
    return instead + uri[len(begin):] if begin and f"{uri}/".startswith(f"{begin}/") else uri


class _InMemory(Output):
    def __init__(self, files: RemoteFiles, uri: str) -> None:
        super().__init__(uri)
        self._files, self._content = files, bytearray()

    def _write(self, data) -> None:
        self._content += data

    def _commit(self) -> None:
        self._files.fs.pipe_file(self._files.path(self.uri), bytes(self._content))

    def _discard(self) -> None:
        self._content.clear()


class _Upload(Output):
    """An upload that finishes at `close`; where a half-written file could be seen, a temporary name, then a
    rename.

    Not fsspec's `autocommit=False`: half of its filesystems ignore it.
    """

    def __init__(self, files: RemoteFiles, uri: str) -> None:
        self.closed = True  # until there is something to abort
        self._fs, self._path = files.fs, files.path(uri)
        self._place = self._path
        with explained("write", uri):
            if files.protocol not in _OBJECT_STORES:
                folder, _, name = self._path.rpartition("/")
                self._place = f"{folder}/{TEMPORARY}{name}.{uuid.uuid4().hex[:8]}"
                self._fs.makedirs(folder, exist_ok=True)
            self._file = self._fs.open(self._place, "wb")
        super().__init__(uri)

    def _write(self, data) -> None:
        self._file.write(data)

    def _commit(self) -> None:
        self._file.close()
        if self._place != self._path:
            self._fs.mv(self._place, self._path)

    def _discard(self) -> None:
        # What goes wrong here is not reported: the error that made us give up is the one to report.
        if self._place != self._path:
            with suppress(Exception):
                self._file.close()
            with suppress(Exception):
                self._fs.rm_file(self._place)
            return
        with suppress(Exception):
            self._file.discard()
        self._file.closed = True  # or its destructor would upload what was written so far
