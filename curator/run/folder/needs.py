"""What is left to do of a unit: from the keys of the steps that were done with it, and the present plan."""

from __future__ import annotations

from collections.abc import Mapping

from curator.pipeline.plan import Phase, Target

Need = frozenset[Target] | bool | None  # the steps to run; True for nothing, None for everything


def needed(phase: Phase, source: int, done: Mapping[str, str]) -> Need:
    """The steps that are not done with their present key, and all that lead to one. `done`: keys by step.

    An operator runs as a whole or not at all; of the sinks each for itself.
    """
    reached = {source}
    for operator in phase.operators:
        if operator.index in reached:
            reached |= phase.consumers(operator.index)
    found: set[Target] = set()
    for operator in reversed([o for o in phase.operators if o.index in reached]):
        stale = {at for at, step in enumerate(operator.steps) if done.get(step.name) != step.key}
        stale |= {at for (at, _), targets in operator.routes.items() if not found.isdisjoint(targets)}
        if stale and operator.kind != "sink":
            stale = set(range(len(operator.steps)))
        found |= {Target(operator.index, at) for at in stale}
    return frozenset(found) if found else True


def kept(phase: Phase, need: Need) -> frozenset[str]:
    """The steps whose results stay."""
    if need is None:
        return frozenset()
    return frozenset(step.name for operator in phase.operators for at, step in enumerate(operator.steps)
                     if need is True or Target(operator.index, at) not in need)
