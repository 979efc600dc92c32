"""Bytes that several threads may hold together: who wants more waits until others have let go."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Room:
    """Room for `nbytes`. One share at a time may go beyond it, however large: so something always gets done,
    and what is held is at most `nbytes` and one share more. `on_wait` is called by a thread that begins to
    wait."""

    def __init__(self, nbytes: int, on_wait: Callable[[], object] = lambda: None) -> None:
        self.nbytes, self.used, self.most_used = nbytes, 0, 0
        self._on_wait = on_wait
        self._line: deque[Share] = deque()  # who waits: first come, first served
        # the share that took the room beyond its bounds, until that is over
        self._beyond: Share | None = None
        self._closed = False
        self._changed = threading.Condition()

    @property
    def crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._line)

    def close(self) -> None:
        """Nobody waits any more: what is held now will be let go without a look at it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, share: Share, nbytes: int) -> bool:
        """The share holds so many bytes from now on, if not more; whether that had to wait."""
        with self._changed:
            if nbytes <= share.held or self._may(share, nbytes):
                self.set(share, max(nbytes, share.held))
                return False
            self._line.append(share)
        self._on_wait()
        with self._changed:
            self._changed.wait_for(lambda: self._may(share, nbytes))
            self._line.remove(share)
            self.set(share, nbytes)
        return True

    def set(self, share: Share, nbytes: int) -> None:
        with self._changed:
            self.used += nbytes - share.held
            share.held = nbytes
            self.most_used = max(self.most_used, self.used)
            if self.used <= self.nbytes:
                self._beyond = None
            elif self._beyond is None:
                self._beyond = share
            self._changed.notify_all()

    def _may(self, share: Share, nbytes: int) -> bool:
        if self._closed or self._beyond is share:
            return True
        if self._line and self._line[0] is not share:
            return False
        return self.used + nbytes - share.held <= self.nbytes or self._beyond is None


class Share:
    """What one thread at a time holds of a room."""

    def __init__(self, room: Room) -> None:
        self.room, self.held = room, 0

    def grow(self, nbytes: int) -> bool:
        """Hold so many bytes, or more if it does already; waits for them. Whether it had to."""
        return self.room.take(self, nbytes)

    def shrink(self, nbytes: int = 0) -> None:
        """Hold no more than so many."""
        self.room.set(self, min(nbytes, self.held))
