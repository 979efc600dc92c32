"""What the control groups of this process allow it, on Linux: containers, batch systems and services set limits there.

A process is in one group of each hierarchy, and the limits of all groups above it hold too, whoever set them: the smallest one
counts. `/proc/self/cgroup` names the groups, and `/proc/self/mountinfo` where they can be read. Both versions, also beside each
other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# The files with limits, by controller: version 2, then version 1. `memory.high` kills nobody, but who is above it is slowed down.
MEMORY = ("memory.max", "memory.high"), ("memory.limit_in_bytes",)
CPU = ("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")


@dataclass(frozen=True)
class Limits:
    """None where there is no limit. `cpus`: cores' worth of time, less than 1 too."""

    cpus: float | None = None
    memory_bytes: int | None = None


def limits(root: Path = Path("/")) -> Limits:
    """The limits of this process. `root`: where the file system begins."""
    memory = [n for group in _groups(root, "memory", *MEMORY) for n in group if n is not None and n > 0]
    return Limits(min(_quotas(root), default=None), min(memory, default=None))


def _quotas(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu", *CPU):
        if len(group) == 2 and group[0] is not None and group[1] and group[0] > 0:
            yield group[0] / group[1]


def _groups(root: Path, controller: str, version_2: tuple[str, ...], version_1: tuple[str, ...]) -> Iterator[list[int | None]]:
    """The numbers in a controller's files of limits, of each group from ours up to the highest that can be seen."""
    inside = _memberships(root)
    for mounted, at, controllers in _mounts(root):
        of = "" if controllers is None else controller
        if of in inside and (controllers is None or controller in controllers):
            own = _below(inside[of], mounted)
            for group in (own, *own.parents):
                folder = root / at.lstrip("/") / group
                yield [n for name in (version_2 if controllers is None else version_1) for n in _numbers(folder / name)]


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


def _mounts(root: Path) -> Iterator[tuple[str, str, list[str] | None]]:
    """Hierarchies: the group that is mounted, where, and the controllers if it is of version 1, else None."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if len(before) > 4 and len(after) > 2 and after[0] in ("cgroup", "cgroup2"):
            yield _plain(before[3]), _plain(before[4]), None if after[0] == "cgroup2" else after[2].split(",")


def _plain(path: str) -> str:
    """A path of mountinfo, where spaces and the like are octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


def _below(group: str, mounted: str) -> PurePosixPath:
    """A group's path below a mount of `mounted`: a container often sees its own group only, and that as the highest."""
    path, top = PurePosixPath(group.lstrip("/")), PurePosixPath(mounted.lstrip("/"))
    return path.relative_to(top) if path.is_relative_to(top) and ".." not in path.parts else PurePosixPath()


def _numbers(path: Path) -> list[int | None]:
    """None for a word that is no number: "max". [] if the file is not there, or not for us."""
    return [int(w) if w.lstrip("-").isdigit() else None for w in _text(path).split()]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
