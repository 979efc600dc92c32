"""What must hold of the scheduler's state after every event: the comments on its fields, as assertions."""

from __future__ import annotations

from collections import Counter

from curator.engine.parts import STARTING, CallState, Group, Queue
from curator.engine.state import State


def check(state: State) -> None:
    live: Counter[int] = Counter()
    for operator in state.operators:
        for queue in operator.queues.values():
            assert queue.rows == sum(s.rows for s in queue.slices), operator.plan.name
            assert queue.nbytes == sum(s.nbytes for s in queue.slices), operator.plan.name
            assert (queue.index in operator.waiting) == bool(queue.slices), operator.plan.name
        assert operator.rows == sum(queue.rows for queue in operator.queues.values()), operator.plan.name
        assert operator.late.keys() <= operator.waiting.keys(), operator.plan.name
        running = [c for w in operator.workers.values() for c in w.calls]
        here: list[Queue | Group | CallState] = [*operator.queues.values(), *operator.groups, *running]
        assert operator.nbytes == sum(part.nbytes for part in here), operator.plan.name
        waiting = [s for queue in operator.queues.values()
                   for s in queue.slices] + [s for g in operator.groups for s in g.slices]
        pieces = waiting + [s for c in running for s in c.slices]
        for piece in pieces:
            assert piece.ref is None or piece.ref.users > 0
            if piece.attempt == state.units[piece.unit].attempt:
                live[piece.unit] += 1
        for piece in waiting:
            assert piece.attempt == state.units[piece.unit].attempt, (
                "rows of a given up attempt wait for a worker")
        for call in running:
            if call.kind == "read" and state.units[call.units[0][0]].attempt == call.units[0][1]:
                live[call.units[0][0]] += 1
    assert live.keys() <= state.units.keys(), "rows of a unit that has ended"
    assert state.read_bytes == sum(unit.read_bytes for unit in state.units.values())
    came: Counter[tuple] = Counter()  # rows of all units, by step
    went: Counter[tuple] = Counter()  # and port
    for unit in state.units.values():
        assert unit.live == live[unit.index], (
            f"unit {unit.index}: {unit.live} alive, {live[unit.index]} found")
        for at, counts in unit.counts.items():
            counts.check()
            came[at] += counts.rows_in
            for port, rows in counts.out.items():
                went[at, port] += rows
    under_way = state.under_way.items()
    assert Counter({at: counts.rows_in for at, counts in under_way}) == came, (
        "rows under way are not counted well")
    sent = Counter({(at, port): rows for at, counts in under_way for port, rows in counts.out.items()})
    assert sent == went, "rows under way are not counted well"
    reserved: Counter[int] = Counter()
    for call in state.calls.values():
        for index, nbytes in call.expected:
            reserved[index] += nbytes
    for operator in state.operators:
        assert operator.reserved == reserved[operator.plan.index], operator.plan.name
        served = {w.queue for w in operator.workers.values() if operator.sticky and not w.stopping}
        assert not operator.sticky or operator.unserved.keys() == operator.queues.keys() - served, (
            operator.plan.name)
        for node, queues in operator.queues_on.items():
            assert all(queue.node == node for queue in queues), operator.plan.name
        paused = {w.id for w in operator.workers.values() if w.head is not None and w.head.paused}
        assert operator.paused.keys() == paused, operator.plan.name
        limited = {c.id for w in operator.workers.values() for c in w.calls if c.id in operator.clocks
                   and not c.paused}
        assert operator.clocks.keys() == limited, operator.plan.name
        assert list(operator.clocks.values()) == sorted(operator.clocks.values()), operator.plan.name
    _check_workers(state)


def _check_workers(state: State) -> None:
    workers = list(state.workers.values())
    assert state.working == sum(w.working for w in workers)
    assert state.starting == sum(w.doing == STARTING for w in workers)
    assert state.stopping.keys() == {w.id for w in workers if w.stopping}
    for operator in state.operators:
        mine = list(operator.workers.values())
        assert operator.working == sum(w.working for w in mine), operator.plan.name
        assert operator.starting == sum(w.doing == STARTING for w in mine), operator.plan.name
        for doing, by_node in operator.workers_by.items():
            found = {(node, number) for node, here in by_node.items() for number in here}
            assert found == {(w.node, w.id) for w in mine if w.doing == doing}, operator.plan.name
    for index, free in state.free_slots.items():
        taken = Counter(w.places for w in state.operators[index].workers.values() if not w.leaving)
        taken.update(free)
        assert taken == Counter(state.slots[index]), "slots are not counted well"
    for node in state.nodes.values():
        here = [(w, p) for w in workers for p in w.places if p.node == node.number]
        assert abs(node.cpus_used - sum(w.cpus for w, _ in here if w.working)) < 1e-3
        assert all(-1e-6 <= left <= 1 + 1e-6 for left in node.gpu_free)
        for gpu, left in enumerate(node.gpu_free):
            assert abs(1 - left - sum(w.share for w, p in here if gpu in p.gpus)) < 1e-3
        assert node.reserved == sum(n for w in workers if w.node == node.number for c in w.calls
                                    for _, n in c.expected)
        assert (node.number in state.core_free) == (node.cpus_used < node.node.cpus - 1e-6)
