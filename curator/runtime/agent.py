"""What a node of a cluster does for a run: its worker processes, and copies of batches that lie on other nodes.

It knows neither Ray nor the scheduler. Requests come in (`do`), words of processes go out (`hear`); a thread of its own owns the
processes. A call that needs a batch of another node waits for it, and what is sent to the same process after it waits behind it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

from curator.runtime.workers import Request
from curator.worker.processes import Message, Processes
from curator.worker.store import Store
from curator.worker.work import Work

FETCHES = 4  # batches on their way here at a time
CLOSE_S = 30.0
SILENCE_S = 900.0  # Ray ends us when the driver has died; should it not, this does. A driver may be stopped, or busy, for long
LOOK_S = 3.0  # whether it is so is looked at this often
# An answer costs the driver and us a millisecond, however much is in it: when one has just left, the next waits for company.
BUSY_S, GATHER_S = 0.005, 0.001

Far = tuple[int, str]  # the node where a batch lies, and its path there
Call = tuple[int, int]  # a process, and the number of a call


@dataclass(slots=True)
class Copy:
    """A batch of another node. `users`: calls that were given it, or wait for it; without any it goes."""

    path: str | None = None
    users: set[Call] = field(default_factory=set)


@dataclass(slots=True)
class Letter:
    """A message to a process. `missing`: batches of `work` that are not here yet. `lost`: why one never will be."""

    message: Message
    work: Work | None = None
    far: Mapping[str, int] = field(default_factory=dict)
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
        self.inbox: SimpleQueue[Request] = SimpleQueue()
        self.said: list[tuple[int, Message]] = []
        self.something = threading.Condition()
        self.told_at = time.monotonic()  # when somebody last listened,
        self.listening = False  # or whether somebody does now
        self.broken: BaseException | None = None
        self.closing = False
        self.thread = threading.Thread(target=self._live, name="processes", daemon=True)
        self.thread.start()

    # -- from other threads ---------------------------------------------------------------------------------

    def do(self, requests: Sequence[Request]) -> None:
        """Carry out requests (method, arguments...) in their order, soon."""
        for request in requests:
            self.inbox.put(request)
        self.processes.wake()

    def hear(self, timeout: float) -> list[tuple[int, Message]]:
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

    def _say(self, said: list[tuple[int, Message]]) -> None:
        if said:
            with self.something:
                self.said += said
                self.something.notify_all()

    def _carry_out(self) -> None:
        while True:
            try:
                method, *args = self.inbox.get_nowait()
            except Empty:
                return
            match method:
                case "fetch_and_send":
                    self._fetch_and_send(*args)
                case "fetched":
                    self._fetched(*args)
                case "send" if args[0] in self.letters and args[1] != "resume":  # that is for a call that has begun
                    self.letters[args[0]].append(Letter(tuple(args[1:])))
                case "stop" if args[0] in self.letters and not args[1]:
                    self.letters[args[0]].append(Letter(("stop",)))
                case _:
                    if method == "stop" and args[1]:
                        self._discard(args[0])
                    getattr(self.processes, method)(*args)

    # -- batches of other nodes -------------------------------------------------------------------------------

    def _fetch_and_send(self, process: int, far: Mapping[str, int], work: Work) -> None:
        """A call with batches (path -> node) that lie elsewhere."""
        if process not in self.processes.alive:
            return
        letter = Letter((), work, far)
        for path, node in far.items():
            key = node, path
            if key not in self.copies:
                self.copies[key] = Copy()
                self.fetchers.submit(self._fetch, key)
            copy = self.copies[key]
            copy.users.add((process, work.id))
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
        self.do([("fetched", key, path, lost)])

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
                self.processes.send(process, "data_lost", letter.work.id, letter.lost)
            elif letter.work is not None:
                self.processes.send(process, "call", self._at_home(letter.work, letter.far))
            elif letter.message == ("stop",):
                self.processes.stop(process)
            else:
                self.processes.send(process, *letter.message)
        if not letters:
            del self.letters[process]

    def _at_home(self, work: Work, far: Mapping[str, int]) -> Work:
        here = {path: self.copies[node, path].path for path, node in far.items()}
        return replace(work, pieces=tuple(
            replace(p, data=here[p.data]) if isinstance(p.data, str) and p.data in here else p for p in work.pieces))

    def _heard(self, process: int, message: Message) -> None:
        if message[0] in ("done", "failed", "data_lost"):
            self._let_go(lambda call: call == (process, message[1]))
        elif message[0] == "ended":
            self._discard(process)

    def _discard(self, process: int) -> None:
        self.letters.pop(process, None)
        self._let_go(lambda call: call[0] == process)

    def _let_go(self, ended: Callable[[Call], bool]) -> None:
        """Remove copies that no call needs any more; one that is still on its way is removed when it is here."""
        for key, copy in list(self.copies.items()):
            if copy.users:
                copy.users = {call for call in copy.users if not ended(call)}
                if not copy.users and copy.path is not None:
                    del self.copies[key]
                    Store.release(copy.path)
