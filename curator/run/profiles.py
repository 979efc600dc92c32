"""What a run has learnt of its operators, in `_run/profile.json`, for the next run and `curator plan`.

An operator is known by the fingerprints of its stages, so what is kept outlives renames and edits of other
stages, and is not used for a stage that changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from curator.engine.parts import OperatorState
from curator.engine.placement import Profile, profile_of
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator

NAME = "profile.json"


def load_profiles(folder: Folder, operators: Sequence[Operator]) -> dict[int, Profile]:
    """What earlier runs know of these operators, from a run's `_run`; nothing if the file is damaged."""
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
