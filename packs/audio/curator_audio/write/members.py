"""Recordings as members of a tar archive."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pyarrow as pa

from curator.io.files.folder import Output
from curator.io.media.sink import Names, safe
from curator.io.media.tar import END, header, padding

_ENDING = re.compile(r"[A-Za-z0-9_-]{1,16}")
_SUB = re.compile(r"-sub\d+$")  # by which NeMo tells several parts of one member


def shard_number(stem: str) -> int:
    """A number for the files of one name, below 2^48: NeMo knows by it which manifest goes with which tar."""
    return int.from_bytes(hashlib.blake2b(stem.encode(), digest_size=6).digest(), "big")


def ending_of(extension: Any, other: str = "") -> str:
    """`flac` for `.FLAC`; `other` for what is no ending of a file."""
    plain = str(extension or "").lstrip(".").lower()
    return plain if _ENDING.fullmatch(plain) else other


def member(name: str, content: Any) -> bytes:
    """A file as it stands in a tar archive; `content` is bytes or a buffer."""
    size = memoryview(content).nbytes
    return b"".join((header(name, size), content, padding(size)))


class TarOfRecords:
    """An archive with a member a record, `<key>.<extension>`, with names that NeMo does not take apart."""

    def __init__(self, output: Output, media: str) -> None:
        self._output, self._media, self._names = output, media, Names()

    def put(self, rows: pa.Table) -> list[str | None]:
        """Write the media of the rows; answers their names, None where there is none."""
        naming = [name for name in ("id", "key", "extension") if name in rows.column_names]
        written: list[str | None] = []
        for record, content in zip(rows.select(naming).to_pylist(), rows.column(self._media), strict=True):
            if not content.is_valid:
                written.append(None)
                continue
            name = self._name(record)
            self._output.write(member(name, content.as_buffer()))
            written.append(name)
        return written

    def finish(self) -> None:
        self._output.write(END)

    def _name(self, record: dict[str, Any]) -> str:
        key = safe(str(record["id"] if record.get("key") is None else record["key"]))
        key = self._names.unique(f"{key}_" if _SUB.search(key) else key)
        ending = ending_of(record.get("extension"))
        return f"{key}.{ending}" if ending else key
