"""How a run ends early: what failed is kept, the rest of every open unit is given up; the next attempt does these units again.

1. Workers go, but for those of the sinks; rows go, but for those on their way to a sink of failed rows (`Step.evidence`).
2. A unit of which only its sinks had to finish is committed as always.
3. When the failed rows of a unit are written, its sinks close these files and drop all others: `Evidence`.
4. What fails now is let be, and all of it has `ENDING_S`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from curator.engine.events import Evidence, NodeDown, NodeUp, WorkerLost
from curator.engine.parts import CallState, OperatorState, UnitState, WorkerState
from curator.engine.protocol import DataLost, Failed
from curator.engine.state import State

ENDING_S = 10.0  # who stops a run, a person or a scheduler of jobs, does not wait much longer


class Ending:
    """From `stopped` to `finished`. A unit is "flushing" if it will be committed, "ending" if its failed rows are awaited, and
    "ended" when nothing more comes of it."""

    def __init__(self, state: State) -> None:
        self.state, self.until = state, state.now + ENDING_S
        self.sink = next(o for o in state.operators if o.plan.kind == "sink")
        self.steps = {at for at, step in enumerate(self.sink.plan.steps) if step.evidence}
        self.units: set[int] = set()  # those that are "flushing" or "ending"
        self.take: dict[type, Callable[[Any], None]] = {  # what is taken in otherwise than in a run that goes on
            Failed: self._call_failed, DataLost: self._call_failed, WorkerLost: self._worker_lost,
            NodeDown: self._node_down, NodeUp: lambda event: None}
        for queue in state.waiting.values():
            queue.clear()
        for worker in list(state.workers.values()):
            if worker.operator != self.sink.plan.index:
                self._end_worker(worker)
                state.kill(worker)
        state.purge(lambda operator, piece: operator is not self.sink or piece.target not in self.steps)
        flushes = Counter(call.units[0] for call in state.calls.values() if call.kind == "flush")
        for queue in self.sink.queues.values():
            for unit in (state.units[u] for u in queue.units):
                asked = flushes[unit.index, unit.attempt]
                if unit.stage != "flushing" or unit.flushing > asked:  # it is a flush that failed
                    unit.flushing = asked
                    unit.stage = "ending" if any(c.failed for c in unit.counts.values()) else "ended"
                if unit.stage != "ended":
                    self.units.add(unit.index)
        for index in sorted(self.units):
            self.go_on(state.units[index])

    # -- units ----------------------------------------------------------------------------------------------

    def go_on(self, unit: UnitState) -> None:
        """When the failed rows of a unit are written: have their files closed, and when they are, tell of them."""
        if unit.stage != "ending" or unit.live or unit.flushing:
            return
        queue = self.sink.queues[unit.touched[self.sink.plan.index]]
        worker = self.sink.workers.get(queue.worker) if queue.worker is not None else None
        if unit.flushed or worker is None or worker.stopping:
            self._end(unit)
        else:
            self.state.submit_flush(self.sink, worker, unit, best_effort=True)

    def answered(self, call: CallState) -> None:
        for index, attempt in call.units:
            unit = self.state.units[index]
            if unit.stage == "committed":
                self.units.discard(index)
            elif unit.attempt == attempt:
                self.go_on(unit)

    def _end(self, unit: UnitState) -> None:
        steps = self.sink.plan.steps
        files = {steps[at].name: list(found) for index, kept in unit.flushed if index == self.sink.plan.index
                 for at, found in kept.files.items() if at in self.steps}
        if unit.stage == "ending" and any(files.values()):
            self.state.act(Evidence(unit.index, unit.attempt, files))
        unit.stage = "ended"
        self.units.discard(unit.index)

    # -- events ---------------------------------------------------------------------------------------------

    def _call_failed(self, event: Failed | DataLost) -> None:
        call = self.state.calls.get(event.call)
        if call is None:
            return
        self.state.close_call(call, lost=isinstance(event, DataLost))
        for index, attempt in call.units:
            unit = self.state.units[index]
            if unit.attempt == attempt and call.kind == "flush":
                unit.flushing -= 1
                self._end(unit)
            elif unit.attempt == attempt:
                self.go_on(unit)

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self.state.workers.get(event.worker)
        if worker is not None:
            self._end_worker(worker)
            self.state.remove_worker(worker)

    def _node_down(self, event: NodeDown) -> None:
        state = self.state
        if event.number not in state.nodes:
            return
        state.purge(lambda operator, piece: piece.ref is not None and piece.ref.node == event.number)
        gone = [w for w in state.workers.values() if w.node == event.number]
        state.remove_node(event.number)
        for worker in gone:
            self._end_worker(worker)
            state.remove_worker(worker)
        for index in sorted(self.units):
            self.go_on(state.units[index])

    def _end_worker(self, worker: WorkerState) -> None:
        """Its calls end, and with a sink's worker the units whose files it has open."""
        state, operator = self.state, self.state.operators[worker.operator]
        for call in list(worker.calls):
            state.end_call(call)
            state.drop_call(call)
            for index, attempt in call.units if call.kind == "flush" else ():
                unit = state.units[index]
                if unit.attempt == attempt:
                    unit.flushing -= 1
                    unit.stage = "ended" if operator is self.sink else "ending"
        worker.calls.clear()
        if operator is self.sink:
            self._lose(operator, worker.queue)

    def _lose(self, operator: OperatorState, queue: int) -> None:
        units = operator.queues[queue].units
        self.state.purge(lambda of, piece: of is operator and piece.unit in units)
        for index in sorted(units & self.units):
            unit = self.state.units[index]
            unit.flushed = []
            self._end(unit)
