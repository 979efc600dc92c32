"""What a run has learnt of its operators, kept in `_run/profile.json`: the next begins with it, `curator
plan` explains by it.

An operator is known by the fingerprints of its stages, so what is kept outlives renames and edits of other
stages, and is not used for a stage that changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from curator.api.resources import Node
from curator.engine.balance.allocation import Allocation, Demand, allocate, in_words
from curator.engine.parts import OperatorState
from curator.engine.placement import Profile, profile_of
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator

NAME = "profile.json"
TRUST = 0.2  # of a rate that another run has measured: inputs and machines differ


def load_profiles(folder: Folder, operators: Sequence[Operator]) -> dict[int, Profile]:
    """What earlier runs know of these operators; `folder` is a run's `_run`. A file that cannot be read is as
    good as none."""
    known, keys = _read(folder), _keys(operators)
    index_of = {key: index for index, key in keys.items()}
    found = {}
    for operator in operators:
        entry = known.get(keys[operator.index])
        if entry is not None:
            sent = {index_of[key]: share for key, share in entry["sent"].items() if key in index_of}
            found[operator.index] = Profile(entry["rows"], entry["busy_s"], entry["setup_s"], sent)
    return found


def save_profiles(folder: Folder, states: Sequence[OperatorState]) -> None:
    """Add what a run has learnt to what is known."""
    known, keys = _read(folder), _keys([s.plan for s in states])
    for state in states:
        learnt = profile_of(state)
        if learnt is not None:
            sent = {keys[index]: round(share, 6) for index, share in learnt.sent.items()}
            known[keys[state.plan.index]] = {"name": state.plan.name, "rows": round(learnt.rows, 3),
                                             "busy_s": round(learnt.busy_s, 6),
                                             "setup_s": round(learnt.setup_s, 3), "sent": sent}
    folder.write(NAME, json.dumps(known, indent=1).encode())


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


def _read(folder: Folder) -> dict[str, Any]:
    try:
        return json.loads(folder.read(NAME)) if folder.exists(NAME) else {}
    except ValueError:
        return {}


def _keys(operators: Sequence[Operator]) -> dict[int, str]:
    """What each operator is known by; equal ones are told apart by their order."""
    keys: dict[int, str] = {}
    for operator in operators:
        text = "\n".join(step.fingerprint or step.stage.fingerprint() for step in operator.steps
                         if not step.implicit)
        key = hashlib.blake2b(f"{operator.kind}\n{text}".encode(), digest_size=8).hexdigest()
        count = sum(k.partition("-")[0] == key for k in keys.values())
        keys[operator.index] = f"{key}-{count + 1}" if count else key
    return keys
