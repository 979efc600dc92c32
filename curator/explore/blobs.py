"""Bytes of a record for the browser: where they lie, and pieces of them."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from curator.api.errors import CuratorError, InputError
from curator.io.media.types import HEAD_BYTES, media_type

KEPT_BYTES = 128 << 20  # of values of columns that a player asks for piece by piece
VALUE_BYTES = 512 << 20  # the largest value of a column that is read


@dataclass(frozen=True)
class Blob:
    """Bytes that are read by pieces. `read`: those from a place to the one before another."""

    kind: str
    size: int
    read: Callable[[int, int], bytes]

    def pieces(self, start: int, stop: int, size: int) -> Iterator[bytes]:
        for at in range(start, stop, size):
            piece = self.read(at, min(stop, at + size))
            if len(piece) != min(stop, at + size) - at:
                raise InputError(f"{stop:,} bytes were to be there, and {at + len(piece):,} are")
            yield piece


def of_value(value: bytes) -> Blob:
    return Blob(media_type(value[:HEAD_BYTES]), len(value), lambda start, stop: value[start:stop])


@contextmanager
def of_file(file: BinaryIO, offset: int = 0, size: int | None = None) -> Iterator[Blob]:
    """A part of an open file that can be sought in."""
    def read(start: int, stop: int) -> bytes:
        file.seek(offset + start)
        return file.read(stop - start)

    with file:
        if size is None:
            size = file.seek(0, os.SEEK_END)
        yield Blob(media_type(read(0, min(size, HEAD_BYTES))), size, read)


def below(root: str, path: str) -> str:
    """The true path of a file that must lie below a folder, links and all.

    Raises:
        CuratorError: it lies elsewhere, or is no file.
    """
    real, top = os.path.realpath(path), os.path.realpath(root)
    if os.path.commonpath([real, top]) != top or not os.path.isfile(real):
        raise CuratorError(f"{path} is no file below {root}, the folder of --media-root")
    return real


class Kept:
    """The last values of columns, so that a player that asks for a hundred pieces has one query."""

    def __init__(self) -> None:
        self._values = OrderedDict[Any, bytes]()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], bytes]) -> bytes:
        with self._lock:
            value = self._values.pop(key, None)
        value = make() if value is None else value
        with self._lock:
            self._values[key] = value
            while sum(map(len, self._values.values())) > KEPT_BYTES:
                self._values.popitem(last=False)
        return value
