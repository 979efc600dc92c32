"""Where a worker may start, and who makes room for it.

Operators that hold devices or a gang's places start where the allocation has a seat for them (`seats`); all others start where
their rows are, on cores that nobody uses. Workers of stages that do not fit side by side take turns on a GPU or on memory. A
worker gives way when it is idle, has no work or no room for it, and the turn pays for its own and the next worker's setup; when
everything has come to a halt, every idle one does. Nobody is asked unless all those asked together make enough room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from curator.api.resources import Place, Resources
from curator.engine.events import Report, StartWorker
from curator.engine.parts import NodeState, OperatorState, Queue, WorkerState
from curator.engine.state import State

OBEY, PRESS, FINISH, OVERBOOK = range(4)  # how far the rules are bent when nothing works any more: rule 6 of `dispatch`


def start_worker(state: State, operator: OperatorState, queue: Queue | None, force: int = OBEY) -> bool:
    """Start a worker if one more is allowed and its places are free; else make idle ones give way."""
    if not state.nodes or (not operator.sticky and len(operator.workers) >= operator.workers_max):
        return False  # the queues of a sticky operator each need theirs, also when nodes have gone
    if holds_exclusive(operator) and state.stopping:
        return False  # what they leave is meant for the one who asked for it; who comes first then is decided when they are gone
    seats = state.vacant.get(operator.plan.index)
    nodes = _candidates(state, operator, queue, force) if seats is None or force else []
    if not nodes and (seats is None or force):
        return False
    places = _free_places(state, operator, nodes) if seats is None else _free_seat(state, operator, seats)
    if places is None and (seats is None or force) and (_give_way(state, operator, force) or force < OVERBOOK):
        return False
    crowded = places is None and force >= OVERBOOK
    if crowded:
        state.act(Report("crowded", f"{operator.plan.name} starts beside workers that need the same memory or GPU"))
        places = _any_places(operator.plan.resources, nodes)
    if places is None:
        return False
    _begin_worker(state, operator, queue, places, 0.0 if crowded else min(1.0, operator.plan.resources.gpus))
    return True


def _begin_worker(state: State, operator: OperatorState, queue: Queue | None, places: tuple[Place, ...], share: float) -> None:
    index = queue.index if queue is not None and operator.sticky else places[0].node
    worker = WorkerState(state.next_worker(), operator.plan.index, index, places, operator.cpus, share,
                         operator.plan.resources.gpu_memory_gb)
    state.workers[worker.id] = operator.workers[worker.id] = worker
    state.occupy(worker, 1)
    state.count(worker)
    if operator.sticky and queue is not None:
        queue.worker = worker.id
        state.move_queue(operator, queue, worker.node)
        del operator.unserved[queue.index]
    restore = state.units.committed() if operator.plan.kind == "stateful" else ()
    state.act(StartWorker(worker.id, operator.plan.index, places, restore))


def holds_exclusive(operator: OperatorState) -> bool:
    """Its workers hold what others may wait for."""
    return bool(operator.exclusive or operator.plan.resources.memory_gb)


def _candidates(state: State, operator: OperatorState, queue: Queue | None, force: int) -> list[NodeState]:
    """Nodes that have a core for one more, the one with the rows first, then those with the most cores to spare. Only the
    best one for a worker that fits on any."""
    # Reading need not wait for the cores of others.
    anyway = bool(force) or (operator.plan.kind == "source" and not operator.workers)
    cpus, most, here = operator.cpus, operator.most_on, operator.on_node
    wanted = state.nodes.get(queue.node) if queue is not None else None

    def able(node: NodeState) -> bool:
        number = node.number
        return (operator.sticky or number not in here or here[number] < (most[number] or 1)) and (anyway or node.has_core(cpus))

    picky = holds_exclusive(operator)
    if wanted is not None and not picky and able(wanted):
        return [wanted]
    nodes = state.nodes if anyway or not cpus else state.core_free
    if picky:
        return sorted(filter(able, nodes.values()), key=lambda n: (n is not wanted, n.cpus_used - n.node.cpus, n.number))
    best, least = None, inf
    for node in nodes.values():
        used = node.cpus_used - node.node.cpus
        if (used < least or (used == least and best is not None and node.number < best.number)) and able(node):
            best, least = node, used
    return [best] if best is not None else []


# -- free places ----------------------------------------------------------------------------------------------------


def _free_seat(state: State, operator: OperatorState, seats: Mapping[tuple[Place, ...], int]) -> tuple[Place, ...] | None:
    """A seat of the allocation that nobody of the operator has taken and nobody else holds."""
    need = operator.plan.resources
    for seat, left in seats.items():
        if left > 0 and all(p.node in state.nodes and _fits(state.nodes[p.node], p, need, len(seat)) for p in seat):
            return seat
    return None


def _fits(node: NodeState, place: Place, need: Resources, ranks: int) -> bool:
    share = min(1.0, need.gpus)
    return all(node.gpu_free[g] >= share - 1e-6 and node.gpu_memory_free[g] >= need.gpu_memory_gb - 1e-6 for g in place.gpus) \
        and _memory_free(node, need.memory_gb / ranks, 0.0)


def _free_places(state: State, operator: OperatorState, nodes: list[NodeState]) -> tuple[Place, ...] | None:
    """Places for one more worker: whole devices, or the fullest one that still has the share; a gang's on few nodes."""
    need = operator.plan.resources
    if need.ranks > 1:
        return _gang_places(need, nodes)
    gpus = operator.exclusive
    fitting = [(n, _free_gpus(n, need) if gpus else ()) for n in nodes if _memory_free(n, need.memory_gb, 0.0)]
    found = [(n, devices) for n, devices in fitting if devices is not None]
    if not found:
        return None
    if gpus and need.gpus < 1:
        best = min(found, key=lambda f: f[0].gpu_free[f[1][0]])
    elif gpus:
        best = min(found, key=lambda f: sum(free > 1 - 1e-6 for free in f[0].gpu_free))
    else:
        best = found[0]
    return (Place(best[0].number, best[1]),)


