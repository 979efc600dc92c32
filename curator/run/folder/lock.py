"""One run at a time in a folder.

On a disk it is a file lock, on `_run/lock`: the system lets go of it when the last process that holds it is
gone. So a run that follows one that was killed does not begin before the workers of that one are gone too,
and a machine that crashed leaves no lock behind.

Object stores have no locks, and some network filesystems neither. There it is a lease: small files
`_run/lease/<number>.json`, of which the highest number says who has the folder. A run creates the next number
(a write that fails if the file is there, where the store knows such writes), and writes its file again every
`BEAT_S` seconds. Another one may take the next number when the run has ended, when its process is gone from
this very machine, or when its file has not changed for `LEASE_S` seconds; these are counted by the one that
waits, and no two clocks are compared. A run that finds a higher number has lost its lease: it stops, and
writes and removes nothing any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from curator.api.errors import CuratorError
from curator.api.format import duration
from curator.io.files.faults import explained
from curator.io.files.folder import Folder
from curator.machine.process_id import boot_id, pid_namespace, started

ENDING_S = 10.0  # for the workers of a run that was killed to end
LOOKED_AT_S = 0.5  # who only looks whether a run is alive holds the lock for a moment
BEAT_S = 5.0  # a lease is renewed this often
LEASE_S = 30.0  # one that was not renewed for so long is another's to take
# where two may create one file: a run that is there has looked at its file within this time
SETTLE_S = BEAT_S + 1.0
NAME = re.compile(r"(\d{8})\.json")


@dataclass(frozen=True)
class Holder:
    """The process of a run, as it describes itself. `since`: when the run began, by its own clock.

    `machine` and `process` tell whether it is this machine since its start, and the very process.
    """

    host: str
    pid: int
    since: str
    machine: str
    process: str
    token: str
    beat: int = 0
    ended: bool = False

    @classmethod
    def me(cls) -> Holder:
        pid = os.getpid()
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        return cls(socket.gethostname(), pid, since, _machine(), started(pid) or "", secrets.token_hex(8))

    @classmethod
    def of(cls, data: bytes) -> Holder | None:
        """None if this is no description of a holder, or half of one."""
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(data, type=cls)
        return None

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine, so that `is_gone` is certain."""
        return self.machine == _machine()

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, as far as can be told at once."""
        return self.ended or (self.is_here and started(self.pid) != self.process)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def _machine() -> str:
    """This machine since its last start, and this container: where a process number means one process."""
    return f"{boot_id() or socket.gethostname()} {pid_namespace()}"


def take(out: Folder) -> Lock:
    """Keep other runs out of a folder, until `release`.

    Raises:
        CuratorError: another one is there.
    """
    if out.is_local:
        with contextlib.suppress(_NoLocks):
            return FileLock(out)
    return Lease(out)


def holder(out: Folder) -> Holder | None:
    """The run that works in a folder now; None if there is none. Nothing is written.

    Where it is a lease of another machine, it takes up to two of its beats until one is seen.
    """
    if out.is_local:
        try:
            fd = os.open(out.sub("_run").path_of("lock"), os.O_RDONLY)
        except OSError:
            return None
        try:
            if _locked(fd, fcntl.LOCK_SH):
                return None
            found = Holder.of(os.pread(fd, 4096, 0))
            return None if found is None or found.is_gone else found
        except _NoLocks:  # it may have a lease
            pass
        finally:
            os.close(fd)
    folder = out.sub("_run").sub("lease")
    first, until = newest(folder), time.monotonic() + 2 * BEAT_S
    now = first
    while (by := now[1]) is not None and not by.is_gone:
        if by.is_here or now != first:
            return by
        if time.monotonic() > until:
            return None
        time.sleep(BEAT_S / 10)
        now = newest(folder)
    return None


def last_holder(out: Folder) -> Holder | None:
    """The run that worked in a folder last, as it describes itself; None if nobody says so. Unlike `holder`
    it takes no lock, and does not wait to see whether that run still works."""
    folder = out.sub("_run")
    if out.is_local and folder.exists("lock") and (found := Holder.of(folder.read("lock"))) is not None:
        return found
    return newest(folder.sub("lease"))[1]


def read_stats(out: Folder) -> dict[str, Any]:
    """What `stats.json` says as it was written; {} where there is none.

    Raises:
        CuratorError: it is damaged.
    """
    own = out.sub("_run")
    try:
        if not own.exists("stats.json"):
            return {}
        stats = json.loads(own.read("stats.json"))
        stats["alive" if stats["status"] == "running" else "stages"]
    except (ValueError, KeyError, TypeError) as error:
        raise CuratorError(f"{own.path_of('stats.json')} is damaged ({error!r}); the command of the run, "
                           "given again, writes it anew") from error
    return stats


def stats_of(out: Folder) -> dict[str, Any]:
    """What `stats.json` says, with what has become of the run since it was written: one that is running may
    have been killed. {} where there is none.

    Raises:
        CuratorError: it is damaged.
    """
    stats = read_stats(out)
    if not stats or stats["status"] != "running":
        return stats
    alive = stats["alive"]
    age, who = duration(max(0.0, time.time() - alive["time"])), f"process {alive['pid']} on {alive['host']}"
    if holder(out) is not None:
        return {**stats, "message": f"{who} works on it; these numbers are {age} old"}
    message = (f"{who} was killed, or its machine went, after it wrote these numbers {age} ago; the same "
               "command continues it")
    return {**stats, "status": "killed", "message": message}


def _refused(out: Folder, by: Holder | None) -> CuratorError:
    return CuratorError(f"another run ({by or 'unknown'}) writes to {out.uri}; wait for it, end it, or write "
                        "to another folder")


class Lock:
    """What keeps other runs out. `fd`: a descriptor that workers are to hold open too, if there is one.

    `after_kill`: the run before did not let go of the folder, so what it began may still appear.
    """

    fd: int | None = None
    after_kill = False

    def check(self) -> None:
        """At no cost: whether it is known that the folder is another's.

        Raises:
            CuratorError: it is. Nothing may be written or removed there any more.
        """

    def confirm(self) -> None:
        """The same, and certain within what a lease can promise: before something is written or removed."""

    def release(self) -> None:
        """Let others in."""


# -- on a disk -----------------------------------------------------------------------------------------------


class _NoLocks(Exception):
    """This filesystem has none."""


def _locked(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _NoLocks from error
    return True


class FileLock(Lock):
    """Held by every process that holds `fd`."""

    def __init__(self, out: Folder) -> None:
        path = out.sub("_run").path_of("lock")
        out.sub("_run").make()
        with explained("write", path):
            self.fd = fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            began = time.monotonic()
            while not _locked(fd):
                by = self._written(fd)
                if time.monotonic() - began > (ENDING_S if by is not None and by.is_gone else LOOKED_AT_S):
                    raise _refused(out, by)
                time.sleep(0.05)
        except BaseException:
            os.close(fd)
            raise
        before = self._written(fd)
        self.after_kill = before is not None and not before.ended
        self.me = Holder.me()
        self._write(fd, self.me)

    def _written(self, fd: int) -> Holder | None:
        return Holder.of(os.pread(fd, 4096, 0))

    def _write(self, fd: int, who: Holder) -> None:
        os.ftruncate(fd, os.pwrite(fd, who.to_json(), 0))

    def release(self) -> None:
        if self.fd is not None:
            with contextlib.suppress(OSError):  # a full disk; the lock goes nevertheless
                self._write(self.fd, replace(self.me, ended=True))
            os.close(self.fd)
            self.fd = None


# -- everywhere else -----------------------------------------------------------------------------------------


def newest(folder: Folder) -> tuple[int, Holder | None]:
    """The highest number among leases (0: none), and who has it; None if its file is gone or unreadable."""
    number = max((int(found[1]) for n in folder.names() if (found := NAME.fullmatch(n))), default=0)
    try:
        return number, Holder.of(folder.read(_name(number))) if number else None
    except CuratorError:
        if folder.exists(_name(number)):
            raise
        return number, None


def _name(number: int) -> str:
    return f"{number:08d}.json"


def _clock() -> float:
    """Seconds that pass while a machine sleeps too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease(Lock):
    """Renewed by a thread. `number`: of our file."""

    def __init__(self, out: Folder) -> None:
        self.out, self.folder = out, out.sub("_run").sub("lease")
        self.me, self.number = Holder.me(), 0
        self.lost = ""  # why, once it is
        self.confirmed_at = 0.0  # when we last began to find that it is ours
        self.turn = threading.Lock()
        self.ending = threading.Event()
        self.folder.make()
        self._take()
        self.thread = threading.Thread(target=self._renew_often, name="lease", daemon=True)
        self.thread.start()

    def _is_ours(self, by: Holder | None) -> bool:
        return by is not None and by.token == self.me.token

    def _take(self) -> None:
        seen: tuple[int, Holder | None] | None = None
        seen_at = 0.0
        while True:
            began = _clock()
            number, by = now = newest(self.folder)
            if self._is_ours(by):  # it was created, though the answer was lost
                break
            if number and not (by is not None and by.is_gone):
                if (seen is not None and now != seen) or (by is not None and by.is_here):
                    raise _refused(self.out, by)
                if seen is None:
                    seen, seen_at = now, began
                    print(f"curator: {self.out.uri} is held by another run ({by or 'unknown'}); waiting up "
                          f"to {LEASE_S:g} s for its lease to run out, if it does not live any more",
                          file=sys.stderr, flush=True)
                if began - seen_at < LEASE_S:
                    time.sleep(BEAT_S / 5)
                    continue
            self.after_kill = number > 0 and not (by is not None and by.ended)
            if self._created(number + 1):
                number += 1
                break
        self.number, self.confirmed_at = number, began
        self.folder.delete([n for n in self.folder.names() if (old := NAME.fullmatch(n))
                            and int(old[1]) < number])

    def _created(self, number: int) -> bool:
        """Whether we made the file, and nobody else did."""
        if not self.folder.create(_name(number), self.me.to_json()):
            return False
        if not self.folder.is_exclusive or self.folder.create(_name(number), self.me.to_json()):
            time.sleep(SETTLE_S)  # this store lets two create one file: the last one has it
        latest, by = newest(self.folder)
        return latest == number and self._is_ours(by)

    def _renew_often(self) -> None:
        while not self.ending.wait(BEAT_S) and not self.lost:
            # the store does not answer: next time; or it is lost, which `check` tells
            with contextlib.suppress(CuratorError):
                self._renew()

    def _renew(self, ended: bool = False) -> None:
        """Find that the lease is ours, and write its file again."""
        with self.turn:
            self.check()
            began = _clock()
            number, by = newest(self.folder)
            if number != self.number or not self._is_ours(by):
                why = (f"{self.folder.uri} was removed" if by is None else
                       f"another run ({by}) has taken over {self.out.uri}, since this one gave no sign of "
                       "life for long")
                self.lost = (f"{why}; this run stops, and writes nothing there any more. What it had "
                             "finished before is kept")
                self.check()
            self.me = replace(self.me, beat=self.me.beat + 1, ended=ended)
            self.folder.write(_name(self.number), self.me.to_json())
            self.confirmed_at = began

    def check(self) -> None:
        if self.lost:
            raise CuratorError(self.lost)

    def confirm(self) -> None:
        self.check()
        # Nobody takes it within `LEASE_S` of the last beat: there is nothing to ask for a good part of that.
        if _clock() - self.confirmed_at > LEASE_S / 2:
            self._renew()

    def release(self) -> None:
        if not self.ending.is_set():
            self.ending.set()
            self.thread.join()
            with contextlib.suppress(CuratorError):  # it is another's already, or will run out
                self._renew(ended=True)
