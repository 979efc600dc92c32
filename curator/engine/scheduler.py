"""The scheduler: what each event leads to. It does no I/O, reads no clock and draws no random number.

A unit is committed when nothing of it is left anywhere and every sink has flushed it (`units`). Until then
all that it gave is provisional: if rows are lost, the unit starts again as its next attempt, and whatever of
the old attempt is still under way is ignored when it arrives. What a stage raises is dealt with in the worker
(retried, halved, the bad rows answered as `failed`); a `Failed` call is one where that was impossible: a
source, a sink, or rows whose answer was already under way. What is lost otherwise: `failures`. A run always
ends: with every unit committed, or `stopped` (`ending`), and then the same command continues it. After every
event `dispatch` gives out what may start now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from math import inf
from operator import itemgetter
from typing import Any

from curator.api.counts import MemoryShort
from curator.api.resources import Node
from curator.engine import events as ev
from curator.engine import failures
from curator.engine.dispatch import TURNS, dispatch
from curator.engine.ending import Ending
from curator.engine.parts import CallState, OperatorState, WorkerState
from curator.engine.placement import PRESS, Profile, allot, allot_due, allots, begin_with, start_worker
from curator.engine.protocol import CountsByUnit, DataLost, Done, Emitted, Failed, Output, Progress
from curator.engine.snapshot import story
from curator.engine.state import State
from curator.engine.units import flush_if_drained, flushed, leave_unread
from curator.pipeline.plan import Operator, Target

# a share of the records is judged from so many on; when a run has ended it is judged again, by the run
SHARE_OF = 1000


def failures_allowed(max_failed: float, records: int) -> float:
    """How many of these records may fail. A share above 0 allows one, unless it is the only one: of a few
    files to try things on each would be a large share."""
    share = 0 < max_failed < 1
    return max(max_failed * records, float(records > 1)) if share else max_failed


def too_many_failed(failed: int, records: int, max_failed: float) -> str:
    """That more of these records failed than may, in words."""
    return f"{failed} of {records} records failed, more than max_failed = {max_failed:g} allows"


class Scheduler:
    """Decides everything that happens in a run.

    `units`: for each unit the operator that reads it and the steps to run (None for all). `max_failed`:
    records that may fail, or a share of the records read below 1. `before`: records read and failed that
    earlier attempts of the run committed. `short_circuits`: stateful operators through which every row goes,
    so that reading can end when they are exhausted.
    """

    def __init__(self, operators: Sequence[Operator], units: Sequence[tuple[int, frozenset[Target] | None]],
                 nodes: Mapping[int, Node], *, max_failed: float = float("inf"),
                 before: tuple[int, int] = (0, 0), short_circuits: frozenset[int] = frozenset(),
                 profiles: Mapping[int, Profile] | None = None) -> None:
        self.state = state = State(operators, units, nodes)
        for index, known in (profiles or {}).items():
            begin_with(state.operators[index], known)
        for index in short_circuits:
            state.operators[index].short_circuit = True
        self.max_failed, self.errors = max_failed, state.errors
        state.read, state.failed = before
        # how a run ends that is stopped, from the end of the event that stopped it
        self.ending: Ending | None = None
        self.finished = False
        self._take: dict[type, Callable[[Any], None]] = {
            Done: self._done, Emitted: self._emitted, Progress: self._progress, ev.WorkerReady: self._ready,
            ev.WorkerLost: lambda event: failures.worker_lost(state, event),
            Failed: lambda event: failures.call_failed(state, event),
            DataLost: lambda event: failures.data_lost(state, event), ev.NodeUp: self._node_up,
            ev.NodeCores: self._node_cores,
            ev.NodeDown: lambda event: failures.node_down(state, event), ev.Stop: state.end_run}

    @property
    def stopped(self) -> ev.Stop | None:
        """Why the run ends early, if it does."""
        return self.state.stopped

    @property
    def turn_s(self) -> float:
        """So long may what happens wait for more of it, to be taken in together."""
        return self.state.call_s / TURNS

    # -- what the loop calls ------------------------------------------------------------------------------

    def start(self, now: float) -> list[ev.Action]:
        """The first actions: one worker for each operator that has something to do."""
        self.state.now, given = now, set(self.state.units.given)
        if given and allots(self.state):
            allot(self.state, changed=True)
        wanted = {t.operator for _, needed in given for t in needed or ()} | {source for source, _ in given}
        for operator in self.state.operators:
            if any(needed is None for _, needed in given) and operator.upstream & wanted:
                wanted.add(operator.plan.index)
            if operator.plan.index in wanted:
                start_worker(self.state, operator, operator.queues[0] if operator.sticky else None, PRESS)
        return self._end()

    def handle(self, events: Sequence[ev.Event], now: float) -> list[ev.Action]:
        """Take in what happened, in order, and say what to do."""
        state, take = self.state, self._take
        state.now = now
        for event in events:
            if self.finished:
                self._ignore(getattr(event, "outputs", ()))
                continue
            take[type(event)](event)
            if state.failed:
                self._check_failed()
            if state.stopped is not None and self.ending is None:
                self._begin_ending(state.stopped)
        return self._end()

    def tick(self, now: float) -> list[ev.Action]:
        """Do what is due: end calls that are over their time limit and workers that do not end, ask the
        allocation again."""
        self.state.now = now
        while (due := min(self._timers(), key=itemgetter(0), default=None)) is not None and due[0] <= now:
            due[1]()
        return self._end()

    def deadline(self) -> float | None:
        """When `tick` is next due."""
        return min((when for when, _ in self._timers()), default=None)

    def _timers(self) -> Iterator[tuple[float, Callable[[], None]]]:
        """What is to be done and when, if nothing happens before: the first of each kind."""
        if self.finished:
            return
        for operator in self.state.operators:
            if operator.clocks:
                call, deadline = next(iter(operator.clocks.items()))
                yield deadline, partial(self._overdue, operator, call)
        if self.state.wake < inf:
            yield self.state.wake, self._wake
        for worker in islice(self.state.stopping.values(), 1):
            yield worker.ends_by, partial(self._does_not_end, worker)
        if self.stopped is None and allots(self.state):
            yield allot_due(self.state), partial(allot, self.state)
        if self.ending is not None:
            yield self.ending.until, partial(self._finish, kill=True)

    def _overdue(self, operator: OperatorState, call: int) -> None:
        worker, limit = self.state.calls[call].worker, operator.plan.timeout_s
        self.state.act(ev.StopWorker(worker, kill=True))
        why = f"a call took longer than its limit of {limit:g} s"
        self._take[ev.WorkerLost](ev.WorkerLost(worker, why, overdue=True))
        self._check_failed()

    def _wake(self) -> None:
        self.state.wake = inf  # `dispatch` follows, and gives out what has waited

    def _does_not_end(self, worker: WorkerState) -> None:
        name = self.state.operators[worker.operator].plan.name
        self.state.act(ev.Report("lost", f"a worker of {name} did not end when it was asked to"))
        self.state.kill(worker)

    def _end(self) -> list[ev.Action]:
        if not self.finished:
            dispatch(self.state)
            self._finish_if_done()
        if self.stopped is not None and self.ending is None and not self.finished:
            self._begin_ending(self.stopped)
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
            stuck = "the run is stuck: nothing works and nothing can be started\n"
            self.state.end_run(ev.Stop("broken", stuck + story(self.state)))

    def _finish(self, kill: bool = False) -> None:
        self.finished = True
        for worker in list(self.state.workers.values()):
            if kill or not worker.stopping:
                self.state.act(ev.StopWorker(worker.id, kill))

    def _begin_ending(self, why: ev.Stop) -> None:
        self.state.act(ev.Report("stopped", why.message))
        if why.kind == "lost":
            self._finish(kill=True)
            return
        self.ending = Ending(self.state)
        self._take |= self.ending.take

    # -- events -------------------------------------------------------------------------------------------

    def _progress(self, event: Progress) -> None:
        call = self.state.calls.get(event.call)
        if call is not None:
            self.state.start_clock(self.state.operators[call.operator], call)

    def _node_up(self, event: ev.NodeUp) -> None:
        self.state.add_node(event.number, event.node)
        self.state.act(ev.Report("node up", f"node {event.number} ({event.node.name}) has joined"))
        allot(self.state, changed=True)

    def _node_cores(self, event: ev.NodeCores) -> None:
        node = self.state.nodes.get(event.number)
        if node is None:
            return
        if node.node != event.node:
            self.state.resize_node(event.number, event.node)
            if allots(self.state):
                allot(self.state, changed=True)
        self.state.act(ev.CoresUsed(event.number, node.cpus_used, node.cpus_most))
        node.cpus_most = node.cpus_used

    def _ready(self, event: ev.WorkerReady) -> None:
        worker = self.state.workers.get(event.worker)
        if worker is not None:
            operator = self.state.operators[worker.operator]
            operator.setup_failures, operator.setup_s = 0, event.setup_s
            self._exhausted(operator, event.exhausted)
            self.state.ready(worker)

    def _emitted(self, event: Emitted) -> None:
        call = self.state.calls.get(event.call)
        self.state.saw(*event.errors)
        if call is None:
            self._ignore(event.outputs)
        elif self._must_be_repeatable(call):
            self.state.keep(call, event.outputs, event.counts)
        else:
            self.state.pause(call)
            self._answers(call, event.outputs)
            self._count_call(call, event.counts)
            self._has_read(call, event.read_bytes)

    def _must_be_repeatable(self, call: CallState) -> bool:
        """These rows have killed before: nothing of the answer is sent on before its end."""
        blamed = any(call.operator in self.state.units[u].blames for u, _ in call.units)
        return call.kind == "process" and not self.state.operators[call.operator].sticky and (
            blamed or call.crashes > 0)

    def _done(self, event: Done) -> None:
        state, call = self.state, self.state.calls.get(event.call)
        state.saw(*event.errors)
        if call is None:  # of a worker that was given up meanwhile
            self._ignore(event.outputs)
            return
        operator = state.operators[call.operator]
        self._answers(call, call.kept + event.outputs if call.kept else event.outputs)
        for counts in (*call.kept_counts, event.counts):
            self._count_call(call, counts)
        self._has_read(call, event.read_bytes)
        if call.kind == "process" and not call.emitted_early:
            gap_s = state.now - call.began - event.seconds
            state.gap_s += 0.1 * ((gap_s if gap_s > 0 else 0.0) - state.gap_s)
        operator.learn_pace(call, event.seconds)
        self._exhausted(operator, event.exhausted)
        for step, short in event.refitted.items():
            state.act(refitted(operator, step, short))
        state.close_call(call)
        if call.kind == "flush":
            flushed(state, call, event.flushed)
        if self.ending is not None:
            self.ending.answered(call)
            return
        for index, attempt in call.units:
            if not state.units[index].live:
                flush_if_drained(state, state.units[index], attempt)

    def _count_call(self, call: CallState, counts: CountsByUnit) -> None:
        state, operator = self.state, self.state.operators[call.operator]
        for index, attempt in call.units:
            if index in counts and (unit := state.units[index]).attempt == attempt:
                for step, counted in counts[index].items():
                    state.count_rows(unit, operator, step, counted)
        if call.kind == "read":
            call.read += sum(c.rows_in for by_step in counts.values() for c in by_step.values())

    def _has_read(self, call: CallState, nbytes: int) -> None:
        if call.kind == "read":
            unit = self.state.units[call.units[0][0]]
            if unit.attempt == call.units[0][1]:
                self.state.has_read(unit, nbytes)

    def _answers(self, call: CallState, outputs: Sequence[Output]) -> None:
        operator = self.state.operators[call.operator]
        self.state.unreserve(call)
        delivered = self.state.deliver(operator, call, outputs)
        # a part without rows only says how far a read is: what the next one brings is as unknown as before
        if call.kind != "flush" and (outputs or not call.paused):
            operator.learn(delivered, call.nbytes)

    def _ignore(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            self.state.hold(output.ref)
            self.state.let_go(output.ref)

    def _exhausted(self, operator: OperatorState, exhausted: bool) -> None:
        if exhausted and not operator.exhausted:
            operator.exhausted = True
            if operator.short_circuit:
                leave_unread(self.state, operator)

    def _check_failed(self) -> None:
        state = self.state
        if state.failed > failures_allowed(self.max_failed, max(state.read, SHARE_OF)):
            state.end_run(ev.Stop("max_failed", too_many_failed(state.failed, state.read, self.max_failed)))


def refitted(operator: OperatorState, step: int, short: MemoryShort) -> ev.Report:
    """What the log says of a stage whose calls have another size, because memory ran out or is there
    again."""
    stage, most = operator.plan.steps[step].name, short.rows_max
    size = "as many rows as before" if most is None else f"at most {most} row{'s' if most > 1 else ''}"
    if short.rows:
        text = f"out of memory in stage {stage}: batches of {short.rows} rows, {size} from now on"
    else:
        text = f"stage {stage}, which ran out of memory, takes batches of {size} again"
    return ev.Report("out_of_memory" if short.rows else "batch_grown", text, operator.plan.index,
                  details={"stage": stage, "rows": short.rows or None, "rows_max": most})