def _gang_places(need: Resources, nodes: list[NodeState]) -> tuple[Place, ...] | None:
    offers: list[list[Place]] = []
    for node in nodes:
        if need.gpus:
            devices = [Place(node.number, (gpu,)) for gpu in range(node.node.gpus)]
            offer = [place for place in devices if _fits(node, place, need, need.ranks)]
        else:
            offer = [Place(node.number)] * int((node.node.cpus - node.cpus_used) * need.ranks / need.cpus + 1e-6)
        offers.append(offer)
    places = [place for offer in sorted(offers, key=len, reverse=True) for place in offer][:need.ranks]
    return tuple(places) if len(places) == need.ranks else None


def _any_places(need: Resources, nodes: list[NodeState]) -> tuple[Place, ...] | None:
    """Places that others hold too: where nothing else can be done."""
    able = sorted(nodes, key=lambda n: -n.node.gpus)
    if not able:
        return None
    if need.ranks > 1:
        return tuple(Place(able[0].number, (r % able[0].node.gpus,) if able[0].node.gpus else ()) for r in range(need.ranks))
    return (Place(able[0].number, tuple(range(min(max(1, int(need.gpus)), able[0].node.gpus))) if need.gpus else ()),)


def _free_gpus(node: NodeState, need: Resources, without: Iterable[WorkerState] = ()) -> tuple[int, ...] | None:
    """Devices of a node for one more worker when those in `without` are gone."""
    fits = _fitting_gpus(node, need, without)
    if need.gpus < 1:
        return (min(fits, key=fits.__getitem__),) if fits else None
    count = min(max(1, int(need.gpus)), node.node.gpus)  # who wants more than there are gets all of them
    return tuple(fits)[:count] if len(fits) >= count and count else None


