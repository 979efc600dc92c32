"""What limits a run at best: the allocation of nodes that would suit it, if it goes as the run before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from curator.api.resources import Node
from curator.engine.balance.allocation import Allocation, Demand, allocate, in_words
from curator.engine.placement import Profile
from curator.pipeline.plan import Operator

TRUST = 0.2  # of a rate that another run has measured: inputs and machines differ


def foresee(operators: Sequence[Operator], profiles: Mapping[int, Profile], nodes: Mapping[int, Node]) -> str:
    """What will limit a run on these nodes, in words, if it goes as the one before; empty if too little is
    known."""
    best = allocation(operators, profiles, nodes)
    return (f"{in_words(best, [o.name for o in operators])}; at best {best.rate:,.0f} records/s"
            if best is not None and best.slowest >= 0 else "")


def allocation(operators: Sequence[Operator], profiles: Mapping[int, Profile],
               nodes: Mapping[int, Node]) -> Allocation | None:
    """The best allocation of these nodes, if a run goes as the one before; None if too little is known."""
    if any(o.index not in profiles for o in operators if o.kind != "sink" and not o.replays):
        return None
    rows = [0.0] * len(operators)
    demands = []
    for operator in operators:
        known = profiles.get(operator.index)
        rows[operator.index] = 1.0 if operator.kind == "source" else rows[operator.index]
        for consumer, share in known.sent.items() if known else ():
            rows[consumer] += rows[operator.index] * share
        rate = known.rows / max(known.busy_s, 1e-9) if known else 0.0
        most = 1 if operator.kind == "stateful" else None
        trust = TRUST if known else 1.0
        demands.append(Demand(operator.resources, rate, rows[operator.index], trust, most,
                              needed=known is not None))
    return allocate(demands, nodes)
