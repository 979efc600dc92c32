"""What happened in a run, line by line in `_run/events.jsonl`, written while it happens.

On a local disk each line is appended at once, so that it is there after a kill. Other filesystems cannot
append: there the file is written again now and then, never for more than a hundredth of the time, and a kill
costs what came since. A later attempt of the run goes on in the same file with its own number.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from curator.api.errors import CuratorError
from curator.io.files.faults import explained
from curator.io.files.folder import Folder

NAME = "events.jsonl"
BURST = 1000  # lines of one kind that are written as they come; after that
LINES_PER_S = 1.0  # so many a second, each of which says how many it stands for
TEXT_MAX = 1000  # characters; an error may be as long as it likes
RECENT = 20
USUAL = {"unit_read", "unit_commit", "worker_start", "worker_ready", "worker_stop", "worker_end", "plan"}
REWRITE_S = 10.0  # where a file cannot grow, it is written again so often, or
REWRITE_SHARE = 0.01  # so seldom that this costs no more than this share of the time


@dataclass
class _Kind:
    """How many lines of one kind may be written now (`allowed`, at the time `at`), and how many were not
    (`more`)."""

    at: float
    allowed: float = BURST
    more: int = 0
    total: int = 0

    def allows(self, now: float) -> bool:
        self.allowed = min(BURST, self.allowed + LINES_PER_S * (now - self.at))
        self.at = now
        if self.allowed < 1:
            return False
        self.allowed -= 1
        return True


class EventLog:
    """Appends lines to the log of a run. `folder` is its `_run`, `run` the number of the attempt, `clock`
    gives seconds.

    `trouble` says why the last line could not be written, if so: the next call tries again, and only `close`
    raises.
    """

    def __init__(self, folder: Folder, run: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.run, self.clock, self.trouble = folder, run, clock, ""
        self._kinds: dict[str, _Kind] = {}
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)  # lines, but for what goes as it should
        self._pending = bytearray()
        self._began = self._rewrite_at = clock()
        self._fd: int | None = None
        self._whole: bytearray | None = None  # the file, where it cannot be appended to
        folder.make()
        if folder.is_local:
            path = folder.path_of(NAME)
            with explained("write", path):
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
                _cut_torn_line(self._fd)
        else:
            self._whole = bytearray(folder.read(NAME) if folder.exists(NAME) else b"")

    @property
    def totals(self) -> dict[str, int]:
        """Events of this attempt by kind, also those that share a line."""
        return {name: kind.total for name, kind in self._kinds.items()}

    def add(self, event: str, text: str, **fields: Any) -> None:
        """Log an event. Fields that are None are left out; `flush` writes the line."""
        now = self.clock()
        kind = self._kinds.setdefault(event, _Kind(now))
        kind.total += 1
        if kind.more or not kind.allows(now):
            kind.more += 1
        else:
            self._line(now, event, text, fields)

    def flush(self, end: bool = False) -> None:
        """Write what was added since the last time, if that is due. Does not raise."""
        now = self.clock()
        for event, kind in self._kinds.items():
            if kind.more and (end or kind.allows(now)):
                self._line(now, event, f"{kind.more} more", {"more": kind.more})
                kind.more = 0
        if not self._pending or (self._fd is None and now < self._rewrite_at and not end):
            return
        try:
            self._write()
            self.trouble = ""
        except CuratorError as error:
            self.trouble = str(error)
        self._rewrite_at = self.clock() + max(REWRITE_S, (self.clock() - now) / REWRITE_SHARE)

    def close(self) -> None:
        """Write the rest. May be called twice.

        Raises:
            CuratorError: it cannot be written.
        """
        self.flush(end=True)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            self._pending.clear()
        if self.trouble:
            raise CuratorError(self.trouble)

    def _line(self, now: float, event: str, text: str, fields: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": at, "t": round(now - self._began, 3), "run": self.run, "event": event,
                **{name: value for name, value in fields.items() if value is not None},
                "text": text[:TEXT_MAX]}
        if event not in USUAL:
            self.recent.append(line)
        self._pending += json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"

    def _write(self) -> None:
        if self._fd is None:
            assert self._whole is not None, "an event after the log was closed"
            self._whole += self._pending
            self._pending.clear()
            self.folder.write(NAME, bytes(self._whole))
            return
        with explained("write", self.folder.path_of(NAME)):
            while self._pending:
                del self._pending[:os.write(self._fd, self._pending)]


def _cut_torn_line(fd: int) -> None:
    """A machine that went down may have left half a line, and the next one would be added to it."""
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        os.ftruncate(fd, os.pread(fd, size, 0).rfind(b"\n") + 1)