def _fitting_gpus(node: NodeState, need: Resources, without: Iterable[WorkerState] = ()) -> dict[int, float]:
    """The devices of a node that have room for one more rank when those in `without` are gone, and their free shares."""
    share, free, memory = min(1.0, need.gpus), list(node.gpu_free), list(node.gpu_memory_free)
    for worker in without:
        for gpu in (g for p in worker.places if p.node == node.number for g in p.gpus):
            free[gpu] += worker.share
            memory[gpu] += worker.gpu_memory_gb
    return {g: left for g, left in enumerate(free) if left >= share - 1e-6 and memory[g] >= need.gpu_memory_gb - 1e-6}


def _memory_free(node: NodeState, more_gb: float, going_gb: float) -> bool:
    """There is memory for one more worker. One that needs more than there is may run alone."""
    used = node.memory_used - going_gb
    return not more_gb or used < 1e-6 or (used + more_gb) * 1e9 <= node.node.memory_bytes


# -- turns --------------------------------------------------------------------------------------------------------


def _give_way(state: State, operator: OperatorState, force: int) -> bool:
    """Ask idle workers to end that hold what is exclusive, if that makes enough room."""
    leaving = _who_gives_way(state, operator, _may_end(state, operator, force))
    for worker in leaving:
        state.act(Report("turn", f"a worker of {state.operators[worker.operator].plan.name} makes room for {operator.plan.name}"))
        state.stop(worker)
    return bool(leaving)


def _may_end(state: State, operator: OperatorState, force: int) -> list[WorkerState]:
    """Idle workers of other operators, those without work first, then the ones furthest upstream."""
    idle = []
    for worker in state.workers.values():
        holder = state.operators[worker.operator]
        if holder is operator or not worker.ready or worker.stopping or worker.calls:
            continue
        if holder.sticky and holder.queues[worker.queue].units:
            continue  # it keeps what was not committed yet
        if force or ((not holder.has_work or holder.blocked) and _pays(state, operator, holder)):
            idle.append(worker)
    return sorted(idle, key=lambda w: (state.operators[w.operator].has_work, w.operator, w.id))


def _pays(state: State, operator: OperatorState, holder: OperatorState) -> bool:
    """What waits is worth the setup of this turn and of the one back, or nothing is under way to the one who gives way. No
    second worker for one operator in place of the only one of another."""
    work_s = operator.rows * operator.s_per_row if operator.s_per_row is not None and not operator.groups else inf
    more = holder.has_work or any(w.working for i in holder.upstream for w in state.operators[i].workers.values())
    return not more or (not operator.workers and work_s >= operator.setup_s + holder.setup_s)


def _who_gives_way(state: State, operator: OperatorState, idle: list[WorkerState]) -> list[WorkerState]:
    """The fewest of these workers whose end makes room; none if all of them would not."""
    need = operator.plan.resources
    if need.ranks > 1:
        free = sum(len(_fitting_gpus(n, need, idle)) for n in state.nodes.values())
        return idle if need.gpus and free >= need.ranks else []  # cores need not be given way for
    ways = []
    for node in state.nodes.values():
        leaving: list[WorkerState] = []
        for worker in [w for w in idle if any(p.node == node.number for p in w.places)]:
            if _enough(state, node, operator, leaving):
                break
            leaving.append(worker)
        if leaving and _enough(state, node, operator, leaving):
            for worker in list(leaving):
                others = [w for w in leaving if w is not worker]
                leaving = others if _enough(state, node, operator, others) else leaving
            ways.append(leaving)
    return min(ways, key=len, default=[])


def _enough(state: State, node: NodeState, operator: OperatorState, leaving: list[WorkerState]) -> bool:
    need = operator.plan.resources
    going = sum(state.operators[w.operator].plan.resources.memory_gb for w in leaving)
    return (not operator.exclusive or _free_gpus(node, need, leaving) is not None) and _memory_free(node, need.memory_gb, going)
