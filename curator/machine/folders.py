"""The folders in which batches travel between the processes of this machine, and the proof of whose they are.

    <shared memory, and the temporary folder>/
      curator-<uid>/              this user's, mode 700
        <process>-<random>/       one for each run, mode 700; whoever made it holds its lock
          owner.json              who made it: machine, boot, process and when that began, user
          w3-17  copy-4  at-3     batches, and the steps that workers are in

A name is no proof. A run that begins looks for what others have left only in a private folder of its user. It
takes a folder there that is this user's, whose lock is free, and whose `owner.json` says that a run made it
and that this run is gone; of it the files with names of ours, then the folder itself if it is empty. No
symbolic link is followed. What nobody can prove stays.

Imports nothing but the standard library: the fork server uses it before it forks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from curator.api.errors import CuratorError
from curator.machine.process_id import boot_id, pid_namespace, started

MARKER = "owner.json"
MADE_BY = "a run of Curator, for batches on their way; removed when the run is over"
SHARED_MIN = 256 << 20  # bytes; with less free, shared memory is not worth using
_OURS = re.compile(r"(?:w\d+|copy|at|once)-\d+")  # names of files in a run's folder
_MARKER_MAX = 4096  # bytes


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who made a folder. `started`: of the process, in the kernel's ticks since boot; "" where the kernel
    does not tell."""

    made_by: str
    uid: int
    host: str
    boot: str
    pids: str  # the namespace that the process number belongs to
    pid: int
    started: str

    def is_gone(self) -> bool:
        """Whether the process is certainly gone, given that the lock of its folder is free."""
        here = this_process()
        if self.boot != here.boot:
            # or it is another machine's, with which a network filesystem is shared
            return self.host == here.host
        if self.pids != here.pids:
            # a container's: it shares the folder and not the process numbers, so the lock has to tell
            return True
        began = started(self.pid)
        return began is None or bool(began and self.started and began != self.started)


def this_process() -> Owner:
    return Owner(made_by=MADE_BY, uid=os.geteuid(), host=socket.gethostname(), boot=boot_id(),
                 pids=pid_namespace(), pid=os.getpid(), started=started(os.getpid()) or "")


def make_folders() -> list[tuple[str, int]]:
    """New folders for one run: in shared memory, where there is enough of it, and in the temporary folder.

    Each with a descriptor that holds its lock. What runs of this user left that are gone (the machine lost
    power, everything was killed at once) is removed.

    Raises:
        CuratorError: none can be made.
    """
    made, troubles = [], []
    for parent in dict.fromkeys((shared_memory_parent(), temporary_parent())):
        try:
            made.append(_make_below(parent))
        except OSError as error:
            troubles.append(f"{parent} ({error.strerror or error})")
    if not made:
        raise CuratorError("there is no place for batches on their way between stages: no folder can be made "
                           f"in {' or '.join(troubles)}. Set TMPDIR to a folder that you may write to")
    return made


def shared_memory_parent() -> str:
    shared = "/dev/shm"
    if os.path.isdir(shared) and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > SHARED_MIN:
        return shared
    return temporary_parent()


def temporary_parent() -> str:
    """The temporary folder.

    Raises:
        CuratorError: there is none.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise CuratorError(f"{error.strerror}. Set TMPDIR to a folder that you may write to") from error


def _make_below(parent: str) -> tuple[str, int]:
    private = _private(parent)
    if private is not None:
        with contextlib.suppress(OSError):  # perhaps it is read-only
            _remove_stale(private)
            return _make(private)
    return _make(parent, prefix=f"curator-{os.geteuid()}-")  # nobody looks there for what is left


def _private(parent: str) -> str | None:
    """This user's folder there, made if it is missing; None if something else has its name, or others may
    look into it."""
    path = os.path.join(parent, f"curator-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    with contextlib.suppress(OSError), _opened(path) as folder:
        return path if _is_private(folder) else None
    return None


def _make(parent: str, prefix: str = "") -> tuple[str, int]:
    folder = tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with contextlib.suppress(OSError):  # a filesystem without locks: what is left there is never removed
            fcntl.flock(held, fcntl.LOCK_EX)
        # After the lock: who finds the marker finds the lock too.
        marker = os.open(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=held)
        with open(marker, "w", encoding="utf-8") as file:
            json.dump(asdict(this_process()), file, indent=1)
    except BaseException:
        os.close(held)
        raise
    return folder, held


def remove_folder(path: str) -> None:
    """Remove the folder of a run, at its end; nothing if that has been done, or if it is no such folder."""
    with contextlib.suppress(OSError), _opened(path) as folder:
        if _owner(folder) is not None:
            _remove(path, folder)


def clear_folder(path: str) -> None:
    """Remove all batches from the folder of a run."""
    with contextlib.suppress(FileNotFoundError), _opened(path) as folder:
        _clear(folder)


def _remove_stale(private: str) -> None:
    """Remove what runs that are gone have left in this user's private folder."""
    with _opened(private) as parent:
        for name in os.listdir(parent):
            # An OSError: it is no folder, or a link, somebody holds it, it is gone already, or there are no
            # locks.
            with contextlib.suppress(OSError), _opened(name, parent) as folder:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                owner = _owner(folder)
                if owner.is_gone() if owner is not None else _was_being_made(folder):
                    _remove(os.path.join(private, name), folder)


def _was_being_made(folder: int) -> bool:
    """Whether its maker died as it wrote the marker, given that the lock is free: there is nothing but an
    empty one."""
    return (_is_private(folder) and os.listdir(folder) == [MARKER]
            and os.stat(MARKER, dir_fd=folder, follow_symlinks=False).st_size == 0)


def _remove(path: str, folder: int) -> None:
    # from here on nobody can add a file; a remover that is killed leaves its marker
    if not path.endswith(".gone"):
        os.rename(path, path := f"{path}.gone")
    _clear(folder)
    os.unlink(MARKER, dir_fd=folder)
    os.rmdir(path)


def _clear(folder: int) -> None:
    for name in os.listdir(folder):
        if _OURS.fullmatch(name):
            with contextlib.suppress(OSError):  # gone already; or a folder, which is not ours
                os.unlink(name, dir_fd=folder)


def _owner(folder: int) -> Owner | None:
    """What the marker of a folder says; None without proof that a run of this user made it."""
    if not _is_private(folder):
        return None
    try:
        marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with open(marker, "rb") as file:
            found = os.fstat(marker)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return None
            owner = Owner(**json.loads(file.read(_MARKER_MAX)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    whole = all(isinstance(value, int if name in ("uid", "pid") else str)
                for name, value in asdict(owner).items())
    return (owner if whole and owner.made_by == MADE_BY and owner.uid == os.geteuid() and owner.pid > 0
            else None)


def _is_private(folder: int) -> bool:
    found = os.fstat(folder)
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077


@contextlib.contextmanager
def _opened(path: str, above: int | None = None) -> Iterator[int]:
    """A folder itself, not what a link at its place points to."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        yield folder
    finally:
        os.close(folder)
