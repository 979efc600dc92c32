"""From files to units: small files are grouped, big ones are split, and a changed folder keeps most of its
units."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise

from curator.api.stage import SourceRange, Unit
from curator.io.files.folder import FileInfo

TARGET_BYTES = 64 << 20
# what opening one more file costs, as bytes read: a group has at most some 2,000 files
_FILE_COST_BYTES = 64 << 10


def plan_units(files: Sequence[FileInfo], target_bytes: int = TARGET_BYTES,
               splittable: Callable[[FileInfo], bool] = lambda file: False) -> list[Unit]:
    """Units of about `target_bytes`, in the order of their first files.

    A file for which `splittable` is true, and which is bigger, becomes byte ranges. Whether a group of small
    files ends with a file follows from a hash of that file's name alone, as in content-defined chunking: a
    new or changed file changes the units next to it and no others. A group has `target_bytes` on average and
    at most twice that.
    """
    if target_bytes < 1:
        raise ValueError(f"target_bytes must be 1 or more, got {target_bytes}")
    units: list[Unit] = []
    group: list[SourceRange] = []
    weight = 0

    def finish() -> None:
        nonlocal group, weight
        if group:
            units.append(Unit(tuple(group)))
        group, weight = [], 0

    for file in files:
        if file.size_bytes >= target_bytes:
            ranges = _ranges(file, target_bytes) if splittable(file) else [_part(file)]
            units += [Unit((part,)) for part in ranges]
            continue
        cost = file.size_bytes + min(_FILE_COST_BYTES, target_bytes // 16)
        if weight + cost > 2 * target_bytes:
            finish()
        group.append(_part(file))
        weight += cost
        if _chance(file.uri) < cost / target_bytes:
            finish()
    finish()
    order = {file.uri: i for i, file in enumerate(files)}
    return sorted(units, key=lambda unit: order[unit.parts[0].uri])


def _part(file: FileInfo, start: int = 0, stop: int | None = None) -> SourceRange:
    return SourceRange(uri=file.uri, size_bytes=file.size_bytes, version=file.version, start=start, stop=stop)


def _ranges(file: FileInfo, target_bytes: int) -> list[SourceRange]:
    """Ranges of `target_bytes`; the last one may be half as big again, so that none is tiny."""
    count = max(1, round(file.size_bytes / target_bytes))
    if count == 1:
        return [_part(file)]
    cuts = [i * target_bytes for i in range(count)] + [file.size_bytes]
    return [_part(file, start, stop) for start, stop in pairwise(cuts)]


def _chance(name: str) -> float:
    """A number in [0, 1) that looks random but belongs to the name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
