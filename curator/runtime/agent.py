"""What a node of a cluster does for a run: its worker processes, and copies of batches of other nodes.

It knows neither Ray nor the scheduler. Requests come in (`do`), words of processes go out (`hear`); a thread
of its own owns the processes. A call that needs a batch of another node waits for it, and what is sent to the
same process after it waits behind it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from curator.engine import protocol
from curator.worker.processes import Processes
from curator.worker.store import Store

FETCHES = 4  # batches on their way here at a time
CLOSE_S = 30.0
# Ray ends us when the driver has died; should it not, this does. A driver may be stopped, or busy, for long
SILENCE_S = 900.0
LOOK_S = 3.0  # whether it is so is looked at this often
# An answer costs a millisecond, however much is in it: when one has just left, the next waits.
BUSY_S, GATHER_S = 0.005, 0.001

Far = tuple[int, str]  # the node where a batch lies, and its path there
User = tuple[int, int]  # a process, and the number of a call


@dataclass(slots=True)
class Copy:
    """A batch of another node, here or on its way. Without `users`, calls that need it, it goes."""

    path: Future[str]
    users: set[User] = field(default_factory=set)


class Agent:
    """`fetch(node, path)` gives the bytes of a batch on another node, or raises; threads call it.

    `leave` is called when nobody has listened for `SILENCE_S`: the driver is gone, and the processes end.
    """

    def __init__(self, modules: Sequence[str], fetch: Callable[[int, str], Any],
                 leave: Callable[[], None]) -> None:
        self.leave = leave
        self.processes = Processes(modules)
        self.store = Store(list(self.processes.folders), "copy")
        self.fetch = fetch
        self.fetchers = ThreadPoolExecutor(FETCHES, "fetch")
        self.copies: dict[Far, Copy] = {}
        # Requests to processes that wait for a batch, each with the copies that it needs, by path.
        self.letters: dict[int, deque[tuple[protocol.Send | protocol.EndProcess, dict[str, Copy]]]] = {}
        self.inbox: SimpleQueue[protocol.Request] = SimpleQueue()
        self.said: list[tuple[int, protocol.FromProcess]] = []
        self.something = threading.Condition()
        self.told_at = time.monotonic()  # when somebody last listened,
        self.listening = False  # or whether somebody does now
        self.broken: BaseException | None = None
        self.closing = False
        self.thread = threading.Thread(target=self._live, name="processes", daemon=True)
        self.thread.start()

    # -- from other threads ---------------------------------------------------------------------------------

    def do(self, requests: Sequence[protocol.Request]) -> None:
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

    # -- in its own thread -----------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            while not self.closing:
                if not self.listening and time.monotonic() - self.told_at > SILENCE_S:
                    self.processes.close()
                    self.leave()
                    return
                said = self.processes.wait(LOOK_S)
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
        while not self.inbox.empty():
            request = self.inbox.get()
            match request:
                case protocol.Send(message=protocol.Call() as call) if request.far:
                    if request.process in self.processes.alive:
                        user = request.process, call.id
                        copies = {path: self._copy((node, path), user) for path, node in request.far.items()}
                        self.letters.setdefault(request.process, deque()).append((request, copies))
                case (protocol.Send(message=protocol.Call() | protocol.Discard())
                      | protocol.EndProcess(kill=False)
                      # not `Resume`, which is for a call that has begun
                      ) if request.process in self.letters:
                    self.letters[request.process].append((request, {}))
                case _:
                    if isinstance(request, protocol.EndProcess) and request.kill:
                        self._discard(request.process)
                    self.processes.do(request)
        for process in list(self.letters):
            self._send_letters(process)

    # -- batches of other nodes ------------------------------------------------------------------------------

    def _copy(self, key: Far, user: User) -> Copy:
        copy = self.copies.get(key)
        if copy is None or (copy.path.done() and copy.path.exception()):
            copy = self.copies[key] = Copy(self.fetchers.submit(lambda: self.store.copy(self.fetch(*key))))
            copy.path.add_done_callback(lambda _: self.processes.wake())
        copy.users.add(user)
        return copy

    def _send_letters(self, process: int) -> None:
        """Send what is complete, in its turn."""
        letters = self.letters[process]
        while letters and all(copy.path.done() for copy in letters[0][1].values()):
            request, copies = letters.popleft()
            if copies and isinstance(request, protocol.Send) and isinstance(request.message, protocol.Call):
                call = request.message
                lost = next((error for copy in copies.values() if (error := copy.path.exception())), None)
                if lost is not None:
                    reason = f"a batch on another node could not be fetched: {lost}"
                    self.processes.send(process, protocol.DataLost(call.id, reason))
                    continue
                for ref in {s.ref for s in call.slices if s.ref is not None}:
                    ref.data = copies[ref.data].path.result() if ref.data in copies else ref.data
            self.processes.do(request)
        if not letters:
            del self.letters[process]

    def _heard(self, process: int, message: protocol.FromProcess) -> None:
        if isinstance(message, (protocol.Done, protocol.Failed, protocol.DataLost)):
            self._let_go(lambda user: user == (process, message.call))
        elif isinstance(message, protocol.Ended):
            self._discard(process)

    def _discard(self, process: int) -> None:
        self.letters.pop(process, None)
        self._let_go(lambda user: user[0] == process)

    def _let_go(self, ended: Callable[[User], bool]) -> None:
        """Remove copies that no call needs any more; one on its way is removed when it is here."""
        for key, copy in list(self.copies.items()):
            copy.users = {user for user in copy.users if not ended(user)}
            if not copy.users:
                del self.copies[key]
                copy.path.add_done_callback(_release)


def _release(path: Future[str]) -> None:
    if not path.cancelled() and path.exception() is None:
        Store.release(path.result())
