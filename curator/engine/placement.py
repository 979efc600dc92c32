"""Where a worker may start, and who makes room for it.

Workers of stages that do not fit side by side take turns on a GPU or on memory. A worker gives way when it is idle, has no
work or no room for it, and the turn pays for its own and the next worker's setup; when everything has come to a halt, every
idle one does. Nobody is asked unless all those asked together make enough room.
"""

from __future__ import annotations

from math import inf

from curator.engine.events import Report, StartWorker, StopWorker
from curator.engine.state import Lane, OperatorState, State, WorkerState
from curator.resources import Place, Resources

OBEY, PRESS, FINISH, OVERBOOK = range(4)  # how far the rules are bent when nothing works any more: rule 5 of `dispatch`


def start_worker(state: State, operator: OperatorState, lane: Lane, force: int = OBEY) -> bool:
    """Start a worker if one more is allowed and its GPU and memory are free; else make idle ones give way."""
    need = operator.plan.resources
    if len(operator.workers) >= operator.workers_max:
        return False
    gpus, share = _free_gpus(state, need), min(1.0, need.gpus)
    if (need.gpus or need.memory_gb) and any(w.stopping for w in state.workers.values()):
        return False  # what they leave is meant for the one who asked for it; who comes first then is decided when they are gone
    if gpus is None or not _memory_free(state, need, ()):
        if _give_way(state, operator, force) or force < OVERBOOK:
            return False
        state.act(Report("crowded", f"{operator.plan.name} starts beside workers that need the same memory or GPU"))
        gpus, share = (gpus, share) if gpus is not None else (tuple(range(_gpu_count(state, need))), 0.0)
    worker = WorkerState(state.next_worker(), operator.plan.index, lane.index, gpus, share if gpus else 0.0)
    for gpu in gpus:
        state.gpu_free[gpu] = round(state.gpu_free[gpu] - worker.gpu_share, 6)
    state.workers[worker.id] = operator.workers[worker.id] = worker
    state.count(worker)
    if operator.affine:
        lane.worker = worker.id
    recall = (u.index for u in state.units if u.stage == "committed") if operator.plan.kind == "stateful" else ()
    state.act(StartWorker(worker.id, operator.plan.index, (Place(0, gpus),), tuple(recall)))
    return True


def holds_scarce(operator: OperatorState) -> bool:
    """Its workers hold what others may wait for."""
    return bool(operator.plan.resources.gpus or operator.plan.resources.memory_gb)


def _gpu_count(state: State, need: Resources) -> int:
    return min(max(1, int(need.gpus)), state.machine.gpus)


def _free_gpus(state: State, need: Resources) -> tuple[int, ...] | None:
    """Devices for one more worker: whole ones, or the fullest that still has the share. () where there is no GPU to use."""
    if not need.gpus or not state.machine.gpus:
        return ()
    fits = [i for i, free in enumerate(state.gpu_free) if free >= min(1.0, need.gpus) - 1e-6]
    if need.gpus < 1:
        return (min(fits, key=lambda i: state.gpu_free[i]),) if fits else None
    count = _gpu_count(state, need)
    return tuple(fits[:count]) if len(fits) >= count else None


def _memory_free(state: State, need: Resources, without: tuple[WorkerState, ...]) -> bool:
    """There is memory for one more worker when those in `without` are gone. One that needs more than there is may run alone."""
    used = sum(_resources(state, w).memory_gb for w in state.workers.values() if w not in without)
    return not need.memory_gb or not used or (used + need.memory_gb) * 1e9 <= state.machine.memory_bytes


def _resources(state: State, worker: WorkerState) -> Resources:
    return state.operators[worker.operator].plan.resources


# -- turns --------------------------------------------------------------------------------------------------------


def _give_way(state: State, operator: OperatorState, force: int) -> bool:
    """Ask idle workers to end that hold what is scarce, if that makes enough room."""
    leaving = _who_gives_way(state, operator.plan.resources, _may_end(state, operator, force))
    for worker in leaving:
        worker.stopping = True
        state.act(Report("turn", f"a worker of {state.operators[worker.operator].plan.name} makes room for {operator.plan.name}"))
        state.act(StopWorker(worker.id))
    return bool(leaving)


def _may_end(state: State, operator: OperatorState, force: int) -> list[WorkerState]:
    """Idle workers of other operators, those without work first, then the ones furthest upstream."""
    idle = []
    for worker in state.workers.values():
        holder = state.operators[worker.operator]
        if holder is operator or not worker.ready or worker.stopping or worker.calls:
            continue
        if holder.affine and holder.lanes[worker.lane].units:
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


def _who_gives_way(state: State, need: Resources, idle: list[WorkerState]) -> tuple[WorkerState, ...]:
    """The fewest of these workers whose end makes room; none if all of them would not."""
    leaving: list[WorkerState] = []
    if need.gpus and state.machine.gpus and _free_gpus(state, need) is None:
        devices = []  # for each device that could be freed: who would have to go
        for gpu, free in enumerate(state.gpu_free):
            going: list[WorkerState] = []
            for worker in (w for w in idle if gpu in w.gpus):
                if free < min(1.0, need.gpus) - 1e-6:
                    going.append(worker)
                    free += worker.gpu_share
            if free >= min(1.0, need.gpus) - 1e-6:
                devices.append(going)
        if len(devices) < _gpu_count(state, need):
            return ()
        devices.sort(key=len)
        leaving = list({w.id: w for going in devices[:_gpu_count(state, need)] for w in going}.values())
    for worker in idle:
        if _memory_free(state, need, tuple(leaving)):
            break
        if worker not in leaving and _resources(state, worker).memory_gb:
            leaving.append(worker)
    return tuple(leaving) if _memory_free(state, need, tuple(leaving)) else ()
