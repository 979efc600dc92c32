"""When the allocation is asked, and how to come from the workers that there are to those that it wants.

Only what is held for a worker's life is allotted: devices and the places of gangs (`seats`). Cores are lent by the call, and
the allocation of CPU workers (`planned`) only says how many may start at once. A plan is taken up when it pays (`worthwhile`).
Workers whose devices it gives to others finish what they have and end; what they leave is free before it is taken.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf

from curator.engine.balance.allocation import Allocation, Demand, Rate, allocate, in_words, worthwhile
from curator.engine.events import Report
from curator.engine.parts import OperatorState
from curator.engine.state import State

FIRST_S = 1.0  # while the rate of one who waits for devices is not known, it is asked this often,
AGAIN_S = 5.0  # and after that this often; it is cheap to ask when nothing has changed
MOVED = 0.2  # a rate that has changed by less than this share says nothing new
PRIOR_CALLS = 10.0  # what an operator's rate in the run before is worth


@dataclass(frozen=True)
class Profile:
    """What an earlier run learnt of an operator. `sent`: rows to each consumer for each row that it took in."""

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


def recall_profile(operator: OperatorState, known: Profile) -> None:
    """Begin with what an earlier run learnt."""
    operator.rate = Rate(known.rows, max(known.busy_s, 1e-6), PRIOR_CALLS)
    operator.setup_s, operator.prior = known.setup_s, known.sent


def wants_seats(state: State) -> bool:
    """There is something to allot."""
    return bool(state.nodes) and (len(state.nodes) > 1 or any(o.exclusive for o in state.operators))


def seat_due(state: State) -> float:
    """When the allocation is to be asked next."""
    unknown = any(o.exclusive and o.rate.trust >= 0.9 for o in state.operators)
    return state.seated_at + (FIRST_S if unknown else AGAIN_S)


def seat(state: State, changed: bool = False) -> None:
    """Ask the allocation if something has changed, and take up what it says if that pays."""
    state.seated_at = state.now
    demands = demands_of(state)
    told = [(d.needed, d.unknown, d.rate) for d in demands]
    current = [tuple(w.places for w in o.workers.values() if not w.leaving) for o in state.operators]
    new = state.refused
    if changed or not state.seated_on or any(_moved(a, b) for a, b in zip(told, state.seated_on, strict=True)):
        state.seated_on = told
        new = allocate(demands, {n.number: n.node for n in state.nodes.values()}, current)
    if new is None:
        return
    state.refused = new
    if changed or worthwhile(new, demands, current, _remaining_rows(state)):
        state.refused = None
        _take_up(state, new)


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
        if operator.load or state.waiting.get(index) or any(w.calls for w in workers) or operator.upstream & active:
            active.add(index)
        calls = (w.head for w in workers)
        operator.rate.watch((c.rows, state.now - c.began) for c in calls if c and not c.paused and c.kind == "process")
        demands.append(Demand(operator.plan.resources, operator.rate.value, rows[index], operator.rate.trust,
                              1 if operator.plan.kind == "stateful" else None, operator.setup_s, index in active))
    return demands


def _rows_by_operator(state: State) -> list[float]:
    """Rows that reach each operator for each row that is read."""
    rows = [0.0] * len(state.operators)
    sources = [o for o in state.operators if o.plan.kind == "source"]
    total = sum(o.rows_in for o in sources)
    for operator in state.operators:
        index = operator.plan.index
        if operator.plan.kind == "source":
            rows[index] = operator.rows_in / total if total else 1 / len(sources)
        for consumer in operator.consumers:
            prior = operator.prior.get(consumer, 1.0 if consumer in operator.likely else 0.0)
            rows[consumer] += rows[index] * (operator.sent.get(consumer, 0) / operator.rows_in if operator.rows_in else prior)
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
    held = {names[o.plan.index]: len(new.workers[o.plan.index]) for o in state.operators if o.exclusive}
    told = ", ".join(f"{count} of {name}" for name, count in held.items()) or "no worker that holds a GPU"
    state.act(Report("plan", f"{told}; {in_words(new, names)}", details={"workers": held, "rate": round(new.rate, 3),
                                                                         "rate_max": round(new.bound, 3)}))
    state.planned = {i: len(workers) for i, workers in enumerate(new.workers)}
    state.seats = {i: workers for i, workers in enumerate(new.workers) if state.operators[i].exclusive and i not in new.turns}
    wanted: Counter[tuple[int, int]] = Counter()  # devices of seats that nobody has taken yet
    spare = []
    state.vacant = {}
    for index, seats in state.seats.items():
        state.vacant[index] = free = Counter(seats)
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
