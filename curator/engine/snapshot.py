"""The state of the scheduler in numbers, as plain values, for who watches a run; and in words."""

from __future__ import annotations

from typing import Any

from curator.engine.state import State


def snapshot_of(state: State) -> dict[str, Any]:
    """`operators` and `nodes`, each a dict; `live_bytes` of batches on their way, and the `budget_bytes` for
    these."""
    operators = []
    for o in state.operators:
        working = sum(w.ready and w.working for w in o.workers.values())
        starting = sum(not w.ready for w in o.workers.values())
        operators.append({
            "name": o.plan.name, "queue_rows": o.rows, "queue_limit": o.limit,
            "queue_bytes": sum(q.nbytes for q in o.waiting.values()) + sum(g.nbytes for g in o.groups),
            "workers": {"starting": starting, "working": working,
                        "idle": len(o.workers) - working - starting},
            "rows_per_s": 1 / o.s_per_row if o.s_per_row else 0.0, "setup_s": o.setup_s, "calls": o.calls,
            "busy_s": o.busy_s})
    nodes = [{"node": str(n.number), "cores": n.node.cpus, "cores_used": n.cpus_used, "gpus": n.node.gpus,
              "gpus_used": n.node.gpus - sum(n.gpu_free)} for n in state.nodes.values()]
    budget = sum(n.node.budget_bytes for n in state.nodes.values())
    return {"operators": operators, "nodes": nodes, "live_bytes": state.live_bytes, "budget_bytes": budget}


def running_s(state: State, now: float) -> float:
    """Seconds that calls have worked for which they have not answered."""
    heads = (worker.calls[0] for worker in state.workers.values() if worker.calls)
    return sum(now - call.began for call in heads if not call.paused)


def story(state: State) -> str:
    """The state in a few lines, for a person."""
    lines = [", ".join(f"{n} units {stage}" for stage, n in state.units.stages().items())]
    for o in state.operators:
        working = sum(w.working for w in o.workers.values())
        lines.append(f"{o.plan.name}: {o.rows} rows wait, {working} of {len(o.workers)} workers work, load "
                     f"{o.load:.0f}")
    return "\n".join(lines)
