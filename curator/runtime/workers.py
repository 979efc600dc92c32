"""Workers as sets of processes: what the scheduler wants, as requests to nodes, and what processes say, as events.

What all runtimes with processes share. A request is (node, method of `Processes`, arguments...). An ordinary worker is one
process. A gang is one for each rank: all of them get every call, in the same order; the answer of rank 0 counts, and is told
when all have given theirs, since until then they read what was given. What ends one rank ends them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import cloudpickle

from curator.api.errors import FirstError
from curator.api.resources import Place
from curator.engine import events as ev
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator
from curator.worker.rank import Rank
from curator.worker.work import Answer, Part, Piece, UnitInfo, Work

Request = tuple[Any, ...]


class Job:
    """What every runtime must know of a run: the operators, the units, and where sidecars lie.

    `restore(unit)`: the sidecars of a committed unit by step name. `name_of(unit, attempt)`: what its files are called.
    """

    def __init__(self, operators: Sequence[Operator], unit_of: Callable[[int, int], UnitInfo], sidecars: Folder,
                 restore: Callable[[str, Sequence[int]], list[tuple[int, str, bool]]]) -> None:
        self.operators, self.unit_of, self.sidecars, self.restore = operators, unit_of, sidecars, restore

    def work(self, call: ev.Call) -> Work:
        """A call as its worker is told of it."""
        pieces = tuple(Piece(s.ref.data if s.ref is not None else None, s.unit, s.attempt, s.start, s.stop, s.target, s.note)
                       for s in call.slices)
        needs_names = call.kind != "process" or self.operators[call.operator].kind == "sink"
        infos = {unit: self.unit_of(unit, attempt) for unit, attempt in call.units} if needs_names else {}
        return Work(call.id, call.kind, pieces, call.units, infos, call.best_effort)

    def restored(self, action: ev.StartWorker) -> list[tuple[int, str, bool]]:
        operator = self.operators[action.operator]
        return self.restore(operator.steps[0].name, action.restore) if operator.kind == "stateful" else []


def outputs_of(part: Part, node: int) -> tuple[ev.Output, ...]:
    """A part of an answer as the scheduler sees it; batches inside the message lie on no node."""
    return tuple(ev.Output(step, port, unit, rows, nbytes, ev.Ref(data, rows, nbytes, None if isinstance(data, bytes) else node))
                 for step, port, unit, rows, nbytes, data in part.outputs)


def emitted_of(call: int, part: Part, node: int) -> ev.Emitted:
    return ev.Emitted(call, outputs_of(part, node), part.counts, part.errors)


def done_of(call: int, answer: Answer, node: int) -> ev.Done:
    flushed = None if answer.files is None else ev.Flushed(answer.files, answer.memory, answer.depends, answer.rests_on)
    return ev.Done(call, outputs_of(answer, node), answer.counts, answer.seconds, answer.exhausted, flushed,
                   answer.refitted, answer.errors)


@dataclass(slots=True)
class Crew:
    """The processes of one worker, in the order of their ranks."""

    start: ev.StartWorker
    processes: list[int]
    living: set[int]
    setups: list[float] = field(default_factory=list)  # seconds, of the ranks that are ready
    exhausted: bool = False  # of rank 0
    answers: dict[int, list[ev.Done | None]] = field(default_factory=dict)  # to calls that not every rank has answered
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
        self.requests: list[Request] = []
        self._numbers = count(1)

    def take_requests(self) -> list[Request]:
        """What is to be done now; asked for after each `do` and `hear`."""
        requests, self.requests = self.requests, []
        return requests

    # -- what the scheduler wants ---------------------------------------------------------------------------

    def do(self, action: ev.Action) -> None:
        match action:
            case ev.Submit():
                self._submit(action.call)
            case ev.Release():
                self._release(action.ref)
            case ev.Resume():
                crew = self.crews.get(action.worker)
                if crew:  # the other ranks do not wait: nobody takes what they have
                    self._ask(crew, 0, "send", "resume", action.call)
            case ev.StartWorker():
                self.crews[action.worker] = crew = Crew(action, [], set())
                self._start_rank(action.worker, crew, 0, 0)
            case ev.StopWorker():
                self._stop(action)
            case ev.Discard():
                self._tell_all(action.worker, "send", "discard", action.unit, action.attempt, action.replay)

    def _submit(self, call: ev.Call) -> None:
        crew = self.crews.get(call.worker)
        if crew is None:
            return
        work = self.job.work(call)
        lie = {s.ref.data: s.ref.node for s in call.slices if s.ref is not None and s.ref.node is not None}
        for rank, place in enumerate(crew.start.places):
            far = {data: node for data, node in lie.items() if node != place.node}
            if far:
                self._ask(crew, rank, "fetch_and_send", far, work)
            else:
                self._ask(crew, rank, "send", "call", work)

    def _ask(self, crew: Crew, rank: int, method: str, *args: Any) -> None:
        self.requests.append((crew.start.places[rank].node, method, crew.processes[rank], *args))

    def _tell_all(self, worker: int, method: str, *args: Any) -> None:
        crew = self.crews.get(worker)
        for rank in range(len(crew.processes) if crew else 0):
            self._ask(crew, rank, method, *args)

    def _release(self, ref: ev.Ref) -> None:
        if ref.node is not None:
            self.requests.append((ref.node, "release", ref.data))

    def _start_rank(self, worker: int, crew: Crew, rank: int, port: int) -> None:
        start, process = crew.start, next(self._numbers)
        crew.processes.append(process)
        crew.living.add(process)
        self.rank_of[process] = worker, rank
        place = start.places[rank]
        nodes = [p.node for p in start.places]
        visible = tuple(gpu for p in start.places if p.node == place.node for gpu in p.gpus)
        gang = crew.size > 1 or self.job.operators[start.operator].resources.gang
        told = Rank(worker, place.gpus, visible, gang, rank, crew.size, nodes[:rank].count(place.node), nodes.count(place.node),
                    self.address_of(nodes[0]), port)
        self._ask(crew, rank, "start", self._spec(start.operator), told, self.job.restored(start))

    def _spec(self, index: int) -> bytes:
        if index not in self.specs:
            self.specs[index] = cloudpickle.dumps((self.job.operators[index], self.job.sidecars), protocol=5)
        return self.specs[index]

    def _stop(self, action: ev.StopWorker) -> None:
        self._tell_all(action.worker, "stop", action.kill)
        if action.worker in self.crews:
            self.crews[action.worker].stopping = True
            if action.kill:
                self._discard(action.worker)

    # -- what processes say -----------------------------------------------------------------------------------

    def hear(self, node: int, process: int, message: tuple) -> list[ev.Event]:
        """What the scheduler is told of a message from a process of a node."""
        if process not in self.rank_of:  # its worker was killed: nobody waits for this any more
            self._drop_answer(node, message)
            return []
        worker, rank = self.rank_of[process]
        crew = self.crews[worker]
        match message:
            case "done", call, answer:
                return self._answered(crew, call, done_of(call, answer, node) if rank == 0 else None)
            case "part", call, part:
                return [emitted_of(call, part, node)]
            case "progress", call:
                return [ev.Progress(call)]
            case "failed", call, error, trace, fatal, first:
                return [ev.Failed(call, error, trace, fatal, first)]
            case "ready", setup_s, exhausted:
                return self._ready(worker, crew, rank, setup_s, exhausted)
            case "meets_at", port:
                for other in range(1, crew.size):
                    self._start_rank(worker, crew, other, port)
                if crew.stopping:
                    self._tell_all(worker, "stop", False)
            case "data_lost", call, reason:
                lost = [ev.DataLost(call, reason)]
                # The other ranks may have begun it: the gang is out of step.
                return lost if crew.size == 1 else lost + self._lost(worker, crew, f"rank {rank} lacked data: {reason}")
            case "ended", reason, fatal, _, step, first:
                return self._ended(worker, crew, process, ev.WorkerLost(worker, reason, fatal=fatal, step=step, first=first))
        return []

    def _answered(self, crew: Crew, call: int, answer: ev.Done | None) -> list[ev.Event]:
        if crew.size == 1:
            return [answer]
        answers = crew.answers.setdefault(call, [])
        answers.append(answer)
        if len(answers) < crew.size:
            return []
        return [a for a in crew.answers.pop(call) if a is not None]

    def _ready(self, worker: int, crew: Crew, rank: int, setup_s: float, exhausted: bool) -> list[ev.Event]:
        crew.setups.append(setup_s)
        crew.exhausted |= exhausted and rank == 0
        return [ev.WorkerReady(worker, max(crew.setups), crew.exhausted)] if len(crew.setups) == crew.size else []

    def _ended(self, worker: int, crew: Crew, process: int, told: ev.WorkerLost) -> list[ev.Event]:
        crew.living.discard(process)
        if crew.stopping and crew.living:
            return []
        reason = f"rank {self.rank_of[process][1]}: {told.reason}" if crew.size > 1 else told.reason
        return self._lost(worker, crew, reason, told.fatal, told.step, told.first)

    def _lost(self, worker: int, crew: Crew, reason: str, fatal: bool = False, step: int = 0,
              first: FirstError | None = None) -> list[ev.Event]:
        """A worker is gone, or must go: end what is left of it."""
        names = [s.name for s in self.job.operators[crew.start.operator].steps]
        ready, step = len(crew.setups) == crew.size, min(step, len(names) - 1)
        for rank, process in enumerate(crew.processes):
            if process in crew.living:
                self._ask(crew, rank, "stop", True)
        self._discard(worker)
        if first is not None and not first.stage:  # it was raised where no step was begun
            first = replace(first, stage=names[step])
        return [ev.WorkerLost(worker, reason, setup=not ready, fatal=fatal, step=step, first=first)]

    def _discard(self, worker: int) -> None:
        crew = self.crews.pop(worker)
        for process in crew.processes:
            del self.rank_of[process]
        for answer in (a for answers in crew.answers.values() for a in answers if a is not None):
            for output in answer.outputs:
                self._release(output.ref)

    def _drop_answer(self, node: int, message: tuple) -> None:
        if message[0] in ("part", "done") and message[2] is not None:
            for output in outputs_of(message[2], node):
                self._release(output.ref)

    def lose_node(self, node: int) -> None:
        """A node is gone with its processes: what is left of their workers elsewhere ends too."""
        for worker, crew in list(self.crews.items()):
            places: tuple[Place, ...] = crew.start.places
            if any(place.node == node for place in places):
                for rank, process in enumerate(crew.processes):
                    if places[rank].node != node and process in crew.living:
                        self._ask(crew, rank, "stop", True)
                self._discard(worker)
