"""What a node of a cluster does for a run: its worker processes, and copies of batches that lie on other nodes.

It knows neither Ray nor the scheduler. Requests come in (`do`), words of processes go out (`hear`); a thread of its own owns the
processes. A call that needs a batch of another node waits for it, and what is sent to the same process after it waits behind it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from curator.engine import protocol
from curator.worker.processes import Processes
from curator.worker.store import Store

FETCHES = 4  # batches on their way here at a time
CLOSE_S = 30.0
SILENCE_S = 900.0  # Ray ends us when the driver has died; should it not, this does. A driver may be stopped, or busy, for long
LOOK_S = 3.0  # whether it is so is looked at this often
# An answer costs the driver and us a millisecond, however much is in it: when one has just left, the next waits for company.
BUSY_S, GATHER_S = 0.005, 0.001

Far = tuple[int, str]  # the node where a batch lies, and its path there
User = tuple[int, int]  # a process, and the number of a call


@dataclass(slots=True)
class Copy:
    """A batch of another node. `users`: calls that were given it, or wait for it; without any it goes."""

    path: str | None = None
    users: set[User] = field(default_factory=set)


@dataclass(slots=True, frozen=True)
class Fetched:
    """A batch of another node is here, at `path`; or it never will be, because it is `lost`."""

    key: Far
    path: str | None
    lost: str


@dataclass(slots=True)
class Letter:
    """A request to a process. `missing`: batches of its call that are not here yet. `lost`: why one never will be."""

    request: protocol.Send | protocol.EndProcess
    missing: set[Far] = field(default_factory=set)
    lost: str = ""


class Agent:
    """`fetch(node, path)` gives the bytes of a batch on another node, or raises; it is called in threads of its own.

    `leave` is called when nobody has listened for `silence_s`: the driver is gone, and the processes are ended.
    """

    def __init__(self, modules: Sequence[str], fetch: Callable[[int, str], Any], leave: Callable[[], None],
                 silence_s: float = SILENCE_S) -> None:
        self.leave, self.silence_s = leave, silence_s
        self.processes = Processes(modules)
        self.store = Store(list(self.processes.folders), "copy")
        self.fetch = fetch
        self.fetchers = ThreadPoolExecutor(FETCHES, "fetch")
        self.copies: dict[Far, Copy] = {}
        self.letters: dict[int, deque[Letter]] = {}  # of the processes that wait for a batch
        self.inbox: SimpleQueue[protocol.Request | Fetched] = SimpleQueue()
        self.said: list[tuple[int, protocol.FromProcess]] = []
        self.something = threading.Condition()
        self.told_at = time.monotonic()  # when somebody last listened,
        self.listening = False  # or whether somebody does now
        self.broken: BaseException | None = None
        self.closing = False
        self.thread = threading.Thread(target=self._live, name="processes", daemon=True)
        self.thread.start()

    # -- from other threads ---------------------------------------------------------------------------------

    def do(self, requests: Sequence[protocol.Request | Fetched]) -> None:
        """Carry out requests in their order, soon."""
        for request in requests:
            self.inbox.put(request)
        self.processes.wake()

    def hear(self, timeout: float) -> list[tuple[int, protocol.FromProcess]]:
        """What processes have said since; waits for the first word, at most `timeout` seconds.

        Raises:
            RuntimeError: this agent is broken, and can do nothing any more.
        """
        before, self.listening = self.told_at, True
        try:
            with self.something:
                self.something.wait_for(lambda: self.said or self.broken or self.closing, timeout)
            if time.monotonic() - before < BUSY_S:
                time.sleep(GATHER_S)
            with self.something:
                if self.broken:
                    raise RuntimeError("the agent of a node is broken") from self.broken
                said, self.said = self.said, []
        finally:
            self.told_at, self.listening = time.monotonic(), False
        return said

    def close(self) -> None:
        """End every process, and remove the shared memory."""
        self.closing = True
        self.processes.wake()
        self.thread.join(CLOSE_S)

    # -- in its own thread ------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while not self.closing:
                if not self.listening and time.monotonic() - self.told_at > self.silence_s:
                    self.processes.close()
                    self.leave()
                    return
                said = self.processes.wait(min(LOOK_S, self.silence_s / 4))
                for process, message in said:
                    self._heard(process, message)
                self._say(said)
                self._carry_out()
            self._carry_out()
            self.processes.close()
        except BaseException as error:
            self.broken = error  # told by `hear`
        finally:
            self.fetchers.shutdown(wait=False, cancel_futures=True)
            with self.something:
                self.something.notify_all()

    def _say(self, said: list[tuple[int, protocol.FromProcess]]) -> None:
        if said:
            with self.something:
                self.said += said
                self.something.notify_all()

    def _carry_out(self) -> None:
        while True:
            try:
                request = self.inbox.get_nowait()
            except Empty:
                return
            match request:
                case Fetched():
                    self._fetched(request.key, request.path, request.lost)
                case protocol.Send() if request.far:
                    self._fetch_and_send(request)
                case (protocol.Send(message=protocol.Call() | protocol.Discard()) | protocol.EndProcess(kill=False)
                      ) if request.process in self.letters:  # not `Resume`, which is for a call that has begun
                    self.letters[request.process].append(Letter(request))
                case _:
                    if isinstance(request, protocol.EndProcess) and request.kill:
                        self._discard(request.process)
                    self.processes.do(request)

    # -- batches of other nodes -------------------------------------------------------------------------------

    def _fetch_and_send(self, request: protocol.Send) -> None:
        """A call with batches that lie elsewhere."""
        process, call = request.process, request.message
        if process not in self.processes.alive:
            return
        letter = Letter(request)
        for path, node in request.far.items():
            key = node, path
            if key not in self.copies:
                self.copies[key] = Copy()
                self.fetchers.submit(self._fetch, key)
            copy = self.copies[key]
            copy.users.add((process, call.id))
            if copy.path is None:
                letter.missing.add(key)
        self.letters.setdefault(process, deque()).append(letter)
        self._send_letters(process)

    def _fetch(self, key: Far) -> None:
        """In a thread of its own."""
        path, lost = None, ""
        try:
            path = self.store.copy(self.fetch(*key))
        except Exception as error:
            lost = f"a batch on another node could not be fetched: {error}"
        self.do([Fetched(key, path, lost)])

    def _fetched(self, key: Far, path: str | None, lost: str) -> None:
        copy = self.copies[key]
        copy.path = path
        if path is None or not copy.users:
            del self.copies[key]
            if path is not None:
                Store.release(path)
        for process in list(self.letters):
            for letter in self.letters[process]:
                if key in letter.missing:
                    letter.missing.discard(key)
                    letter.lost = letter.lost or lost
            self._send_letters(process)

    def _send_letters(self, process: int) -> None:
        """Send what is complete, in its turn."""
        letters = self.letters[process]
        while letters and not letters[0].missing:
            letter = letters.popleft()
            if letter.lost:
                self.processes.send(process, protocol.DataLost(letter.request.message.id, letter.lost))
            else:
                if isinstance(letter.request, protocol.Send):
                    self._bring_home(letter.request)
                self.processes.do(letter.request)
        if not letters:
            del self.letters[process]

    def _bring_home(self, request: protocol.Send) -> None:
        """Let a call read our copies."""
        if request.far:
            here = {path: self.copies[node, path].path for path, node in request.far.items()}
            for ref in {s.ref for s in request.message.slices if s.ref is not None}:
                ref.data = here.get(ref.data, ref.data)

    def _heard(self, process: int, message: protocol.FromProcess) -> None:
        if isinstance(message, (protocol.Done, protocol.Failed, protocol.DataLost)):
            self._let_go(lambda user: user == (process, message.call))
        elif isinstance(message, protocol.Ended):
            self._discard(process)

    def _discard(self, process: int) -> None:
        self.letters.pop(process, None)
        self._let_go(lambda user: user[0] == process)

    def _let_go(self, ended: Callable[[User], bool]) -> None:
        """Remove copies that no call needs any more; one that is still on its way is removed when it is here."""
        for key, copy in list(self.copies.items()):
            if copy.users:
                copy.users = {user for user in copy.users if not ended(user)}
                if not copy.users and copy.path is not None:
                    del self.copies[key]
                    Store.release(copy.path)
