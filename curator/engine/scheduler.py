"""The scheduler: events in, actions out. It does no I/O, reads no clock and draws no random number.

Its rules:

1. A unit is committed when nothing of it is left anywhere and every sink has flushed it. Until then all that it gave is
   provisional: if rows are lost (a sink's worker dies), the unit starts again as its next attempt, and whatever of
   the old attempt is still under way is ignored when it arrives.
2. Rows are given away with a call and come back only with its end, so a worker's death loses none: the call is tried
   again. The first call in a worker's queue is blamed for the death, those behind it are not.
3. Rows over which two workers died are halved and tried alone until the row that kills is found; it goes to `failed`.
   An answer of which a part was sent on cannot be repeated alone: its units start again, and from then on the answers to
   their rows are kept here until they are whole.
4. What a stage raises is dealt with in the worker (retried, halved, the bad rows answered as `failed`). A `Failed`
   call is one where that was impossible: a source, a sink, or rows whose answer was already under way.
5. A run always ends: with every unit committed, or `stopped` (see `ending.py`), and then the same command continues it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop
from typing import Any

from curator.api.counts import Counts
from curator.api.errors import FirstError
from curator.api.resources import Node
from curator.engine.calls import close_call, drop_call, end_call, refitted, start_clock, submit_flush, unreserve
from curator.engine.dispatch import dispatch, halves
from curator.engine.ending import Ending
from curator.engine.events import (
    Action,
    Commit,
    Event,
    NodeDown,
    NodeUp,
    Report,
    Stop,
    StopKind,
    Stopped,
    StopWorker,
    WorkerLost,
    WorkerReady,
)
from curator.engine.parts import COMMITTED, UNREAD, CallState, Group, OperatorState, UnitState, WorkerState
from curator.engine.placement import PRESS, start_worker
from curator.engine.protocol import CountsByUnit, DataLost, Done, Emitted, Failed, Output, Progress, Reason, Resume, Slice
from curator.engine.seats import Profile, recall_profile, seat, seat_due, wants_seats
from curator.engine.state import State
from curator.pipeline.plan import Operator, Target

TRIES = 3  # of a unit that is to blame for its failures, and of an operator's setup
ATTEMPTS = 20  # of a unit while no node goes, whoever is to blame: a run that goes round in circles must end
SHARE_OF = 1000  # a share of the records is judged from so many on; when a run has ended it is judged again, by the run
TIMEOUT = "a call took longer than its limit"


class Scheduler:
    """Decides everything that happens in a run.

    `units`: for each unit the operator that reads it and the steps to run (None for all). `max_failed`: records that may
    fail, or a share of the records read below 1. `before`: records read and failed that earlier attempts of the run committed.
    `short_circuits`: stateful operators through which every row goes, so that reading can end when they are exhausted.
    """

    def __init__(self, operators: Sequence[Operator], units: Sequence[tuple[int, frozenset[Target] | None]],
                 nodes: Mapping[int, Node], *, max_failed: float = float("inf"), before: tuple[int, int] = (0, 0),
                 short_circuits: frozenset[int] = frozenset(), profiles: Mapping[int, Profile] | None = None) -> None:
        self.state = State(operators, units, nodes)
        for index, known in (profiles or {}).items():
            recall_profile(self.state.operators[index], known)
        self.max_failed, self.short_circuits = max_failed, short_circuits
        self.read, self.failed = before
        self.stopped: Stopped | None = None  # why the run ends early,
        self.ending, self.finished = None, False  # and how, from the end of the event that stopped it
        self.errors: dict[str, FirstError] = {}  # the first of each stage
        self._take: dict[type, Callable[[Any], None]] = {
            Done: self._done, Emitted: self._emitted, Progress: self._progress, WorkerReady: self._ready,
            WorkerLost: self._lost, Failed: self._call_failed, DataLost: self._data_lost, NodeUp: self._node_up,
            NodeDown: self._node_down, Stop: lambda event: self._stop(event.kind, event.reason)}

    # -- what the loop calls ------------------------------------------------------------------------------

    def start(self, now: float) -> list[Action]:
        """The first actions: one worker for each operator that has something to do."""
        self.state.now, units = now, self.state.units
        if units.given and wants_seats(self.state):
            seat(self.state, changed=True)
        given = set(units.given)
        wanted = {t.operator for _, needed in given for t in needed or ()} | {source for source, _ in given}
        for operator in self.state.operators:
            if any(needed is None for _, needed in given) and operator.upstream & wanted:
                wanted.add(operator.plan.index)
            if operator.plan.index in wanted:
                start_worker(self.state, operator, operator.queues[0] if operator.sticky else None, PRESS)
        return self._end()

    def handle(self, events: Sequence[Event], now: float) -> list[Action]:
        """Take in what happened, in order, and say what to do."""
        self.state.now, take = now, self._take
        for event in events:
            if self.finished:
                self._ignore(getattr(event, "outputs", ()))
                continue
            take[type(event)](event)
            if self.failed:
                self._check_failed()
            if self.stopped is not None and self.ending is None:
                self._begin_ending()
        return self._end()

    def tick(self, now: float) -> list[Action]:
        """End calls that are over their time limit and workers that do not end, and see if workers should change places."""
        self.state.now = now
        while not self.finished and (due := self._next_clock()) is not None and due.deadline <= now:
            limit = self.state.operators[due.operator].plan.timeout_s
            self.state.act(StopWorker(due.worker, kill=True))
            self._take[WorkerLost](WorkerLost(due.worker, f"{TIMEOUT} of {limit:g} s"))
            self._check_failed()
        while not self.finished and (late := self._next_ending()) is not None and late.ends_by <= now:
            name = self.state.operators[late.operator].plan.name
            self.state.act(Report("lost", f"a worker of {name} did not end when it was asked to"))
            self.state.kill(late)
        if self.stopped is None and wants_seats(self.state) and not self.finished and seat_due(self.state) <= now:
            seat(self.state)
        if self.ending is not None and not self.finished and self.ending.until <= now:
            self._finish(kill=True)
        return self._end()

    def deadline(self) -> float | None:
        """When `tick` is next due."""
        due, late = self._next_clock(), self._next_ending()
        times = [due.deadline] if due is not None else []
        times += [late.ends_by] if late is not None else []
        times += [self.ending.until] if self.ending is not None and not self.finished else []
        times += [seat_due(self.state)] if self.stopped is None and wants_seats(self.state) and not self.finished else []
        return min(times, default=None)

    def _next_clock(self) -> CallState | None:
        """The running call whose time is up first."""
        clocks, calls = self.state.clocks, self.state.calls
        while clocks:
            deadline, number = clocks[0]
            call = calls.get(number)
            if call is not None and not call.paused and call.deadline == deadline:
                return call
            heappop(clocks)
        return None

    def _next_ending(self) -> WorkerState | None:
        """Of the workers that were asked to end and have not yet, the one that was asked first."""
        order, workers = self.state.stop_order, self.state.workers
        while order and order[0].id not in workers:
            order.popleft()
        return order[0] if order else None

    def _end(self) -> list[Action]:
        if not self.finished:
            dispatch(self.state)
            self._finish_if_done()
        if self.stopped is not None and self.ending is None and not self.finished:
            self._begin_ending()
            return self._end()
        actions = self.state.actions.copy()
        self.state.actions.clear()
        return actions

    def _finish_if_done(self) -> None:
        idle = not self.state.working and not self.state.stopping
        if self.ending is not None:
            if idle or not self.ending.units:
                self._finish(kill=True)
        elif not self.state.open:
            self._finish()
        elif idle and self.state.nodes:
            self._stop("broken", "the run is stuck: nothing works and nothing can be started\n" + self.state.story())

    def _finish(self, kill: bool = False) -> None:
        self.finished = True
        for worker in list(self.state.workers.values()):
            if kill or not worker.stopping:
                self.state.act(StopWorker(worker.id, kill))

    def _begin_ending(self) -> None:
        self.state.act(Report("stopped", self.stopped.message))
        if self.stopped.kind == "lost":
            self._finish(kill=True)
            return
        self.ending = Ending(self.state)
        self._take |= self.ending.take

    # -- events -------------------------------------------------------------------------------------------

    def _progress(self, event: Progress) -> None:
        call = self.state.calls.get(event.call)
        if call is not None:
            start_clock(self.state, self.state.operators[call.operator], call)

    def _node_up(self, event: NodeUp) -> None:
        self.state.add_node(event.number, event.node)
        self.state.act(Report("node up", f"node {event.number} ({event.node.name}) has joined"))
        seat(self.state, changed=True)

    def _ready(self, event: WorkerReady) -> None:
        worker = self.state.workers.get(event.worker)
        if worker is not None:
            worker.ready = True
            self.state.count(worker)
            operator = self.state.operators[worker.operator]
            operator.setup_failures, operator.setup_s = 0, event.setup_s
            self._exhausted(operator, event.exhausted)
            if worker.leaving and not worker.stopping:
                self.state.stop(worker)

    def _emitted(self, event: Emitted) -> None:
        call = self.state.calls.get(event.call)
        self._saw(*event.errors)
        if call is None:
            self._ignore(event.outputs)
        elif self._careful(call):
            for output in event.outputs:
                self.state.hold(output.ref)
            call.kept += event.outputs
            call.kept_counts += (event.counts,)
            start_clock(self.state, self.state.operators[call.operator], call)
            self.state.act(Resume(call.worker, call.id))
        else:
            call.paused = call.emitted_early = True
            self.state.count(self.state.workers[call.worker])
            self._answers(call, event.outputs)
            self._count_call(call, event.counts)

    def _careful(self, call: CallState) -> bool:
        """These rows have killed before: the call must be repeatable, so nothing of it is sent on before its end."""
        blamed = any(call.operator in self.state.units[u].blames for u, _ in call.units)
        return call.kind == "process" and not self.state.operators[call.operator].sticky and (blamed or call.crashes > 0)

    def _done(self, event: Done) -> None:
        call = self.state.calls.get(event.call)
        self._saw(*event.errors)
        if call is None:  # of a worker that was given up meanwhile
            self._ignore(event.outputs)
            return
        operator, units = self.state.operators[call.operator], self.state.units
        self._answers(call, call.kept + event.outputs if call.kept else event.outputs)
        for counts in (*call.kept_counts, event.counts):
            self._count_call(call, counts)
        self._learn_pace(operator, call, event)
        self._exhausted(operator, event.exhausted)
        for change in event.refitted:
            self.state.act(refitted(operator, change))
        close_call(self.state, call)
        if call.kind == "flush":
            self._flushed(call, event)
        for index, attempt in call.units:
            if not units[index].live:
                self._check_drained(units[index], attempt)

    def _count_call(self, call: CallState, counts: CountsByUnit) -> None:
        for index, attempt in call.units:
            if index in counts and self.state.units[index].attempt == attempt:
                self._count(self.state.operators[call.operator], self.state.units[index], counts[index])
        if call.kind == "read":
            call.read += sum(c.rows_in for by_step in counts.values() for c in by_step.values())

    def _count(self, operator: OperatorState, unit: UnitState, by_step: Mapping[int, Counts]) -> None:
        for step, counts in by_step.items():
            self.failed += counts.failed
            if operator.plan.kind == "source":
                self.read += counts.rows_in
            self.state.count_rows(unit, operator.plan.index, step, counts)

    def _saw(self, *errors: FirstError) -> None:
        for error in errors:
            self.errors.setdefault(error.stage, error)

    def _learn_pace(self, operator: OperatorState, call: CallState, event: Done) -> None:
        busy_s, rows, ordinary = event.seconds, call.rows, call.kind == "process"
        operator.busy_s += busy_s
        operator.calls += 1
        if ordinary and not call.emitted_early:
            gap_s = self.state.now - call.began - busy_s
            self.state.gap_s += 0.1 * ((gap_s if gap_s > 0 else 0.0) - self.state.gap_s)
        if call.kind == "read":
            rows = call.read
        if call.kind == "flush" or not rows:
            return
        operator.rows_in += rows
        for consumer, sent in call.sent.items():
            operator.sent[consumer] = operator.sent.get(consumer, 0) + sent
        operator.rate.observe(rows, busy_s if busy_s > 1e-6 else 1e-6)
        if ordinary:
            pace = busy_s / rows
            operator.s_per_row = pace if operator.s_per_row is None else 0.6 * operator.s_per_row + 0.4 * pace

    def _call_failed(self, event: Failed) -> None:
        call = self.state.calls.get(event.call)
        if call is None:
            return
        close_call(self.state, call, rows_done=event.fatal)
        operator = self.state.operators[call.operator]
        if event.fatal:
            self._stop("broken", event.error, event.first)
            return
        self.state.act(Report("retry", f"{operator.plan.name}: {event.error}", operator.plan.index))
        self._blame(operator, call, 0, Reason(event.error, event.traceback), event.first)
        self._drop_and_check(call)

    # -- answers --------------------------------------------------------------------------------------------

    def _answers(self, call: CallState, outputs: Sequence[Output]) -> None:
        operator = self.state.operators[call.operator]
        unreserve(self.state, call)
        delivered = self.state.deliver(operator, call, outputs)
        if call.kind != "flush":
            operator.learn(delivered, call.nbytes)

    def _ignore(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            self.state.hold(output.ref)
            self.state.let_go(output.ref)

    def _drop_and_check(self, call: CallState) -> None:
        drop_call(self.state, call)
        for index, attempt in call.units:
            self._check_drained(self.state.units[index], attempt)

    def _exhausted(self, operator: OperatorState, exhausted: bool) -> None:
        if not exhausted or operator.exhausted:
            return
        operator.exhausted = True
        if operator.plan.index not in self.short_circuits:
            return
        unread = 0
        for queue in self.state.waiting.values():
            # A unit that starts again may have given records that were let through: they must come once more.
            units = self.state.units
            replay = [u for u in queue if u in units and units[u].attempt]
            for index in set(queue).difference(replay):
                units.end(index, UNREAD)
            unread += len(queue) - len(replay)
            queue.clear()
            queue.extend(replay)
        self.state.open -= unread
        if unread:
            self.state.act(Report("limit", f"{operator.plan.name} is reached: {unread} units stay unread",
                                     operator.plan.index))

    def _read_on(self, operator: OperatorState) -> None:
        """What a short-circuit let through is lost with its worker: it may need more than before."""
        operator.exhausted = False
        for index in self.state.units.read_on():
            self.state.waiting[self.state.units.given[index][0]].append(index)
            self.state.open += 1

    # -- units ----------------------------------------------------------------------------------------------

    def _check_drained(self, unit: UnitState, attempt: int) -> None:
        if self.ending is not None and unit.attempt == attempt:
            self.ending.go_on(unit)
        if self.stopped is not None or unit.attempt != attempt or unit.stage != "draining" or unit.live:
            return
        unit.stage = "flushing"
        for index, at in sorted(unit.touched.items()):
            operator = self.state.operators[index]
            worker = operator.workers[operator.queues[at].worker]
            submit_flush(self.state, operator, worker, (unit.index, unit.attempt))
            unit.flushing += 1
        if not unit.flushing:
            self._commit(unit)

    def _flushed(self, call: CallState, event: Done) -> None:
        unit = self.state.units[call.units[0][0]]
        if unit.attempt != call.units[0][1]:
            return
        unit.flushing -= 1
        if event.flushed is not None:
            unit.flushed.append((call.operator, event.flushed))
        if not unit.flushing and unit.stage == "flushing":
            self._commit(unit)
        elif self.ending is not None:
            self.ending.go_on(unit)

    def _commit(self, unit: UnitState) -> None:
        state = self.state
        files, snapshots, depends, rests = {}, {}, set(), {}
        for index, kept in unit.flushed:
            steps = state.operators[index].plan.steps
            files.update({steps[s].name: list(f) for s, f in kept.files.items()})
            depends |= kept.depends
            if kept.rests_on:
                rests[steps[0].name] = kept.rests_on
            if kept.snapshot is not None:
                snapshots[steps[0].name] = kept.snapshot
        counts = {state.operators[o].plan.steps[s].name: c for (o, s), c in state.take_counts(unit).items()}
        ran = frozenset(
            step.name for o in state.operators for s, step in enumerate(o.plan.steps)
            if (o.plan.index == unit.source or unit.source in o.upstream)
            and (unit.wants(Target(o.plan.index, s)) or o.plan.kind == "source")
        )
        for index, at in unit.touched.items():
            state.operators[index].queues[at].units.discard(unit.index)
        unit.touched.clear()
        unit.stage = "committed"
        state.open -= 1
        state.units.end(unit.index, COMMITTED)
        if self.ending is not None:
            self.ending.units.discard(unit.index)
        state.act(Commit(unit.index, unit.attempt, counts, files, snapshots, frozenset(depends), ran, rests))

    def _restart(self, units: Sequence[UnitState], why: str, blamed: Collection[int] = (), by: int = 0) -> None:
        """Begin units again; those in `blamed` were the reason why an operator (`by`) failed."""
        units = [u for u in units if u.stage in ("reading", "draining", "flushing")]
        indices = {u.index for u in units}
        self.state.purge(lambda _, piece: piece.unit in indices)
        for unit in units:
            self._void(unit, replay=True)
            if unit.index in blamed:
                unit.blames[by] = unit.blames.get(by, 0) + 1
            unit.stage = "waiting"
            self.state.waiting[unit.source].appendleft(unit.index)
            self.state.act(Report("restart", f"unit {unit.index} starts again (attempt {unit.attempt + 1}): {why}",
                                     unit=unit.index))
            if unit.attempt - unit.excused >= ATTEMPTS:
                self._stop("broken", f"unit {unit.index} was begun {ATTEMPTS} times and not once finished: {why}")

    def _void(self, unit: UnitState, replay: bool) -> None:
        """Everything of this attempt of a unit counts no more; its slices are out of the queues."""
        state = self.state
        for (operator, _), counts in state.take_counts(unit).items():
            self.failed -= counts.failed
            self.read -= counts.rows_in if operator == unit.source else 0
        state.discard(unit, replay)
        unit.flushed, unit.flushing = [], 0
        if unit.stage == "reading":
            for worker in list(state.operators[unit.source].workers.values()):
                if worker.head and worker.head.kind == "read" and worker.head.units[0][0] == unit.index:
                    self._abandon(worker)
        unit.attempt += 1
        state.repeated = True
        unit.live = 0

    def _abandon(self, worker: WorkerState) -> None:
        """Kill a worker whose answers nobody wants any more."""
        for call in worker.calls:
            end_call(self.state, call)
        self.state.kill(worker)

    # -- failures -------------------------------------------------------------------------------------------

    def _lost(self, event: WorkerLost) -> None:
        state = self.state
        worker = state.workers.get(event.worker)
        if worker is None:
            return
        operator = state.operators[worker.operator]
        calls = list(worker.calls)
        for call in calls:
            end_call(state, call)
        state.remove_worker(worker)
        if worker.stopping and not calls:
            return
        state.act(Report("lost", f"a worker of {operator.plan.name} is gone: {event.reason}", operator.plan.index,
                            details={"worker": worker.id}))
        if not worker.ready:
            operator.setup_failures += 1
            if event.fatal or operator.setup_failures >= TRIES:
                self._stop("broken", f"{operator.plan.name} cannot be set up: {event.reason}", event.first)
            return
        if event.fatal:
            self._stop("broken", f"a worker of {operator.plan.name} cannot go on: {event.reason}", event.first)
            return
        reason = Reason(f"the worker died: {event.reason}" if not event.reason.startswith(TIMEOUT) else event.reason)
        if operator.sticky:
            self._lost_queue(operator, worker, calls, reason)
        else:
            for piece in reversed([s for call in calls[1:] for s in call.slices]):
                if piece.attempt == state.units[piece.unit].attempt:
                    state.enqueue(operator, piece, front=True)
                else:
                    state.drop([piece])
            if calls:
                self._blame(operator, calls[0], event.step, reason)
                self._drop_and_check(calls[0])

    def _data_lost(self, event: DataLost) -> None:
        """A call could not begin. Its units start again: what they gave to the batch that is gone, nobody has."""
        call = self.state.calls.get(event.call)
        if call is None:
            return
        close_call(self.state, call, lost=True)
        units = [self.state.units[u] for u, attempt in call.units if self.state.units[u].attempt == attempt]
        self._restart(units, event.reason)

    def _node_down(self, event: NodeDown) -> None:
        """Its workers are gone, and nobody is to blame; units with rows there start again."""
        state = self.state
        if event.number not in state.nodes:
            return
        state.act(Report("node down", f"node {event.number} is gone: {event.reason}"))
        gone = [w for w in state.workers.values() if any(p.node == event.number for p in w.places)]
        lost = state.units_on(event.number, gone)
        state.remove_node(event.number)
        for worker in gone:
            operator, calls = state.operators[worker.operator], list(worker.calls)
            for call in calls:
                end_call(state, call)
            if any(p.node in state.nodes for p in worker.places):
                state.act(StopWorker(worker.id, kill=True))  # the other ranks of a gang
            state.remove_worker(worker)
            if operator.sticky and operator.exhausted:
                self._read_on(operator)
            for piece in reversed([s for call in calls for s in call.slices]):
                if piece.unit not in lost and piece.attempt == state.units[piece.unit].attempt:
                    state.enqueue(operator, piece, front=True)
                else:
                    state.drop([piece])
        for unit in state.units.values():  # nothing goes round in circles as long as it is nodes that go
            unit.excused = unit.attempt + (unit.index in lost)
        self._restart([state.units[u] for u in sorted(lost)], f"node {event.number} is gone")
        if state.nodes and wants_seats(state):
            seat(state, changed=True)

    def _lost_queue(self, operator: OperatorState, worker: WorkerState, calls: list[CallState], reason: Reason) -> None:
        """What a sink had not finished, or a stateful stage had not told, is lost: its units start again."""
        for call in calls:
            drop_call(self.state, call)
        units = [self.state.units[u] for u in sorted(operator.queues[worker.queue].units)]
        blamed = {u for u, attempt in calls[0].units if self.state.units[u].attempt == attempt} if calls else set()
        if operator.exhausted:
            self._read_on(operator)
        if not self._stop_if_hopeless(operator, blamed, reason):
            self._restart(units, reason.error, blamed, operator.plan.index)

    def _blame(self, operator: OperatorState, call: CallState, step: int, reason: Reason, first: FirstError | None = None) -> None:
        """A call failed as a whole. Its slices are still counted; the caller drops them."""
        state = self.state
        if call.kind == "read":
            unit = state.units[call.units[0][0]]
            if unit.attempt != call.units[0][1]:
                return
            if operator.plan.internal and self._stop_if_hopeless(operator, [unit.index], reason, first):
                return  # many records would be lost as one
            if unit.blames.get(operator.plan.index, 0) + 1 >= TRIES:
                self._give_up(operator, unit, reason, first)
            else:
                self._restart([unit], reason.error, [unit.index], operator.plan.index)
        elif operator.sticky or call.emitted_early:
            blamed = [u for u, attempt in call.units if state.units[u].attempt == attempt]
            if not self._stop_if_hopeless(operator, blamed, reason, first):
                self._restart([state.units[u] for u in blamed], reason.error, blamed, operator.plan.index)
        else:
            fresh = tuple(s for s in call.slices if s.attempt == state.units[s.unit].attempt)
            for piece in fresh:
                state.adopt(piece)
            # Where rows have been given up meanwhile, it may have been one of them.
            crashes = call.crashes + 1 if len(fresh) == len(call.slices) else 1
            self._isolate(operator, fresh, crashes, step, reason)

    def _isolate(self, operator: OperatorState, slices: tuple[Slice, ...], crashes: int, step: int, reason: Reason) -> None:
        """Try the rows alone; after a second death in halves; a single row that killed twice has failed."""
        if not slices:
            return
        if crashes < 2:
            self.state.park(operator, [Group(slices, crashes)])
        elif sum(s.rows for s in slices) > 1:
            self.state.park(operator, halves(self.state, slices, 1))
        else:
            self._quarantine(operator, slices[0], step, reason)

    def _quarantine(self, operator: OperatorState, piece: Slice, step: int, reason: Reason) -> None:
        state, unit = self.state, self.state.units[piece.unit]
        for before in range(step):
            self.state.count_rows(unit, operator.plan.index, before, Counts(rows_in=1, out={operator.plan.chain[before]: 1}))
        self.state.count_rows(unit, operator.plan.index, step, Counts(rows_in=1, failed=1))
        self.failed += 1
        name = operator.plan.steps[step].name
        self._saw(FirstError(name, reason.error, reason.traceback))
        state.act(Report("failed", f"a record of unit {unit.index} failed in {name}: {reason.error}",
                            operator.plan.index, unit.index))
        state.send_failed(operator, step, piece, reason)
        state.drop([piece])

    def _give_up(self, operator: OperatorState, unit: UnitState, reason: Reason, first: FirstError | None) -> None:
        """A unit that cannot be read ends as one failed record."""
        self.state.purge(lambda _, piece: piece.unit == unit.index)
        self._void(unit, replay=False)
        unit.stage = "draining"
        self.state.count_rows(unit, operator.plan.index, 0, Counts(rows_in=1, failed=1))
        self.read += 1
        self.failed += 1
        self._saw(first or FirstError(operator.plan.steps[0].name, reason.error))
        self.state.act(Report("failed", f"unit {unit.index} cannot be read: {reason.error}",
                                 operator.plan.index, unit.index))
        nothing = Slice(None, unit.index, unit.attempt, 0, 0)
        self.state.adopt(nothing)
        self.state.send_failed(operator, 0, nothing, reason)
        self.state.drop([nothing])
        self._check_drained(unit, unit.attempt)

    def _stop_if_hopeless(self, operator: OperatorState, blamed: Collection[int], reason: Reason,
                          first: FirstError | None = None) -> bool:
        for index in blamed:
            if self.state.units[index].blames.get(operator.plan.index, 0) + 1 >= TRIES:
                told = f"{operator.plan.name} failed {TRIES} times on unit {index}: {reason.error}\n{reason.traceback}".rstrip()
                self._stop("broken", told, first)
                return True
        return False

    def _check_failed(self) -> None:
        limit = self.max_failed
        if limit < 1:
            limit *= max(self.read, SHARE_OF)
        if self.failed > limit:
            allowed = f"more than max_failed = {self.max_failed:g} allows"
            self._stop("max_failed", f"{self.failed} of {self.read} records failed, {allowed}")

    def _stop(self, kind: StopKind, message: str, first: FirstError | None = None) -> None:
        if self.stopped is None and not self.finished:
            self.stopped = Stopped(kind, message, first)
