"""Workers as sets of processes: what the scheduler wants, as requests to nodes, and what processes say, as events.

What all runtimes with processes share. An ordinary worker is one process. A gang is one for each rank: all of them get every call,
in the same order; the answer of rank 0 counts, and is told when all have given theirs, since until then they read what was given.
What ends one rank ends them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import cloudpickle

from curator.api.errors import FirstError
from curator.api.resources import Place
from curator.engine.events import Action, Event, Release, StartWorker, StopWorker, Submit, WorkerLost, WorkerReady
from curator.engine.protocol import (
    Call,
    DataLost,
    Discard,
    Done,
    Emitted,
    Ended,
    EndProcess,
    Failed,
    FromProcess,
    MeetsAt,
    Output,
    Progress,
    Rank,
    Ready,
    Ref,
    ReleaseBatch,
    Request,
    Restored,
    Resume,
    Send,
    StartProcess,
    UnitInfo,
)
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator


class Job:
    """What every runtime must know of a run: the operators, the units, and where sidecars lie.

    `restore(unit)`: the sidecars of a committed unit by step name. `name_of(unit, attempt)`: what its files are called.
    """

    def __init__(self, operators: Sequence[Operator], unit_of: Callable[[int, int], UnitInfo], sidecars: Folder,
                 restore: Callable[[str, Sequence[int]], list[Restored]]) -> None:
        self.operators, self.unit_of, self.sidecars, self.restore = operators, unit_of, sidecars, restore

    def complete(self, call: Call) -> Call:
        """A call with all that its worker is told."""
        if call.kind != "process" or self.operators[call.operator].kind == "sink":
            call.infos = {unit: self.unit_of(unit, attempt) for unit, attempt in call.units}
        return call

    def restored(self, action: StartWorker) -> list[Restored]:
        operator = self.operators[action.operator]
        return self.restore(operator.steps[0].name, action.restore) if operator.kind == "stateful" else []


def located(outputs: Sequence[Output], node: int) -> None:
    """Fill in where the batches of an answer lie; those inside the message lie on no node."""
    for output in outputs:
        output.ref.node = None if isinstance(output.ref.data, bytes) else node


@dataclass(slots=True)
class Crew:
    """The processes of one worker, in the order of their ranks."""

    start: StartWorker
    processes: list[int]
    living: set[int]
    setups: list[float] = field(default_factory=list)  # seconds, of the ranks that are ready
    exhausted: bool = False  # of rank 0
    answers: dict[int, list[tuple[int, Done]]] = field(default_factory=dict)  # by call that not every rank has answered, and rank
    stopping: bool = False

    @property
    def size(self) -> int:
        return len(self.start.places)


class Workers:
    """Translates both ways. `address_of`: how the ranks of a gang reach a node."""

    def __init__(self, job: Job, address_of: Callable[[int], str] = lambda node: "127.0.0.1") -> None:
        self.job, self.address_of = job, address_of
        self.crews: dict[int, Crew] = {}
        self.rank_of: dict[int, tuple[int, int]] = {}  # worker and rank of each process
        self.specs: dict[int, bytes] = {}
        self.requests: list[tuple[int, Request]] = []
        self._numbers = count(1)

    def take_requests(self) -> list[tuple[int, Request]]:
        """What is to be done now, and on which node; asked for after each `do` and `hear`."""
        requests, self.requests = self.requests, []
        return requests

    # -- what the scheduler wants ---------------------------------------------------------------------------

    def do(self, action: Action) -> None:
        match action:
            case Submit():
                self._submit(action.call)
            case Release():
                self._release(action.ref)
            case Resume():
                crew = self.crews.get(action.worker)
                if crew:  # the other ranks do not wait: nobody takes what they have
                    self._ask(crew, 0, Send(crew.processes[0], action))
            case StartWorker():
                self.crews[action.worker] = crew = Crew(action, [], set())
                self._start_rank(action.worker, crew, 0, 0)
            case StopWorker():
                self._stop(action)
            case Discard():
                self._ask_all(action.worker, lambda process: Send(process, action))

    def _submit(self, call: Call) -> None:
        crew = self.crews.get(call.worker)
        if crew is None:
            return
        self.job.complete(call)
        lie = {s.ref.data: s.ref.node for s in call.slices if s.ref is not None and s.ref.node is not None}
        for rank, place in enumerate(crew.start.places):
            far = {data: node for data, node in lie.items() if node != place.node}
            self._ask(crew, rank, Send(crew.processes[rank], call, far))

    def _ask(self, crew: Crew, rank: int, request: Request) -> None:
        self.requests.append((crew.start.places[rank].node, request))

    def _ask_all(self, worker: int, request_of: Callable[[int], Request]) -> None:
        crew = self.crews.get(worker)
        for rank, process in enumerate(crew.processes if crew else ()):
            self._ask(crew, rank, request_of(process))

    def _release(self, ref: Ref) -> None:
        if ref.node is not None:
            self.requests.append((ref.node, ReleaseBatch(ref.data)))

    def _start_rank(self, worker: int, crew: Crew, rank: int, port: int) -> None:
        start, process = crew.start, next(self._numbers)
        crew.processes.append(process)
        crew.living.add(process)
        self.rank_of[process] = worker, rank
        place = start.places[rank]
        nodes = [p.node for p in start.places]
        visible = tuple(gpu for p in start.places if p.node == place.node for gpu in p.gpus)
        gang = crew.size > 1 or self.job.operators[start.operator].resources.gang
        which = Rank(worker, place.gpus, visible, gang, rank, crew.size, nodes[:rank].count(place.node), nodes.count(place.node),
                     self.address_of(nodes[0]), port)
        self._ask(crew, rank, StartProcess(process, self._spec(start.operator), which, self.job.restored(start)))

    def _spec(self, index: int) -> bytes:
        if index not in self.specs:
            self.specs[index] = cloudpickle.dumps((self.job.operators[index], self.job.sidecars), protocol=5)
        return self.specs[index]

    def _stop(self, action: StopWorker) -> None:
        self._ask_all(action.worker, lambda process: EndProcess(process, action.kill))
        if action.worker in self.crews:
            self.crews[action.worker].stopping = True
            if action.kill:
                self._discard(action.worker)

    # -- what processes say -----------------------------------------------------------------------------------

    def hear(self, node: int, process: int, message: FromProcess) -> list[Event]:
        """What the scheduler is told of a message from a process of a node."""
        if process not in self.rank_of:  # its worker was killed: nobody waits for this any more
            self._drop_answer(node, message)
            return []
        worker, rank = self.rank_of[process]
        crew = self.crews[worker]
        match message:
            case Done():
                located(message.outputs, node)
                return self._answered(crew, rank, message)
            case Emitted():
                located(message.outputs, node)
                return [message]
            case Progress() | Failed():
                return [message]
            case Ready():
                return self._ready(worker, crew, rank, message)
            case MeetsAt():
                for other in range(1, crew.size):
                    self._start_rank(worker, crew, other, message.port)
                if crew.stopping:
                    self._ask_all(worker, EndProcess)
            case DataLost():
                # The other ranks may have begun it: the gang is out of step.
                lost = self._lost(worker, crew, f"rank {rank} lacked data: {message.reason}") if crew.size > 1 else []
                return [message, *lost]
            case Ended():
                return self._ended(worker, crew, process, message)
        return []

    def _answered(self, crew: Crew, rank: int, answer: Done) -> list[Event]:
        if crew.size == 1:
            return [answer]
        answers = crew.answers.setdefault(answer.call, [])
        answers.append((rank, answer))
        if len(answers) < crew.size:
            return []
        return [of_rank for at, of_rank in crew.answers.pop(answer.call) if at == 0]

    def _ready(self, worker: int, crew: Crew, rank: int, ready: Ready) -> list[Event]:
        crew.setups.append(ready.setup_s)
        crew.exhausted |= ready.exhausted and rank == 0
        return [WorkerReady(worker, max(crew.setups), crew.exhausted)] if len(crew.setups) == crew.size else []

    def _ended(self, worker: int, crew: Crew, process: int, told: Ended) -> list[Event]:
        crew.living.discard(process)
        if crew.stopping and crew.living:
            return []
        reason = f"rank {self.rank_of[process][1]}: {told.reason}" if crew.size > 1 else told.reason
        return self._lost(worker, crew, reason, told.fatal, told.step, told.first)

    def _lost(self, worker: int, crew: Crew, reason: str, fatal: bool = False, step: int = 0,
              first: FirstError | None = None) -> list[Event]:
        """A worker is gone, or must go: end what is left of it."""
        names = [s.name for s in self.job.operators[crew.start.operator].steps]
        ready, step = len(crew.setups) == crew.size, min(step, len(names) - 1)
        for rank, process in enumerate(crew.processes):
            if process in crew.living:
                self._ask(crew, rank, EndProcess(process, kill=True))
        self._discard(worker)
        if first is not None and not first.stage:  # it was raised where no step was begun
            first = replace(first, stage=names[step])
        return [WorkerLost(worker, reason, setup=not ready, fatal=fatal, step=step, first=first)]

    def _discard(self, worker: int) -> None:
        crew = self.crews.pop(worker)
        for process in crew.processes:
            del self.rank_of[process]
        for _, answer in (a for answers in crew.answers.values() for a in answers):
            for output in answer.outputs:
                self._release(output.ref)

    def _drop_answer(self, node: int, message: FromProcess) -> None:
        if isinstance(message, (Emitted, Done)):
            located(message.outputs, node)
            for output in message.outputs:
                self._release(output.ref)

    def lose_node(self, node: int) -> None:
        """A node is gone with its processes: what is left of their workers elsewhere ends too."""
        for worker, crew in list(self.crews.items()):
            places: tuple[Place, ...] = crew.start.places
            if any(place.node == node for place in places):
                for rank, process in enumerate(crew.processes):
                    if places[rank].node != node and process in crew.living:
                        self._ask(crew, rank, EndProcess(process, kill=True))
                self._discard(worker)
