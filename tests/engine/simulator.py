"""The cluster in virtual time, with workers that die, hang and forget, and a driver that is killed and started again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify
from itertools import count

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.api.stage import WrittenFile
from curator.engine.events import (
    Action,
    Commit,
    Event,
    Evidence,
    NodeDown,
    NodeUp,
    Release,
    Report,
    StartWorker,
    Stop,
    StopWorker,
    Submit,
    WorkerLost,
    WorkerReady,
)
from curator.engine.parts import OperatorState
from curator.engine.placement import holds_exclusive
from curator.engine.protocol import Call, DataLost, Discard, Done, Emitted, Failed, Flushed, Output, Progress, Ref, Resume
from curator.engine.scheduler import Scheduler
from curator.engine.snapshot import story
from curator.trial.cluster import END_S, Cluster, Worker
from tests.engine.invariants import check
from tests.engine.scenario import Faults, Scenario, counts_of

LOSSES = 40  # nodes that go in a life of the driver: nobody is to blame for them, so with ever more of them it would not end
BUSY_S = 0.05  # the driver takes what happens within so many seconds at once, now and then
CHAOS = 4  # lives of the driver in which things go wrong; in the next one only poison is left, and it must finish


@dataclass(eq=False)
class SimulatedWorker(Worker):
    slowness: float = 1.0
    kept: dict[tuple[int, int], dict[int, list[str]]] = field(default_factory=dict)  # sink: rows by (unit, attempt) and step
    memory: dict[str, str] = field(default_factory=dict)  # stateful: what it answered for a row: a port, or the row it equals
    kept_row: dict[int, str] = field(default_factory=dict)  # dedup: the row that is kept, by content
    passed: int = 0  # limit: rows let through
    shown: set[str] = field(default_factory=set)  # stateful: rows seen, but for those that are said to come again
    clock: float = 0.0  # when the first call began, went on or last said that it moves


class Simulator(Cluster):
    """Runs a scenario until every unit is committed or unread, through as many lives of the driver as that takes.

    `validate`: after how many events the scheduler's invariants are checked (0: never). `max_failed`: in the first life.
    """

    def __init__(self, scenario: Scenario, validate: int = 1, max_failed: float = float("inf")) -> None:
        self.scenario, self.validate, self.max_failed = scenario, validate, max_failed
        self.rng = random.Random(scenario.seed + 1)
        self.committed: dict[int, Commit] = {}
        self.memories: dict[int, dict[str, str]] = {}  # what committed units taught the stateful operator, by unit
        self.stops: list[str] = []  # why lives of the driver ended early
        self.log: list[str] = []
        self.died_alone: set[tuple[int, str]] = set()  # (operator, row): a call over this row alone did not come back
        self.deaths: Counter[tuple[int, str]] = Counter()  # (operator, row): calls with it that did not come back
        self.reads_failed: Counter[int] = Counter()  # by unit
        self.starts: Counter[int] = Counter()  # workers by operator
        self.work_s = 0.0  # cpu seconds that calls took
        self.events = self.lives = 0
        self.evidence_rows = 0  # failed rows that ends of the run have kept as evidence
        self.at_start: list[tuple[float, NodeUp | NodeDown]] = []  # changes of nodes, planned by a test
        self.most: Counter[str] = Counter()  # of everything that bounds the bytes alive: the most there was at once

    def run(self) -> Scheduler:
        """Gives the scheduler of the last life."""
        for life in range(CHAOS + 1):
            self.faults = self.scenario.faults if life < CHAOS else Faults(poison=self.scenario.faults.poison)
            self.lives += 1
            scheduler = self._live(self.max_failed if not life else float("inf"))
            if scheduler is not None and scheduler.stopped is None:
                self._check_refs()
                return scheduler
        raise AssertionError(f"seed {self.scenario.seed} does not end: {self.stops[-3:]}")

    # -- one life of the driver -----------------------------------------------------------------------------

    def _live(self, max_failed: float) -> Scheduler | None:
        """None when the driver was killed."""
        scenario = self.scenario
        self.todo = [u for u in range(len(scenario.units)) if u not in self.committed]
        super().__init__(Scheduler(scenario.operators, [(scenario.sources[u], scenario.needed[u]) for u in self.todo], scenario.nodes,
                                   max_failed=max_failed, short_circuits=self._short_circuits()))
        self.live: set[Ref] = set()
        self.alive = dict(scenario.nodes)
        self.losses = 0
        self.numbers = count(len(scenario.nodes))
        self.ticking = self.ending = False
        self.evidence: dict[int, Evidence] = {}  # of this life
        for when, change in self.at_start:
            self.send(when, 0, change)
        going = self._follow(self.scheduler.start(0.0))
        while going and not self.scheduler.finished:
            assert not self.stuck, f"seed {scenario.seed} is stuck\n{story(self.scheduler.state)}"
            self.ticking = True
            going = self._follow(self.step())
            if going:
                self._check()
        if going and self.scheduler.stopped is not None:
            self.stops.append(self.scheduler.stopped.message)
            self._check_evidence()
        return self.scheduler if going else None

    def _short_circuits(self) -> frozenset[int]:
        return frozenset(o.index for o in self.scenario.operators if o.steps[0].stage.name == "limit")

    def heard(self, until: float, most: float = float("inf")) -> list[Event]:
        """All that happens at once, and now and then within a short time; and the user may stop the run."""
        self.ticking = False
        events = super().heard(until + (BUSY_S if self.rng.random() < 0.2 and not self.scenario.steady else 1e-9))
        if self.rng.random() < self.faults.stop:
            events.append(Stop("interrupted", "the user"))
        return events

    def _check_evidence(self) -> None:
        """When nothing goes wrong while a run ends, every row that failed in an open unit is told of."""
        ending, state = self.scheduler.ending, self.scheduler.state
        if ending is None or self.faults != Faults(poison=self.faults.poison):
            return
        steps = {step.name for step in state.operators[-1].plan.steps if step.evidence}
        for unit in state.units.values():
            failed = sum(c.failed for c in unit.counts.values())
            told = sum(len(files) for files in self.evidence[unit.index].files.values()) if unit.index in self.evidence else 0
            wanted = state.units[unit.index].needed
            assert failed == told or wanted is not None, f"seed {self.scenario.seed}: {failed} failed, {told} told of"
        assert all(files.keys() <= steps for files in (e.files for e in self.evidence.values()))
        self.evidence_rows += sum(len(f) for e in self.evidence.values() for f in e.files.values())

    def _check(self) -> None:
        self.events += 1
        assert self.events < 1_000_000, f"seed {self.scenario.seed} does not end\n{story(self.scheduler.state)}"
        state = self.scheduler.state
        self._measure()
        if self.validate and not self.events % self.validate:
            check(state)
            self._check_refs()
            self._check_work()
        if self.faults.idle and self.workers and self.rng.random() < self.faults.idle:
            worker = self.rng.choice(sorted(self.workers))
            self.send(0.0, worker, WorkerLost(worker, "simulated"))
        if self.losses < LOSSES and self.rng.random() < self.faults.node and self.alive:
            self.losses += 1
            self._lose_node(self.rng.choice(sorted(self.alive)))

    def _lose_node(self, number: int) -> None:
        """A node goes, and with it what runs there; the driver hears of it later, and maybe another one joins."""
        node = self._end_node(number)
        self.send(self.rng.random(), 0, NodeDown(number, "simulated"))
        if self.rng.random() < 0.8 or not self.alive:
            self.send(3 * self.rng.random(), 0, NodeUp(next(self.numbers), node))

    def _end_node(self, number: int) -> Node:
        for worker in [w for w in self.workers.values() if number in w.nodes]:
            self.end(worker)
            self.heap = [e for e in self.heap if e[2] != worker.id or not isinstance(e[3], WorkerLost)]
        heapify(self.heap)
        return self.alive.pop(number)

    def _measure(self) -> None:
        state = self.scheduler.state
        exclusive = [w for w in state.workers.values() if holds_exclusive(state.operators[w.operator])]
        now = {"live": state.live_bytes_max, "calls": len(state.calls), "workers": len(state.workers), "exclusive": len(exclusive),
               "node": max((n.live_bytes - n.node.budget_bytes for n in state.nodes.values()), default=0),
               "groups": sum(len(o.groups) for o in state.operators), "queues": sum(len(o.queues) for o in state.operators),
               "kept": sum(o.ref.nbytes for c in state.calls.values() for o in c.kept)}
        self.most |= Counter(now)

    def _check_work(self) -> None:
        """Rows do not wait beside an idle worker, a free core and empty queues."""
        state = self.scheduler.state
        for operator in state.operators if not self.scheduler.finished else ():
            for worker in operator.workers.values() if operator.plan.batch_size is None else ():
                free = state.nodes[worker.node].has_core(worker.cpus)
                idle = free and worker.idle and worker.queue in operator.waiting
                assert not idle or any(state.operators[i].load for i in operator.consumers), story(state)

    def _check_refs(self) -> None:
        """Every batch that has reached the scheduler and was not released is in a queue, a group or a call."""
        used = {s.ref for o in self.scheduler.state.operators for s in pieces_of(o)} - {None}
        used |= {output.ref for call in self.scheduler.state.calls.values() for output in getattr(call, "kept", ())}
        assert self.live == used, f"seed {self.scenario.seed}: {len(self.live - used)} batches leaked, {len(used - self.live)} gone"

    # -- events ---------------------------------------------------------------------------------------------

    def happen(self, sender: int, event: Event) -> list[Event]:
        """A death may be told twice."""
        lost = isinstance(event, WorkerLost)
        self.log.append(f"{self.now:.6f} {'lost' if lost else type(event).__name__} {sender}")
        worker = self.workers.get(sender)
        if isinstance(event, NodeUp):
            self.alive[event.number] = event.node
        elif isinstance(event, NodeDown) and event.number in self.alive:
            self._end_node(event.number)
        elif worker is not None and lost:
            self._note_loss(worker)
        elif worker is not None and isinstance(event, Progress) and worker.calls[0].id == event.call:
            worker.clock = self.now
        elif worker is not None and isinstance(event, (Done, Failed, DataLost)):
            assert worker.calls[0].id == event.call
        self.live |= {output.ref for output in getattr(event, "outputs", ())}
        heard = super().happen(sender, event)
        if lost and self.rng.random() < self.faults.late:
            self.send(self.rng.random(), sender, WorkerLost(sender, "simulated"))
        return heard

    def end(self, worker: Worker) -> None:
        """What it would have said is not said, or comes too late."""
        super().end(worker)
        if self.rng.random() >= self.faults.late:
            self.heap = [e for e in self.heap if e[2] != worker.id or isinstance(e[3], WorkerLost)]
            heapify(self.heap)

    def _note_loss(self, worker: Worker) -> None:
        """The first call of a worker does not come back, and is to blame."""
        if not worker.calls:
            return
        call = worker.calls[0]
        if call.kind == "read":
            self.reads_failed[self.todo[call.units[0][0]]] += 1
        rows = [(worker.operator.index, row) for _, row in rows_of(call)]
        self.deaths.update(rows)
        if len(rows) == 1:
            self.died_alone.add(rows[0])

    # -- actions ----------------------------------------------------------------------------------------------

    def _follow(self, actions: Sequence[Action]) -> bool:
        """False when the driver is killed on the way."""
        stopped = self.ending
        for action in actions:
            own = getattr(action, "operator", action.call.operator if isinstance(action, Submit) else None)
            assert not stopped or isinstance(action, (StopWorker, Release, Report, Evidence, Commit)) or \
                own == self.scenario.operators[-1].index, f"{action} after the end"
            whose = getattr(action, "operator", getattr(action, "worker", ""))
            self.log.append(f"{self.now:.6f} {type(action).__name__} {whose}")
            match action:
                case Resume(worker, call):
                    assert worker not in self.workers or self.workers[worker].calls[0].id == call
                case Discard():
                    self._discard(action)
                case Release():
                    assert action.ref in self.live, "released twice, or never sent"
                    self.live.remove(action.ref)
                case Commit():
                    self._commit(action)
                case Evidence():
                    assert action.unit not in self.evidence
                    self.evidence[action.unit] = action
                case Report():
                    stopped = self.ending = stopped or action.kind == "stopped"
            self.obey([action])
            if self.rng.random() < self.faults.driver and not stopped:
                return False
        return True

    def stop(self, worker: Worker, kill: bool) -> None:
        if kill and self.ticking and self.scheduler.stopped is None and worker.operator.timeout_s is not None and worker.calls:
            late_s = self.now - worker.clock - worker.operator.timeout_s
            assert -1e-6 <= late_s <= 2 * BUSY_S + 1e-6, f"a time limit ended a call {late_s:g} s late"
            self._note_loss(worker)
        assert kill or not worker.calls or self.scheduler.finished, "a worker was asked to end amid its work"
        self.end(worker)
        if not kill and not (self.faults.close and self.rng.random() < self.faults.close):
            self.send(END_S, worker.id, WorkerLost(worker.id, "simulated"))

    def _discard(self, action: Discard) -> None:
        worker = self.workers.get(action.worker)
        if worker is None:
            return
        if worker.calls:
            worker.calls.append(action)
        else:
            self._drop(worker, action)

    def _drop(self, worker: SimulatedWorker, discard: Discard) -> None:
        """What a worker keeps of an attempt of a unit goes; a stateful one is told if its rows come again."""
        worker.kept.pop((discard.unit, discard.attempt), None)
        unit = self.todo[discard.unit]
        worker.shown = {row for row in worker.shown if self.scenario.unit_of(row) != unit}
        if not discard.replay:
            gone = {row for row in worker.memory if self.scenario.unit_of(row) == unit}
            worker.passed -= sum(worker.memory[row] == "out" for row in gone)
            worker.memory = {row: answer for row, answer in worker.memory.items() if row not in gone}
            worker.kept_row = {content: row for content, row in worker.kept_row.items() if row not in gone}

    def _commit(self, action: Commit) -> None:
        unit = self.todo[action.unit]
        assert unit not in self.committed, f"unit {unit} is committed twice"
        self.committed[unit] = action
        for memory in action.snapshots.values():
            self.memories[unit] = memory

    # -- workers ----------------------------------------------------------------------------------------------

    def start(self, action: StartWorker) -> None:
        faults, operator = self.faults, self.scenario.operators[action.operator]
        worker = SimulatedWorker(action.worker, operator, tuple(p.node for p in action.places),
                                 slowness=10.0 if self.rng.random() < faults.slow else 1.0)
        if any(node not in self.alive for node in worker.nodes):
            return  # the driver does not know yet that the node is gone
        self.workers[worker.id] = worker
        self.starts[operator.index] += 1
        here = {u for u, unit in enumerate(self.todo) if unit in self.committed}
        assert set(action.restore) == (here if operator.kind == "stateful" else set())
        for memory in self.memories.values() if operator.kind == "stateful" else ():
            for row, answer in memory.items():
                self._learn(worker, row, answer)
                worker.shown.add(row)
        setup_s = self.scenario.setup_s.get(operator.index, 1.0) if self.scenario.steady else self.rng.expovariate(2.0)
        died = self.rng.random() < faults.setup
        self.send(setup_s, worker.id, WorkerLost(worker.id, "simulated", setup=True) if died else
                  WorkerReady(worker.id, setup_s, self._exhausted(worker)))

    def _exhausted(self, worker: SimulatedWorker) -> bool:
        return worker.operator.steps[0].stage.name == "limit" and worker.passed >= self.scenario.limit

    def _learn(self, worker: SimulatedWorker, row: str, answer: str) -> None:
        worker.memory[row] = answer
        worker.passed += answer == "out"
        if answer not in ("out", "dropped"):
            worker.kept_row[self.scenario.content(row)] = answer

    def begin(self, worker: Worker) -> None:
        while worker.calls and isinstance(worker.calls[0], Discard):
            self._drop(worker, worker.calls.popleft())
        super().begin(worker)

    def go_on(self, worker: Worker) -> None:
        worker.clock = self.now
        super().go_on(worker)

    def answer(self, worker: SimulatedWorker, call: Call) -> Iterator[tuple[float, Event]]:
        """Decide how a call will go, and do it."""
        faults, rng, operator = self.faults, self.rng, worker.operator
        if any(s.ref is not None and s.ref.node is not None and s.ref.node not in self.alive for s in call.slices):
            yield 0.1, DataLost(call.id, "simulated")
            return
        rows = len(self.scenario.units[self.todo[call.units[0][0]]]) if call.kind == "read" else call.rows
        took = self.scenario.seconds(operator, rows) * worker.slowness
        if not self.scenario.steady:
            took *= rng.paretovariate(1.5)
        elif self.scenario.noise:
            took *= rng.lognormvariate(0.0, self.scenario.noise)
        self.took = took
        self.work_s += took * operator.resources.cpus
        parts: list[Event | None] = self._parts(worker, call)
        if rng.random() < faults.death:
            step = rng.randrange(len(operator.steps)) if operator.kind == "map" else 0
            parts[rng.randrange(len(parts)):] = [WorkerLost(worker.id, "simulated", step=step)]
        elif operator.timeout_s is not None and call.kind == "process" and rng.random() < faults.hang:
            parts[rng.randrange(len(parts)):] = [None]  # nothing comes any more; the time limit ends it
        elif operator.kind != "map" and rng.random() < faults.raises and not call.best_effort:
            failed = Failed(call.id, "OSError: simulated", fatal=rng.random() < 0.02)
            parts[rng.randrange(len(parts)):] = [failed]
            self._note_loss(worker)
        self.most |= Counter(answer=sum(map(bytes_of, parts)))
        if operator.timeout_s is not None:
            self.send(took / len(parts) / 4, worker.id, Progress(call.id))
        for part in parts:
            self.most |= Counter(part=bytes_of(part))
            if part is not None:
                yield took / len(parts), part

    # -- answers ------------------------------------------------------------------------------------------------

    def _parts(self, worker: SimulatedWorker, call: Call) -> list:
        if call.kind == "flush":
            return [self._flush(worker, call)]
        if worker.operator.kind == "sink":
            return [self._store(worker, call)]
        rows = rows_of(call)
        if call.kind == "read":
            unit = call.units[0][0]
            rows = [(unit, row) for row in self.scenario.units[self.todo[unit]]]
        return self._process(worker, call, rows)

    def _store(self, worker: SimulatedWorker, call: Call) -> Done:
        counts: dict[int, dict[int, Counts]] = {}
        for piece in call.slices:
            assert worker.operator.kind != "sink" or piece.rows or piece.reason
            names = [f"note{self.todo[piece.unit]}"] if piece.ref is None else piece.ref.data[piece.start:piece.stop]
            worker.kept.setdefault((piece.unit, piece.attempt), {}).setdefault(piece.target, []).extend(names)
            got = counts.setdefault(piece.unit, {}).setdefault(piece.target, Counts())
            got.add(Counts(rows_in=len(names), out={"written": len(names)}))
        return Done(call.id, counts=counts, seconds=self.scenario.seconds(worker.operator, call.rows))

    def _flush(self, worker: SimulatedWorker, call: Call) -> Done:
        if worker.operator.kind == "sink":
            kept = worker.kept.pop(call.units[0], {})
            kept = {s: rows for s, rows in kept.items() if not call.best_effort or worker.operator.steps[s].evidence}
            return Done(call.id, flushed=Flushed({s: [WrittenFile(row, 1, 1) for row in rows] for s, rows in kept.items()}))
        unit = self.todo[call.units[0][0]]
        taught = {row: answer for row, answer in worker.memory.items() if self.scenario.unit_of(row) == unit}
        depends = {self.scenario.unit_of(answer) for answer in taught.values() if "." in answer} - {unit}
        return Done(call.id, flushed=Flushed({}, taught, frozenset(depends)))

    def _process(self, worker: SimulatedWorker, call: Call, rows: list[tuple[int, str]]) -> list:
        """The parts of an answer; a poison row kills after those that were sent before its turn."""
        operator, parts = worker.operator, []
        counts: dict[int, dict[int, Counts]] = {}
        pending: dict[tuple[int, str, int], list[str]] = {}
        nbytes = 0
        for unit, row in rows:
            step = self.scenario.poison_step(operator, row)
            if step is not None:
                return [*parts, WorkerLost(worker.id, "simulated", step=step)]
            todo = [(0, row)]
            while todo:
                step, current = todo.pop()
                fate = self._fate(worker, step, current)
                counts.setdefault(unit, {}).setdefault(step, Counts()).add(Counts(**counts_of(fate)))
                for port, child in fate:
                    if step < len(operator.chain) and port == operator.chain[step]:
                        todo.append((step + 1, child))
                    elif (step, port) in operator.routes:
                        pending.setdefault((step, port, unit), []).append(child)
                        nbytes += self.scenario.size(child)
            if nbytes >= self.scenario.part_bytes:
                parts.append(Emitted(call.id, self._outputs(pending, worker), counts))
                pending, nbytes, counts = {}, 0, {}
        seconds = self.took if self.scenario.steady else self.scenario.seconds(operator, call.rows)
        return [*parts, Done(call.id, self._outputs(pending, worker), counts, seconds, self._exhausted(worker))]

    def _fate(self, worker: SimulatedWorker, step: int, row: str) -> list[tuple[str, str]]:
        if worker.operator.kind != "stateful":
            return self.scenario.fate(worker.operator, step, row)
        assert row not in worker.shown, f"{row} comes again, and nobody said so"
        worker.shown.add(row)
        if row not in worker.memory:
            limit = worker.operator.steps[0].stage.name == "limit"
            kept = worker.kept_row.get(self.scenario.content(row), row)
            self._learn(worker, row, kept if not limit else "dropped" if self._exhausted(worker) else "out")
        return [(port_of(row, worker.memory[row]), row)]

    def _outputs(self, pending: dict[tuple[int, str, int], list[str]], worker: SimulatedWorker) -> tuple[Output, ...]:
        outputs = []
        for (step, port, unit), rows in pending.items():
            size = sum(self.scenario.size(row) for row in rows)
            ref = Ref(rows, len(rows), size, worker.nodes[0] if size > 1000 else None)
            outputs.append(Output(step, port, unit, ref))
        return tuple(outputs)


def bytes_of(part: Event | None) -> int:
    return sum(output.ref.nbytes for output in getattr(part, "outputs", ()))


def rows_of(call: Call) -> list[tuple[int, str]]:
    return [(s.unit, row) for s in call.slices if s.ref is not None for row in s.ref.data[s.start:s.stop]]


def port_of(row: str, answer: str) -> str:
    """The port that a stateful step's memory of a row means: a port's name, or the row that it equals."""
    return answer if answer in ("out", "dropped") else "out" if answer == row else "duplicate"


def pieces_of(operator: OperatorState) -> list:
    """Every slice in the queues, groups and calls of an operator."""
    return [s for queue in operator.queues.values() for s in queue.slices] + [s for g in operator.groups for s in g.slices] + \
        [s for w in operator.workers.values() for c in w.calls for s in c.slices]
