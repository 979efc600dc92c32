"""A GPU that a process can use no more: a kernel that fails breaks the process's context, and every later
call fails in it, whatever its rows. A new process has a new context."""

from __future__ import annotations

import sys


class DeviceLost(Exception):
    """The process must end; the message says what broke its device."""


def device_lost() -> bool:
    """Whether torch's device answers with an error though nothing is asked of it. To be asked after an error
    only: it waits for the device."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    try:
        cuda.synchronize()
    except RuntimeError:
        return True
    return False
