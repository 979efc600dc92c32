"""One run at a time in a folder."""

from __future__ import annotations

import fcntl
import os
import socket
import time

from curator.errors import CuratorError
from curator.io.faults import explained
from curator.io.files import Folder

LOCK_S = 10.0  # for the workers of a run that was killed to end


class Lock:
    """Keeps two runs out of one folder, on a local disk. It goes when the last process that holds `fd` is gone.

    So a run that follows one that was killed does not begin before the workers of that one are gone too, and a machine that
    crashed leaves no lock behind.
    """

    def __init__(self, out: Folder) -> None:
        self.fd: int | None = None
        if not out.is_local:
            return
        path = out.sub("_run").path_of("lock")
        out.sub("_run").make()
        with explained("write", path):
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        until = time.monotonic() + LOCK_S
        while not self._locked():
            host, _, pid = os.read(self.fd, 1000).decode(errors="replace").partition(" ")
            ending = host == socket.gethostname() and pid.isdigit() and not os.path.exists(f"/proc/{pid}")
            if not ending or time.monotonic() > until:
                self.release()
                raise CuratorError(f"another run (process {pid or '?'} on {host or '?'}) writes to {out.uri}; "
                                   "wait for it, end it, or write to another folder")
            os.lseek(self.fd, 0, os.SEEK_SET)
            time.sleep(0.05)
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{socket.gethostname()} {os.getpid()}".encode(), 0)

    def _locked(self) -> bool:
        assert self.fd is not None
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # this filesystem has no locks: there it is up to the user
            return True
        return True

    def release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
