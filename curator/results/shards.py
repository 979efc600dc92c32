"""The shards of a run as they stand, before the run that gathers them."""

from __future__ import annotations

from collections import Counter

from curator.api.format import aligned, count, plural
from curator.io.files.folder import Folder
from curator.run.folder.shards import each_shard

HEAD = ("shard", "status", "units", "read", "written", "dropped", "failed", "unfinished")


def shard_lines(out: Folder) -> list[str]:
    """A line for each shard that was not gathered, and what is missing; [] if there are none."""
    found = list(each_shard(out))
    if not found:
        return []
    rows = [HEAD]
    for shard, stats in found:
        units, records = stats.get("units", {}), stats.get("records", {})
        rows.append((str(shard), stats.get("status", "began"),
                     f"{count(units.get('done', 0))} of {count(units.get('total', 0))}",
                     *(count(records.get(name, 0)) for name in ("in", *HEAD[4:]))))
    per = Counter(shard.count for shard, _ in found)
    missing = [f"{plural(of - there, 'shard')} of {of} never began" for of, there in per.items()
               if there < of]
    return [*aligned(rows, 2), *missing, "the same run without --shard gathers them"]
