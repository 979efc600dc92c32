"""What is left to do of a unit: from the keys of the steps that were done with it, and the present plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from curator.pipeline.plan import Phase, Target

Need = frozenset[Target] | Literal[True] | None  # the steps to run; True for nothing, None for everything


def needed(phase: Phase, source: int, done: Mapping[str, str]) -> Need:
    """The steps that are not done with their present key, and all that lead to one. `done`: keys by step.

    An operator runs as a whole or not at all; of the sinks each for itself. Where all ways lead through
    checkpoints that were kept, it begins there, and the operator that reads them is among the steps. For the
    sake of a checkpoint alone nothing is done.
    """
    found = _stale(phase, source, done, whole=True)
    if found and phase.replay is not None:
        behind = _stale(phase, source, done, whole=False)
        if Target(source) not in behind:
            found = behind | {Target(phase.replay)}
    return frozenset(found) if found else True


def _stale(phase: Phase, source: int, done: Mapping[str, str], whole: bool) -> set[Target]:
    """`whole`: from the source on; else from the last checkpoints that were kept."""
    reached = {source}
    for operator in phase.operators:
        if operator.index in reached:
            reached |= operator.consumers
    found: set[Target] = set()
    for operator in reversed([o for o in phase.operators if o.index in reached]):
        stale = {at for at, step in enumerate(operator.steps)
                 if done.get(step.name) != step.key and not step.checkpoint}
        keeps: set[Target] = set()  # checkpoints that it would write
        for (at, _), targets in operator.routes.items():
            to = phase.checkpoint(targets)
            new = {to[0]} if to is not None and done.get(to[1].name) != to[1].key else set()
            if not found.isdisjoint(targets) and (whole or new or to is None):
                stale.add(at)
            keeps |= new
        if stale and operator.kind != "sink":
            stale = set(range(len(operator.steps)))
            found |= keeps
        found |= {Target(operator.index, at) for at in stale}
    return found


def begins_behind(phase: Phase, need: Need) -> bool:
    """Whether it begins at checkpoints."""
    return isinstance(need, frozenset) and phase.replay is not None and Target(phase.replay) in need


def taken_up(phase: Phase, need: Need) -> frozenset[str]:
    """The checkpoints whose rows are read: those that lead to a step to be done, from none that is."""
    steps = need if isinstance(need, frozenset) and begins_behind(phase, need) else frozenset()
    found = set()
    for operator in phase.operators if steps else ():
        for targets in operator.routes.values() if Target(operator.index) not in steps else ():
            if (to := phase.checkpoint(targets)) and not steps.isdisjoint(targets):
                found.add(to[1].name)
    return frozenset(found)


def kept(phase: Phase, need: Need) -> frozenset[str]:
    """The steps whose results stay."""
    if need is None:
        return frozenset()
    return frozenset(step.name for operator in phase.operators for at, step in enumerate(operator.steps)
                     if need is True or Target(operator.index, at) not in need)
