"""Which process it is, so that no other process with the same number is ever taken for it.

A number alone is no proof: numbers are used again after a restart of the machine, and in every container.
Imports nothing but the standard library: the fork server uses it before it forks.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """This machine since its last start; "" where the kernel does not tell."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def pid_namespace() -> str:
    """What process numbers are counted in: a machine or a container; "" where the kernel does not tell."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks since the start of the machine; "" where the kernel does
    not tell.

    None if there is no such process any more.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (OSError, OverflowError):  # another user's
        pass
    found = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if found and found[0] in "ZX":  # dead, and its parent has not asked yet
        return None
    return found[19] if len(found) > 19 else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
