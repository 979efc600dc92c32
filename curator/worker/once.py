"""What is done once on a node, by whichever worker comes first."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable

from curator.api.errors import CuratorError

BEGUN, DONE, FAILED = b"?", b"+", b"-"  # how the file begins


def once_on_node(folder: str, name: str, do: Callable[[], None]) -> None:
    """Do something, unless another process of this run has done it on this node. `folder`: of the run, on this node.

    Others wait meanwhile. If the one that does it dies, the next one does; if it fails, all are told.

    Raises:
        CuratorError: it failed in another process, and why.
    """
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    file = os.open(f"{folder}/once-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # it goes with the process that holds it
        found = os.pread(file, 1 << 20, 0)
        if found.startswith(FAILED):
            raise CuratorError(found[1:].decode())
        if found.startswith(DONE):
            return
        os.pwrite(file, BEGUN, 0)  # so that a full disk is met before, and not after
        try:
            do()
        except Exception as error:
            os.pwrite(file, FAILED + str(error).encode(), 0)
            raise
        os.pwrite(file, DONE, 0)
    finally:
        os.close(file)
