"""Few requests at a time to one host, by all processes of this machine together, and a pause between them.

The engine has as many readers as there is work for; a server that is open to all should not see that.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curator.api.errors import CuratorError

_LOOK_S = 0.02  # how often who waits looks for a free place


class Turns:
    """`connections`: requests at a time to one host. `delay_s`: seconds between the end of a request and the
    next one in its place.

    A place is a locked file, which the system lets go when its process ends, however it ends; its time is
    that of the last request.
    """

    def __init__(self, connections: int, delay_s: float) -> None:
        self._connections, self._delay_s = connections, delay_s

    @contextmanager
    def turn(self, host: str) -> Iterator[None]:
        """Wait for a place, and for its pause; the request is made inside the block."""
        descriptor = self._place(host)
        try:
            ready = os.fstat(descriptor).st_mtime + self._delay_s
            time.sleep(min(self._delay_s, max(0.0, ready - time.time())))  # the clock may have been set
            yield
            now = time.time_ns()  # the file system's own clock is a coarse one
            os.utime(descriptor, ns=(now, now))
        finally:
            os.close(descriptor)

    def _place(self, host: str) -> int:
        """A file that is locked from now on: the first that is free."""
        folder, name = _folder(), hashlib.blake2b(host.encode(), digest_size=8).hexdigest()
        while True:
            for number in range(self._connections):
                descriptor = _open(folder / f"{name}-{number}")
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                else:
                    return descriptor
            time.sleep(_LOOK_S)  # who waited for one of them would not see that another is free


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    os.utime(descriptor, (0, 0))  # nobody has asked yet
    return descriptor


def _folder() -> Path:
    """A folder of this user's own, where another cannot lay links."""
    folder = Path(tempfile.gettempdir(), f"curator-turns-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise CuratorError(f"{folder} is not a folder of this user: name another temporary folder by TMPDIR")
    return folder
