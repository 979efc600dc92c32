"""WebDataset archives of a run: where the bytes of each sample lie, and a table of samples where there is
none beside them."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import msgspec

from curator.api.errors import CuratorError
from curator.io.files.faults import explained
from curator.io.files.folder import Folder, open_input
from curator.io.media.webdataset import key_and_ending

KEPT = 16  # archives whose members are kept in mind
TEXT_BYTES = 1 << 20  # of a text that stands in the table
INDEX_BYTES = 2 << 30  # of all tables made here: they lie in a temporary folder


@dataclass(frozen=True)
class Media:
    """A member of an archive: its bytes are `size` of the file at `path` from `offset` on."""

    name: str
    path: str
    offset: int
    size: int

    @property
    def ending(self) -> str:
        """`jpg`, in lower case."""
        return self.name.rpartition("/")[2].partition(".")[2].lower()


class Archives:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._members_of = lru_cache(maxsize=KEPT)(self._read)

    def members(self, file: str, key: str) -> tuple[Media, ...]:
        """The members of a sample, of the archive or of that beside a table; () if there are none."""
        archive = file.removesuffix(".parquet") + ".tar" if file.endswith(".parquet") else file
        return tuple(self._members_of(archive).get(key, ()))

    def _read(self, archive: str) -> dict[str, list[Media]]:
        path, found = self._folder.full_path(archive), dict[str, list[Media]]()
        with explained("read", path), self._open(path) as file:
            try:
                with tarfile.open(fileobj=file, mode="r:") as members:
                    for member in members:
                        if member.isreg() and (named := key_and_ending(member.name)) is not None:
                            media = Media(member.name, path, member.offset_data, member.size)
                            found.setdefault(named[0], []).append(media)
            except tarfile.TarError as error:
                raise CuratorError(f"{path} is damaged: {error}") from error
        return found

    def _open(self, path: str) -> BinaryIO:
        return open_input(path, self._folder.storage_options, None)

    def index(self, archives: Iterable[str], path: str) -> None:
        """Write what the archives say of their samples as JSON lines, one a sample, with `_file` and `key`.

        Raises:
            CuratorError: it would be too much.
        """
        with open(path, "wb") as lines:
            for archive in archives:
                where = self._folder.full_path(archive)
                with self._open(where) as file:
                    for key, parts in self._read(archive).items():
                        made = _described(file, parts) | {"_file": archive, "key": key}
                        lines.write(msgspec.json.encode(made) + b"\n")
                if lines.tell() > INDEX_BYTES:
                    raise CuratorError(f"{where}: the archives have no tables beside them, and say too much "
                                       "of their samples to be looked at; write them with metadata: true")


def _described(file: BinaryIO, parts: Iterable[Media]) -> dict[str, object]:
    """What the small parts of a sample say: its json, and the texts beside it."""
    made: dict[str, object] = {}
    for part in parts:
        kind = part.ending.rpartition(".")[2]
        if kind in ("json", "txt", "text", "cls") and part.size <= TEXT_BYTES:
            file.seek(part.offset)
            content = file.read(part.size)
            # readers of the archive refuse a broken part too
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                made |= (msgspec.json.decode(content, type=dict[str, object]) if part.ending == "json"
                         else {part.ending: content.decode()})
    return made
