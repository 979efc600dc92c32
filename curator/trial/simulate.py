"""How long a phase of a run takes: the scheduler of the engine, with workers in virtual time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from curator.api.errors import CuratorError
from curator.api.resources import Node
from curator.pipeline.plan import Operator
from curator.trial.cluster import Cost, PacedCluster

WORK_S = 2_000.0  # seconds of work that are simulated whole; what a longer phase takes follows from two such
CORE_S = 10.0  # or so many for each core there is: most of it must not be the start
UNITS = 64  # of so many and more a shorter phase has fewer; of less, smaller ones


def phase_s(operators: Sequence[Operator], costs: Mapping[int, Cost], units: Sequence[tuple[int, float]],
            nodes: Mapping[int, Node], row_bytes: float = 1000.0) -> float:
    """Seconds from the start of the first worker to the last record.

    `units`: for each the operator that reads it, and its rows. A phase of more work than can be simulated
    grows by a straight line: two shorter ones of the same shape tell what starting and ending take, and what
    more work does.

    Raises:
        CuratorError: it would not come to an end on these nodes.
    """
    cores = sum(n.cpus for n in nodes.values())
    work, core_s = _work(operators, costs, units)
    most = max(WORK_S, CORE_S * cores)
    if work <= most:
        return _simulated_s(operators, costs, units, nodes, row_bytes)
    long, short = (_shortened(units, most * part / work) for part in (1.0, 0.5))
    long_s, short_s = (_simulated_s(operators, costs, some, nodes, row_bytes) for some in (long, short))
    (more, more_core_s), (half, _) = (_work(operators, costs, some) for some in (long, short))
    grows = (long_s - short_s) * (work - more) / (more - half)
    return long_s + max(grows, (core_s - more_core_s) / cores)


def _work(operators: Sequence[Operator], costs: Mapping[int, Cost],
          units: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """Seconds of work of all operators, and of cores; they come in the order in which rows go."""
    rows = defaultdict[int, float](float)
    for source, n in units:
        rows[source] += n
    total = core_s = 0.0
    for operator in operators:
        cost = costs.get(operator.index, Cost())
        total += rows[operator.index] * cost.row_s
        core_s += rows[operator.index] * cost.row_s * operator.resources.cpus
        for consumer, share in cost.sent.items():
            rows[consumer] += rows[operator.index] * share
    return total, core_s


def _shortened(units: Sequence[tuple[int, float]], part: float) -> list[tuple[int, float]]:
    """This part of the units; where they are few, this part of each."""
    wanted = max(min(UNITS, len(units)), round(len(units) * part))
    chosen = [units[at * len(units) // wanted] for at in range(wanted)]
    less = part * sum(n for _, n in units) / max(1e-9, sum(n for _, n in chosen))
    return [(source, n * less) for source, n in chosen]


def _simulated_s(operators: Sequence[Operator], costs: Mapping[int, Cost], units: Sequence[tuple[int, float]],
                 nodes: Mapping[int, Node], row_bytes: float) -> float:
    cluster = PacedCluster(operators, costs, units, nodes, row_bytes)
    cluster.run()
    stopped = cluster.scheduler.stopped
    if stopped or not cluster.scheduler.finished:
        why = stopped.message if stopped else "nothing more can start"
        raise CuratorError(f"on these nodes the run would not come to its end: {why}")
    return cluster.now
