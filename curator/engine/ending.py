"""How a run ends early: what failed is kept, the rest of every open unit is given up; the next attempt does
these units again.

1. Workers go, but for those of the sinks; rows go, but for those on their way to a sink of failed rows
   (`Step.evidence`).
2. A unit of which only its sinks had to finish is committed as always.
3. When the failed rows of a unit are written, its sinks close these files and drop all others: `Evidence`.
4. What fails now is let be, and all of it has `ENDING_S`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from curator.engine.events import Evidence, NodeDown, NodeUp, WorkerLost
from curator.engine.parts import CallState, UnitState, WorkerState
from curator.engine.protocol import DataLost, Failed
from curator.engine.state import State

ENDING_S = 10.0  # who stops a run, a person or a scheduler of jobs, does not wait much longer


class Ending:
    """From `stopped` to `finished`. `units`: those of which more comes. True: it will be committed as always;
    False: its failed rows are awaited."""

    def __init__(self, state: State) -> None:
        self.state, self.until = state, state.now + ENDING_S
        self.sink = next(o for o in state.operators if o.plan.kind == "sink")
        self.steps = {at for at, step in enumerate(self.sink.plan.steps) if step.evidence}
        self.units: dict[int, bool] = {}
        # what is taken in otherwise than in a run that goes on
        self.take: dict[type, Callable[[Any], None]] = {
            Failed: self._call_failed, DataLost: self._call_failed, WorkerLost: self._worker_lost,
            NodeDown: self._node_down, NodeUp: lambda event: None}
        for queue in state.waiting.values():
            queue.clear()
        for worker in list(state.workers.values()):
            if worker.operator != self.sink.plan.index:
                self._drop_calls(worker)
                state.kill(worker)
        state.purge(lambda operator, piece: operator is not self.sink or piece.target not in self.steps)
        for unit in [state.units[u] for queue in self.sink.queues.values() for u in queue.units]:
            # else a flush has failed
            whole = unit.stage == "flushing" and unit.flushing == self._flushes(unit)
            if whole or any(c.failed for c in unit.counts.values()):
                self.units[unit.index] = whole
        self._go_on(self.units)

    # -- units ----------------------------------------------------------------------------------------------

    def _flushes(self, unit: UnitState) -> int:
        """Flush calls that are under way."""
        return sum(c.kind == "flush" and c.units[0] == (unit.index, unit.attempt)
                   for c in self.state.calls.values())

    def _go_on(self, indices: Iterable[int]) -> None:
        """When the failed rows of a unit are written: have their files closed, and when they are, tell of
        them."""
        for unit in [self.state.units[u] for u in sorted(indices) if self.units.get(u) is False]:
            if unit.live or self._flushes(unit):
                continue
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
                self.units.pop(index, None)
            elif unit.attempt == attempt:
                self._go_on([index])

    def _end(self, unit: UnitState) -> None:
        steps = self.sink.plan.steps
        files = {steps[at].name: list(found) for index, kept in unit.flushed if index == self.sink.plan.index
                 for at, found in kept.files.items() if at in self.steps}
        if self.units.pop(unit.index, None) is False and any(files.values()):
            self.state.act(Evidence(unit.index, unit.attempt, files))

    # -- events ---------------------------------------------------------------------------------------------

    def _call_failed(self, event: Failed | DataLost) -> None:
        call = self.state.calls.get(event.call)
        if call is None:
            return
        self.state.close_call(call, lost=isinstance(event, DataLost))
        for index, attempt in call.units:
            unit = self.state.units[index]
            if unit.attempt == attempt and call.kind == "flush":
                self._end(unit)
            elif unit.attempt == attempt:
                self._go_on([index])

    def _worker_lost(self, event: WorkerLost) -> None:
        worker = self.state.workers.get(event.worker)
        if worker is not None:
            self._lose(worker)

    def _node_down(self, event: NodeDown) -> None:
        state = self.state
        if event.number not in state.nodes:
            return
        state.purge(lambda operator, piece: piece.ref is not None and piece.ref.node == event.number)
        gone = [w for w in state.workers.values() if w.node == event.number]
        state.remove_node(event.number)
        for worker in gone:
            self._lose(worker)
        self._go_on(self.units)

    def _drop_calls(self, worker: WorkerState) -> None:
        for call in list(worker.calls):
            self.state.end_call(call)
            self.state.drop_call(call)

    def _lose(self, worker: WorkerState) -> None:
        """With a sink's worker the units end whose files it has open."""
        self._drop_calls(worker)
        self.state.remove_worker(worker)
        if worker.operator == self.sink.plan.index:
            units = self.sink.queues[worker.queue].units
            self.state.purge(lambda operator, piece: operator is self.sink and piece.unit in units)
            for index in units:
                self.units.pop(index, None)
