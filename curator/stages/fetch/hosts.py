"""Which row is next, where only so many of a host may be at work at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class RowsByHost:
    """Rows to work on, at most `most` of one host at a time; those with the host `""` as many as one likes.

    Hosts come one after another, so that a host with many rows does not keep the others waiting.
    """

    def __init__(self, hosts: Sequence[str], most: int) -> None:
        self._hosts = hosts
        self._waiting: dict[str, deque[int]] = {}
        for row, host in enumerate(hosts):
            self._waiting.setdefault(host, deque()).append(row)
        # Who may begin: a host stands here once for each of its free places; one that has no rows left is
        # passed over.
        named = [host for host in self._waiting if host]
        self._line = deque([*(named * most), *[""] * len(self._waiting.get("", ()))])
        self._left = len(hosts)

    def __bool__(self) -> bool:
        """Whether there are rows that were not taken."""
        return self._left > 0

    def take(self) -> int | None:
        """A row that may begin, None if none may before another is given back."""
        while self._line:
            rows = self._waiting[self._line.popleft()]
            if rows:
                self._left -= 1
                return rows.popleft()
        return None

    def give_back(self, row: int) -> None:
        """The row is done: another one of its host may begin."""
        if self._hosts[row]:
            self._line.append(self._hosts[row])
