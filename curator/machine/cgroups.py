"""The limits that control groups of Linux set for this process: containers, batch systems and services use
them.

The limits of all groups above ours hold too, so the smallest one counts. `/proc/self/cgroup` names our
groups, and `/proc/self/mountinfo` says where they can be read. Both versions may be mounted side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path, PurePosixPath

# The files with limits, by controller and version. `memory.high` kills nobody, but who is above it is slowed
# down.
FILES = {("memory", 2): ("memory.max", "memory.high"), ("memory", 1): ("memory.limit_in_bytes",),
         ("cpu", 2): ("cpu.max",), ("cpu", 1): ("cpu.cfs_quota_us", "cpu.cfs_period_us")}


@dataclass(frozen=True)
class Limits:
    """None where there is no limit. `cpus`: cores' worth of time, less than 1 too."""

    cpus: float | None = None
    memory_bytes: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """The limits of this process. `root`: where the file system begins."""
    quotas = [group[0] / group[1] for group in _groups(root, "cpu") if len(group) == 2 and min(group) > 0
              and group[1] < inf]
    memory = [number for group in _groups(root, "memory") for number in group if number > 0]
    cpus, memory_bytes = min(quotas, default=inf), min(memory, default=inf)
    return Limits(None if cpus == inf else cpus, None if memory_bytes == inf else int(memory_bytes))


def _groups(root: Path, controller: str) -> Iterator[list[float]]:
    """The numbers in a controller's files, for each group from ours up to the highest that can be seen."""
    ours = _memberships(root)
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        mount, kind = left.split(" "), right.split(" ")
        if len(mount) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if kind[0] == "cgroup2" else 1
        name = controller if version == 1 else ""
        if name not in ours or (version == 1 and controller not in kind[2].split(",")):
            continue
        own = _below(ours[name], _plain(mount[3]))
        for group in (own, *own.parents):
            folder = root / _plain(mount[4]).lstrip("/") / group
            yield [number for file in FILES[controller, version] for number in _numbers(folder / file)]


def _memberships(root: Path) -> dict[str, str]:
    """The group of this process by controller of version 1; that of version 2 has the name "". """
    found: dict[str, str] = {}
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            if name or number == "0":
                found[name] = path
    return found


def _plain(path: str) -> str:
    """A path of mountinfo, where spaces and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def _below(group: str, mounted: str) -> PurePosixPath:
    """A group's path below a mount of `mounted`: a container often sees only its own group, as the highest
    one."""
    path, top = PurePosixPath(group.lstrip("/")), PurePosixPath(mounted.lstrip("/"))
    return path.relative_to(top) if path.is_relative_to(top) and ".." not in path.parts else PurePosixPath()


def _numbers(path: Path) -> list[float]:
    """A word that is no number ("max") is no limit. Nothing if the file is missing or not ours to read."""
    return [int(word) if word.lstrip("-").isdigit() else inf for word in _text(path).split()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
