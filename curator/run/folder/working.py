"""Whether a run works, has ended, or was killed: what its `stats.json` says, and who holds its folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from curator.api.format import duration
from curator.io.files.folder import Folder
from curator.run.folder.lock import holder


def as_it_stands(stats: Mapping[str, Any], out: Folder) -> dict[str, Any]:
    """The stats of a run with what has become of it since they were written: one that says it is running may have been killed."""
    if stats["status"] != "running":
        return dict(stats)
    alive = stats["alive"]
    age, who = duration(max(0.0, time.time() - alive["time"])), f"process {alive['pid']} on {alive['host']}"
    if holder(out) is not None:
        return {**stats, "message": f"{who} works on it; these numbers are {age} old"}
    told = f"{who} was killed, or its machine went, after it wrote these numbers {age} ago; the same command continues it"
    return {**stats, "status": "killed", "message": told}
