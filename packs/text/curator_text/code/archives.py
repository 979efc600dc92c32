"""Files in tar and zip archives, one after another, whatever is damaged."""

from __future__ import annotations

import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

from curator.io.files.folder import open_input
from curator.io.media.tar import Damage, TarReader

_TAR = {".tar": None, ".tar.gz": "gz", ".tgz": "gz", ".tar.bz2": "bz2", ".tbz2": "bz2", ".tar.xz": "xz",
        ".txz": "xz", ".tar.zst": "zst"}
ENDINGS = (*_TAR, ".zip")
_IN_MEMORY_BYTES = 32 << 20  # of a zip on a filesystem that cannot seek; more of it lies in a file


@dataclass(frozen=True)
class Entry:
    """A file in an archive. `read`: its content, to be asked for before the next one.

    `read` raises ValueError: it is damaged or encrypted."""

    name: str
    size_bytes: int
    read: Callable[[], bytes]


@dataclass(frozen=True)
class Broken:
    """A place where an archive cannot be read."""

    place: str
    error: Exception


def ending_of(uri: str) -> str | None:
    """How an archive's name ends, None if it is no archive."""
    lowered = uri.lower()
    return max((ending for ending in ENDINGS if lowered.endswith(ending)), key=len, default=None)


def entries(uri: str, storage_options: dict[str, Any] | None) -> Iterator[Entry | Broken]:
    """The files of an archive in its order; links, folders and devices are none.

    Raises:
        InputError: it cannot be opened.
    """
    ending = ending_of(uri)
    if ending == ".zip":
        with open_input(uri, storage_options, compression=None) as file:
            yield from _zipped(file)
    else:
        with open_input(uri, storage_options, compression=_TAR[ending or ".tar"]) as file:
            yield from _tarred(file)


def _tarred(file: BinaryIO) -> Iterator[Entry | Broken]:
    reader = TarReader(file)

    def read() -> bytes:
        data = reader.content()
        if data is None:
            raise ValueError("the archive ends before this file does")
        return data

    for found in reader.members():
        if isinstance(found, Damage):
            if found.certain:
                yield Broken(f"@{found.offset}", found.error)
        elif found.kind == "file":
            yield Entry(found.name, found.size, read)


def _zipped(file: BinaryIO) -> Iterator[Entry | Broken]:
    with _seekable(file) as whole:
        try:
            archive = zipfile.ZipFile(whole)
        except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError) as error:
            yield Broken("", ValueError(f"no zip archive that can be read: {error}"))
            return
        for info in archive.infolist():
            if not info.is_dir() and (info.external_attr >> 28) != 0xA:  # 0xA: a symbolic link
                yield Entry(info.filename, info.file_size, _reading(archive, info))


def _reading(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with archive.open(info) as member:
                return member.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
            raise ValueError(f"this file of the zip cannot be read: {error}") from error

    return read


@contextmanager
def _seekable(file: BinaryIO) -> Iterator[IO[bytes]]:
    if file.seekable():
        yield file
        return
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as copy:
        while piece := file.read(1 << 20):
            copy.write(piece)
        copy.seek(0)
        yield copy
