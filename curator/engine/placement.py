"""Who gets a GPU, and whatever else a worker holds for its life: one policy.

What is held for a worker's life is scarce: GPUs and shares of them, the places of a gang, stated memory.
(Cores are not: they are leased by the call, see `dispatch`.) Three rules, in this order:

1. **GPU slots.** Where GPUs, gangs or several nodes have to be shared out, the allocation (`balance`) says
   how many workers of each operator make the run fastest and on which places: the *slots* of an operator that
   holds GPUs or is a gang (`exclusive`). It starts a worker for each free slot and none beside. A new
   allocation is asked for when rates or nodes have changed, and taken up when it pays (`worthwhile`): workers
   in places that now are another's slot get no further call, and end. For CPU workers the allocation only
   says how many there should be (`planned`).
2. **Time sharing.** Operators that do not fit side by side have no slots: they share a GPU, or memory, by
   time. One that has work starts where there is room; where there is none it preempts: idle workers of others
   end, which have no work or no room for what they would send, if that pays for the setup of this worker and
   of the next one back. Nobody is asked unless all those asked together make enough room; who comes first to
   what they leave is decided when they are gone.
3. **Standstill.** When nothing works and nothing could start, the rules are bent step by step (`PRESS` to
   `OVERBOOK`): idle workers are preempted though they have work, and at last a worker starts beside one that
   holds what it needs.

All other workers start on cores that nobody uses: where their rows are, and on several nodes, while there is
much to read, before rows come to them (`_start_ahead`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf

from curator.api.resources import Place, Resources
from curator.engine.balance.allocation import Allocation, Demand, Rate, allocate, in_words, worthwhile
from curator.engine.events import Report, StartWorker
from curator.engine.parts import NodeState, OperatorState, Queue, WorkerState
from curator.engine.state import State

# how far the rules are bent when nothing works any more: rule 6 of `dispatch`
OBEY, PRESS, FINISH, OVERBOOK = range(4)
FIRST_S = 1.0  # while the rate of one who waits for devices is not known, the allocation is asked this often,
AGAIN_S = 5.0  # and after that this often; it is cheap to ask when nothing has changed
MOVED = 0.2  # a rate that has changed by less than this share says nothing new
LOOKS = 16  # nodes that are compared for a worker that fits on any
PRIOR_CALLS = 10.0  # what an operator's rate in the run before is worth


# -- starting a worker ---------------------------------------------------------------------------------------


def start_worker(state: State, operator: OperatorState, queue: Queue | None, force: int = OBEY) -> bool:
    """Start a worker if one more is allowed and its places are free; else preempt idle ones."""
    if not state.nodes or (not operator.sticky and len(operator.workers) >= operator.workers_max):
        return False  # the queues of a sticky operator each need theirs, also when nodes have gone
    if holds_exclusive(operator) and state.stopping:
        # what they leave is meant for the one who asked for it; who comes first then is decided when they are
        # gone
        return False
    slots = state.free_slots.get(operator.plan.index)
    nodes = _candidates(state, operator, queue, force) if slots is None or force else []
    if not nodes and (slots is None or force):
        return False
    places = _free_places(state, operator, nodes) if slots is None else _free_slot(state, operator, slots)
    if places is None and (slots is None or force) and (_preempt(state, operator, force) or force < OVERBOOK):
        return False
    crowded = places is None and force >= OVERBOOK
    if crowded:
        state.act(Report("crowded", f"{operator.plan.name} starts beside workers that need the same memory "
                                    "or GPU"))
        places = _any_places(operator.plan.resources, nodes)
    if places is None:
        return False
    worker = state.add_worker(operator, queue, places, 0.0 if crowded
                              else min(1.0, operator.plan.resources.gpus))
    restore = state.units.committed() if operator.plan.kind == "stateful" else ()
    state.act(StartWorker(worker.id, operator.plan.index, places, restore))
    return True


def holds_exclusive(operator: OperatorState) -> bool:
    """Its workers hold what others may wait for."""
    return bool(operator.exclusive or operator.plan.resources.memory_gb)


def _candidates(state: State, operator: OperatorState, queue: Queue | None, force: int) -> list[NodeState]:
    """Nodes that have a core for one more, the one with the rows first, then those with the most cores to
    spare. Of those for a worker that fits on any, `LOOKS` that have waited longest."""
    # Reading need not wait for the cores of others.
    anyway = bool(force) or (operator.plan.kind == "source" and not operator.workers)
    cpus, most, here = operator.cpus, operator.most_on, operator.on_node
    wanted = state.nodes.get(queue.node) if queue is not None else None

    def able(node: NodeState) -> bool:
        number = node.number
        return (operator.sticky or number not in here
                or here[number] < (most[number] or 1)) and (anyway or node.has_core(cpus))

    there = state.nodes if anyway or not cpus else state.core_free
    nodes: Iterable[NodeState] = filter(able, there.values())
    if not holds_exclusive(operator):  # there may be a thousand, and only those with a free core take turns
        looks = LOOKS if there is state.core_free else None
        nodes = [wanted] if wanted is not None and able(wanted) else islice(nodes, looks)
    return sorted(nodes, key=lambda n: (n is not wanted, n.cpus_used - n.node.cpus, n.number))


# -- free places ---------------------------------------------------------------------------------------------


def _free_slot(state: State, operator: OperatorState,
               slots: Mapping[tuple[Place, ...], int]) -> tuple[Place, ...] | None:
    """A slot that no worker of the operator has taken and nobody else holds."""
    need = operator.plan.resources

    def free(place: Place) -> bool:
        node = state.nodes.get(place.node)
        return node is not None and _memory_free(state, node, need) \
            and _fitting_gpus(node, need).keys() >= set(place.gpus)

    return next((slot for slot, left in slots.items() if left > 0 and all(map(free, slot))), None)


def _free_places(state: State, operator: OperatorState, nodes: list[NodeState]) -> tuple[Place, ...] | None:
    """Places for one more worker: whole devices, or the fullest one that still has the share; a gang's on few
    nodes."""
    need = operator.plan.resources
    if need.ranks > 1:
        return _gang_places(state, need, nodes)
    gpus = operator.exclusive
    fitting = [(n, _free_gpus(n, need) if gpus else ()) for n in nodes
               if _memory_free(state, n, need)]
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


def _gang_places(state: State, need: Resources, nodes: list[NodeState]) -> tuple[Place, ...] | None:
    if need.gpus:
        offers = [[Place(n.number, (gpu,)) for gpu in _fitting_gpus(n, need)] for n in nodes
                  if _memory_free(state, n, need)]
    else:
        offers = [[Place(n.number)] * int((n.node.cpus - n.cpus_used) * need.ranks / need.cpus + 1e-6)
                  for n in nodes]
    places = [place for offer in sorted(offers, key=len, reverse=True) for place in offer][:need.ranks]
    return tuple(places) if len(places) == need.ranks else None


def _any_places(need: Resources, nodes: list[NodeState]) -> tuple[Place, ...] | None:
    """Places that others hold too: where nothing else can be done."""
    able = sorted(nodes, key=lambda n: -n.node.gpus)
    if not able:
        return None
    if need.ranks > 1:
        return tuple(Place(able[0].number, (r % able[0].node.gpus,) if able[0].node.gpus else ())
                     for r in range(need.ranks))
    return (Place(able[0].number, tuple(range(min(max(1, int(need.gpus)), able[0].node.gpus))) if need.gpus
                  else ()),)


def _free_gpus(node: NodeState, need: Resources,
               without: Iterable[WorkerState] = ()) -> tuple[int, ...] | None:
    """Devices of a node for one more worker when those in `without` are gone."""
    fits = _fitting_gpus(node, need, without)
    if need.gpus < 1:
        return (min(fits, key=fits.__getitem__),) if fits else None
    count = min(max(1, int(need.gpus)), node.node.gpus)  # who wants more than there are gets all of them
    return tuple(fits)[:count] if len(fits) >= count and count else None


def _fitting_gpus(node: NodeState, need: Resources, without: Iterable[WorkerState] = ()) -> dict[int, float]:
    """The devices of a node that have room for one more rank when those in `without` are gone, and their free
    shares."""
    share, free, memory = min(1.0, need.gpus), list(node.gpu_free), list(node.gpu_memory_free)
    for worker in without:
        for gpu in (g for p in worker.places if p.node == node.number for g in p.gpus):
            free[gpu] += worker.share
            memory[gpu] += worker.gpu_memory_gb
    return {g: left for g, left in enumerate(free) if left >= share - 1e-6
            and memory[g] >= need.gpu_memory_gb - 1e-6}


def _memory_free(state: State, node: NodeState, need: Resources, going_gb: float = 0.0) -> bool:
    """There is memory for one more rank. One that needs more than there is anywhere may run alone, and so may
    one that needs a GPU, which the node with so much memory may lack."""
    used, more_gb = node.memory_used - going_gb, need.memory_gb / need.ranks
    if not more_gb or (used + more_gb) * 1e9 <= node.node.memory_bytes:
        return True
    return used < 1e-6 and bool(need.gpus or all(more_gb * 1e9 > n.node.memory_bytes
                                                 for n in state.nodes.values()))


# -- time sharing --------------------------------------------------------------------------------------------


def _preempt(state: State, operator: OperatorState, force: int) -> bool:
    """Ask idle workers to end that hold what is exclusive, if that makes enough room."""
    leaving = _fewest(state, operator, _may_end(state, operator, force))
    for worker in leaving:
        state.act(Report("preempt", f"a worker of {state.operators[worker.operator].plan.name} makes room "
                                    f"for {operator.plan.name}"))
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
    """What waits is worth the setup of this worker and of the one back, or nothing is under way to the one
    that is preempted. No second worker for one operator in place of the only one of another."""
    work_s = (operator.rows * operator.s_per_row if operator.s_per_row is not None and not operator.groups
              else inf)
    more = holder.has_work or any(w.working for i in holder.upstream
                                  for w in state.operators[i].workers.values())
    return not more or (not operator.workers and work_s >= operator.setup_s + holder.setup_s)


def _fewest(state: State, operator: OperatorState, idle: list[WorkerState]) -> list[WorkerState]:
    """The fewest of these workers whose end makes room; none if all of them would not."""
    need = operator.plan.resources
    if need.ranks > 1:
        free = sum(len(_fitting_gpus(n, need, idle)) for n in state.nodes.values())
        return idle if need.gpus and free >= need.ranks else []  # nobody is preempted for cores
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
    return (not operator.exclusive
            or _free_gpus(node, need, leaving) is not None) and _memory_free(state, node, need, going)


# -- GPU slots: asking the allocation, and coming from the workers that there are to those that it wants
# ----------------


@dataclass(frozen=True)
class Profile:
    """What an earlier run learnt of an operator. `sent`: rows to each consumer for each row that it took
    in."""

    rows: float
    busy_s: float
    setup_s: float
    sent: dict[int, float] = field(default_factory=dict)


def profile_of(operator: OperatorState) -> Profile | None:
    """For the next run; None when nothing was learnt."""
    if not operator.calls or not operator.rows_in:
        return None
    sent = {consumer: rows / operator.rows_in for consumer, rows in operator.sent.items()}
    return Profile(operator.rate.value * operator.busy_s, operator.busy_s, operator.setup_s, sent)


def begin_with(operator: OperatorState, known: Profile) -> None:
    """Begin with what an earlier run learnt."""
    operator.rate = Rate(known.rows, max(known.busy_s, 1e-6), PRIOR_CALLS)
    operator.setup_s, operator.prior = known.setup_s, known.sent


def allots(state: State) -> bool:
    """There is something to allot."""
    return bool(state.nodes) and (len(state.nodes) > 1 or any(o.exclusive for o in state.operators))


def allot_due(state: State) -> float:
    """When the allocation is to be asked next: on many nodes it takes long, and rates change slowly."""
    unknown = any(o.exclusive and o.rate.trust >= 0.9 for o in state.operators)
    return state.allotted_at + max(FIRST_S if unknown else AGAIN_S, state.call_s)


def allot(state: State, changed: bool = False) -> None:
    """Ask the allocation if something has changed, and take up what it says if that pays."""
    state.allotted_at = state.now
    demands = demands_of(state)
    asked_on = [(d.needed, d.unknown, d.rows / d.rate) for d in demands]
    current = [tuple(w.places for w in o.workers.values() if not w.leaving) for o in state.operators]
    new = state.refused
    if changed or not state.allotted_on or any(_moved(a, b)
                                               for a, b in zip(asked_on, state.allotted_on, strict=True)):
        state.allotted_on = asked_on
        new = allocate(demands, {n.number: n.node for n in state.nodes.values()}, current)
    if new is None:
        return
    # What is not known limits nothing: until it is, each stage gets at most an equal share of the cores.
    live = [d for d in demands if d.needed and d.rows]
    cores = sum(n.node.cpus for n in state.nodes.values())
    most = ceil(cores / len(live)) if any(d.unknown for d in live) else max(map(len, new.workers), default=0)
    state.planned = {i: min(len(w), most) for i, w in enumerate(new.workers) if w and not demands[i].unknown}
    state.refused = new
    if changed or worthwhile(new, demands, current, _remaining_rows(state)):
        state.refused = None
        _take_up(state, new)
    if len(state.nodes) > 1:
        _start_ahead(state, ceil(cores / max(1, len(live))))


def _start_ahead(state: State, most: int) -> None:
    """Where there is much to read yet, what the allocation wants starts before rows come to it, on cores that
    nobody uses. No more than an equal share of the cores: first calls may be slow."""
    units = sum(map(len, state.waiting.values()))
    for operator in state.operators:
        wanted = min(state.planned.get(operator.plan.index, 0), most, units)
        for _ in range(0 if operator.sticky else wanted - len(operator.workers)):
            if not state.core_free or not start_worker(state, operator, None):
                break


def allocation_of(state: State) -> Allocation:
    """What would be best now, for telling what limits the run."""
    current = [tuple(w.places for w in o.workers.values()) for o in state.operators]
    return allocate(demands_of(state), {n.number: n.node for n in state.nodes.values()}, current)


def demands_of(state: State) -> list[Demand]:
    """Each operator as the allocation sees it."""
    active: set[int] = set()
    rows = _rows_by_operator(state)
    demands = []
    for operator in state.operators:
        index, workers = operator.plan.index, operator.workers.values()
        if operator.load or state.waiting.get(index) or any(w.calls
                                                            for w in workers) or operator.upstream & active:
            active.add(index)
        calls = (w.head for w in workers)
        operator.rate.watch((c.rows, state.now - c.began) for c in calls if c and not c.paused
                            and c.kind == "process")
        demands.append(Demand(operator.plan.resources, operator.rate.value, rows[index], operator.rate.trust,
                              1 if operator.plan.kind == "stateful" else None, operator.setup_s,
                              index in active))
    return demands


def _rows_by_operator(state: State) -> list[float]:
    """Rows that reach each operator for each row that is read."""
    rows = [0.0] * len(state.operators)
    sources = [o for o in state.operators if o.plan.index in state.waiting]  # that were given units
    total = sum(o.rows_in for o in sources)
    for operator in state.operators:
        index = operator.plan.index
        if operator.plan.kind == "source":
            rows[index] = operator.rows_in / total if total else (operator in sources) / max(1, len(sources))
        for consumer in operator.consumers:
            prior = operator.prior.get(consumer, 1.0 if consumer in operator.likely else 0.0)
            rows[consumer] += rows[index] * (operator.sent.get(consumer, 0) / operator.rows_in
                                             if operator.rows_in else prior)
    return rows


def _remaining_rows(state: State) -> float:
    """Rows still to be read, from what units brought so far."""
    read = sum(o.rows_in for o in state.operators if o.plan.kind == "source")
    units = sum(o.calls for o in state.operators if o.plan.kind == "source")
    return state.open * read / units if units else inf


def _moved(now: tuple[bool, bool, float], before: tuple[bool, bool, float]) -> bool:
    return now[:2] != before[:2] or abs(now[2] - before[2]) > MOVED * before[2]


def _take_up(state: State, new: Allocation) -> None:
    names = [o.plan.name for o in state.operators]
    counts = {names[o.plan.index]: len(new.workers[o.plan.index]) for o in state.operators if o.exclusive}
    text = ", ".join(f"{count} of {name}" for name, count in counts.items()) or "no worker that holds a GPU"
    state.act(Report("plan", f"{text}; {in_words(new, names)}",
                     details={"workers": counts, "rate": round(new.rate, 3),
                              "rate_max": round(new.bound, 3)}))
    state.slots = {i: workers for i, workers in enumerate(new.workers) if state.operators[i].exclusive
                   and i not in new.sharing}
    wanted: Counter[tuple[int, int]] = Counter()  # devices of slots that nobody has taken yet
    spare = []
    state.free_slots = {}
    for index, slots in state.slots.items():
        state.free_slots[index] = free = Counter(slots)
        for worker in state.operators[index].workers.values():
            if not worker.leaving:
                if free[worker.places] <= 0:
                    spare.append(worker)
                free[worker.places] -= 1
        wanted.update((p.node, gpu) for places in free.elements() for p in places for gpu in p.gpus)
    for worker in spare:
        if any(wanted[p.node, gpu] for p in worker.places for gpu in p.gpus):
            state.leave(worker)
            if worker.ready and not worker.calls and not worker.stopping:
                state.stop(worker)
