"""Workers as groups of processes: the wishes of the scheduler as requests, words of processes as events.

What all runtimes with processes share. An ordinary worker is one process. A gang is one for each rank: all of
them get every call, in the same order; the answer of rank 0 counts, and is told when all have given theirs,
since until then they read what was given. What ends one rank ends them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Protocol

import cloudpickle

from curator.engine import events as ev
from curator.engine import protocol
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator


class Runtime(Protocol):
    """Where workers live. `execute` does what the scheduler asks, at the latest with the next `wait`, which
    gives what has happened since and waits for the first event, at most `timeout` seconds. `close` returns
    when all workers and their batches are gone."""

    def execute(self, action: ev.RuntimeAction) -> None: ...

    def wait(self, timeout: float | None) -> list[ev.Event]: ...

    def close(self) -> None: ...


class Job:
    """What every runtime must know of a run: the operators, the units, and where sidecars lie.

    `unit_of(unit, attempt)`: what to read, and what its files are called. `restore(step, units)`: the
    sidecars of a stateful step, of the committed units and of those that are done again.
    """

    def __init__(self, operators: Sequence[Operator], unit_of: Callable[[int, int], protocol.UnitInfo],
                 sidecars: Folder, restore: Callable[[str, Sequence[int]], list[protocol.Restored]]) -> None:
        self.operators, self.unit_of, self.sidecars, self.restore = operators, unit_of, sidecars, restore

    def complete(self, call: protocol.Call) -> protocol.Call:
        """A call with all that its worker is told."""
        if call.kind != "process" or self.operators[call.operator].kind == "sink":
            call.infos = {unit: self.unit_of(unit, attempt) for unit, attempt in call.units}
        return call

    def restored(self, action: ev.StartWorker) -> list[protocol.Restored]:
        operator = self.operators[action.operator]
        return self.restore(operator.steps[0].name, action.restore) if operator.kind == "stateful" else []


@dataclass(slots=True, eq=False)
class ProcessGroup:
    """The processes of one worker, by rank. Rank 0 starts first and says where the others find it."""

    start: ev.StartWorker
    processes: list[int] = field(default_factory=list)
    living: set[int] = field(default_factory=set)
    setups: list[float] = field(default_factory=list)  # seconds, of the ranks that are ready
    exhausted: bool = False  # of rank 0
    # by rank, of each call that not all have answered
    answers: dict[int, dict[int, protocol.Done]] = field(default_factory=dict)
    stopping: bool = False

    @property
    def size(self) -> int:
        return len(self.start.places)

    @property
    def is_ready(self) -> bool:
        return len(self.setups) == self.size


class Workers:
    """Translates both ways. `address_of`: how the ranks of a gang reach a node."""

    def __init__(self, job: Job, address_of: Callable[[int], str] = lambda node: "127.0.0.1") -> None:
        self.job, self.address_of = job, address_of
        self.groups: dict[int, ProcessGroup] = {}  # by worker
        self.rank_of: dict[int, tuple[ProcessGroup, int]] = {}  # of each process
        self.specs: dict[int, bytes] = {}
        self.requests: list[tuple[int, protocol.Request]] = []
        self._numbers = count(1)

    def take_requests(self) -> list[tuple[int, protocol.Request]]:
        """What is to be done now, and on which node; asked for after each `do` and `hear`."""
        requests, self.requests = self.requests, []
        return requests

    # -- what the scheduler wants ---------------------------------------------------------------------------

    def do(self, action: ev.RuntimeAction) -> None:
        if isinstance(action, ev.Release):
            self._release(action.ref)
            return
        if isinstance(action, ev.StartWorker):
            self.groups[action.worker] = started = ProcessGroup(action)
            self._start_rank(started, 0, 0)
            return
        if isinstance(action, ev.CoresUsed):  # told where cores are leased, and this machine's are not
            return
        group = self.groups.get(action.call.worker if isinstance(action, ev.Submit) else action.worker)
        if group is None:
            return
        match action:
            case ev.Submit():
                self._submit(group, action.call)
            case protocol.Resume():  # the other ranks do not wait: nobody takes what they have
                self._ask(group, 0, protocol.Send(group.processes[0], action))
            case protocol.Discard():
                for rank, process in enumerate(group.processes):
                    self._ask(group, rank, protocol.Send(process, action))
            case ev.StopWorker(kill=True):
                self._end(group)
            case ev.StopWorker():
                group.stopping = True
                for rank, process in enumerate(group.processes):
                    self._ask(group, rank, protocol.EndProcess(process))

    def _submit(self, group: ProcessGroup, call: protocol.Call) -> None:
        self.job.complete(call)
        lie = {s.ref.data: s.ref.node for s in call.slices if s.ref is not None and s.ref.node is not None}
        for rank, place in enumerate(group.start.places):
            far = {data: node for data, node in lie.items() if node != place.node}
            self._ask(group, rank, protocol.Send(group.processes[rank], call, far))

    def _ask(self, group: ProcessGroup, rank: int, request: protocol.Request) -> None:
        self.requests.append((group.start.places[rank].node, request))

    def _release(self, ref: protocol.Ref) -> None:
        if ref.node is not None:
            self.requests.append((ref.node, protocol.ReleaseBatch(ref.data)))

    def _start_rank(self, group: ProcessGroup, number: int, port: int) -> None:
        start, process = group.start, next(self._numbers)
        group.processes.append(process)
        group.living.add(process)
        self.rank_of[process] = group, number
        place = start.places[number]
        nodes = [p.node for p in start.places]
        rank = protocol.Rank(start.worker, place.gpus,
            visible=tuple(gpu for p in start.places if p.node == place.node for gpu in p.gpus),
            gang=group.size > 1 or self.job.operators[start.operator].resources.gang, number=number,
            size=group.size, local_rank=nodes[:number].count(place.node), local_size=nodes.count(place.node),
            address=self.address_of(nodes[0]), port=port)
        self._ask(group, number, protocol.Send(process, protocol.Setup(self._spec(start.operator), rank,
                                                                       self.job.restored(start))))

    def _spec(self, index: int) -> bytes:
        if index not in self.specs:
            self.specs[index] = cloudpickle.dumps((self.job.operators[index], self.job.sidecars), protocol=5)
        return self.specs[index]

    # -- what processes say ----------------------------------------------------------------------------------

    def hear(self, node: int, process: int, message: protocol.FromProcess) -> list[ev.Event]:
        """What the scheduler is told of a message from a process of a node."""
        if isinstance(message, (protocol.Emitted, protocol.Done)):
            located(message.outputs, node)
        if process not in self.rank_of:  # its worker was killed: nobody waits for this any more
            self._drop(message)
            return []
        group, rank = self.rank_of[process]
        match message:
            case protocol.Done():
                return self._answered(group, rank, message)
            case protocol.Emitted() | protocol.Progress() | protocol.Failed():
                return [message]
            case protocol.Ready():
                group.setups.append(message.setup_s)
                group.exhausted |= message.exhausted and rank == 0
                return [ev.WorkerReady(group.start.worker, max(group.setups),
                                       group.exhausted)] if group.is_ready else []
            case protocol.MeetsAt():
                for other in range(1, group.size):
                    self._start_rank(group, other, message.port)
                    if group.stopping:
                        self._ask(group, other, protocol.EndProcess(group.processes[other]))
            case protocol.DataLost():
                # The other ranks may have begun it: the gang is out of step.
                lost = protocol.Ended(f"lacked data: {message.reason}")
                return [message, *([self._lost(group, rank, lost)] if group.size > 1 else [])]
            case protocol.Ended():
                group.living.discard(process)
                return [] if group.stopping and group.living else [self._lost(group, rank, message)]
        return []

    def _answered(self, group: ProcessGroup, rank: int, answer: protocol.Done) -> list[ev.Event]:
        answers = group.answers.setdefault(answer.call, {})
        answers[rank] = answer
        return [group.answers.pop(answer.call)[0]] if len(answers) == group.size else []

    def _lost(self, group: ProcessGroup, rank: int, ended: protocol.Ended) -> ev.WorkerLost:
        """A worker is gone, or must go: end what is left of it."""
        names = [s.name for s in self.job.operators[group.start.operator].steps]
        step, first = min(ended.step, len(names) - 1), ended.first
        if first is not None and not first.stage:  # it was raised where no step was begun
            first = replace(first, stage=names[step])
        self._end(group)
        return ev.WorkerLost(group.start.worker, f"rank {rank}: {ended.reason}" if group.size > 1
                             else ended.reason,
                             setup=not group.is_ready, fatal=ended.fatal, step=step, first=first)

    def _end(self, group: ProcessGroup) -> None:
        """End what is left of a worker, of which nothing more is told."""
        del self.groups[group.start.worker]
        for rank, process in enumerate(group.processes):
            if process in group.living:
                self._ask(group, rank, protocol.EndProcess(process, kill=True))
            del self.rank_of[process]
        for answer in (answer for answers in group.answers.values() for answer in answers.values()):
            self._drop(answer)

    def _drop(self, message: protocol.FromProcess) -> None:
        if isinstance(message, (protocol.Emitted, protocol.Done)):
            for output in message.outputs:
                self._release(output.ref)

    def lose_node(self, node: int) -> None:
        """A node is gone with its processes: what is left of their workers elsewhere ends too."""
        for group in [g for g in self.groups.values() if any(place.node == node for place in g.start.places)]:
            self._end(group)  # what is asked of the node itself reaches nobody


def located(outputs: Sequence[protocol.Output], node: int) -> None:
    """Fill in where the batches of an answer lie; those inside the message lie on no node."""
    for output in outputs:
        output.ref.node = None if isinstance(output.ref.data, bytes) else node
