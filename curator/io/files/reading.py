"""How far the files of a unit are read: what a run shows of a unit while it is under way.

`open_input` says which file this process has opened last, and the position in it is asked when somebody wants
to know; so a source that opens its files there needs to do nothing. A reader that jumps about in its file
says itself how far it is (`has_read`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import BinaryIO

from curator.api.stage import SourceRange


class _Last:
    """The file that was opened last, and how to ask how far it is read; None: that it is closed."""

    uri = ""
    ask: Callable[[], int | None] = lambda: None


def opened(uri: str, file: BinaryIO) -> None:
    """A file is read from here on; `file` counts its bytes as they lie in storage."""
    here = weakref.ref(file)

    def ask() -> int | None:
        found = here()
        return None if found is None or found.closed else found.tell()

    _Last.uri, _Last.ask = uri, ask


def has_read(uri: str, position: int) -> None:
    """So far is this file read, in bytes from its beginning."""
    _Last.uri, _Last.ask = uri, lambda: position


class UnitProgress:
    """How far a unit is read."""

    def __init__(self, parts: Sequence[SourceRange]) -> None:
        self.parts = parts
        self.at: dict[str, int] = {}  # the first part of each file
        before, self.before = 0, []  # bytes of the parts before each
        for index, part in enumerate(parts):
            self.at.setdefault(part.uri, index)
            self.before.append(before)
            before += _size(part)
        self.size_bytes, self.read = before, 0

    def share(self) -> float:
        """The share of its bytes that is read; as the last time while none of its files was read last."""
        index = self.at.get(_Last.uri)
        if index is not None:
            part, position = self.parts[index], _Last.ask()
            done = _size(part) if position is None else min(max(0, position - part.start), _size(part))
            self.read = self.before[index] + done
        return self.read / self.size_bytes if self.size_bytes else 0.0


def _size(part: SourceRange) -> int:
    return part.size_bytes if part.stop is None else part.stop - part.start
