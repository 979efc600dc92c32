"""The lines of a ledger, in few files, however often some are added; each file is written once and atomically.

Lines are added as a new file. When there are `MERGE` files of about a size at the end they are made one, as digits
carry when one counts, so a line is written anew a few times, however many there are. Who dies before the old files are
deleted leaves the same lines twice, and of a unit's lines the one in the newest file counts.

A unit's line begins with `{"unit": key`. Behind some of them stands the sum of their counts, `{"sum": {name: counts}}`:
of the units before it in this file, back to the sum before, without those marked "redo". So nobody has to read a
million counts to know what they add up to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from curator.api.counts import Counts
from curator.api.errors import CuratorError
from curator.io.files.folder import Folder

MERGE = 8
SMALL_BYTES = 256 << 10  # files below this are of one size; then each `MERGE` times as many bytes are another,
LARGE_BYTES = 16 << 20  # and files from this on are left alone: nobody waits long for a merge
SUM_UNITS = 1000  # a sum stands behind about so many units: to take a unit away is to sum up so many others
CHUNK = 4 << 20  # bytes that are read at a time
NEAR = 1 << 20  # bytes that are read for a single line: the next one asked for is often behind it
UNIT = b'{"unit"'


NO_COUNTS = msgspec.Raw(b"{}")


class FileRecord(msgspec.Struct, array_like=True, gc=False):
    """A file of a finished unit, relative to the run's folder where it lies below that."""

    path: str
    rows: int
    size_bytes: int


class StageRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """What a stage did with a unit. `counts`: JSON, as `Counts.to_json` has it. `sidecar`: the name of its snapshot's file.

    `replay`: all is to be done again but what the sidecar tells.
    """

    key: str
    counts: msgspec.Raw = NO_COUNTS
    files: list[FileRecord] = []
    sidecar: str | None = None
    replay: bool = False

    def named(self) -> list[str]:
        """All files, the sidecar too."""
        return [f.path for f in self.files] + ([f"_run/state/{self.sidecar}"] if self.sidecar else [])


class Record(msgspec.Struct, omit_defaults=True, kw_only=True, gc=False):
    """The line of a finished unit, or with `redo` what is still true of one that an edit does again.

    `depends`: keys of units that must be there, else this one is done again; `rests`: so it is, too, if fewer than so
    many other units taught a stage anything.
    """

    unit: str
    redo: bool = False
    label: str
    uris: tuple[str, ...]
    stages: dict[str, StageRecord]
    depends: tuple[str, ...]
    rests: dict[str, int] = {}


to_record = msgspec.json.Decoder(Record).decode
to_line = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Block:
    """Lines of a file up to a sum.

    `units`: where each line begins, and the line. `sums`: counts by stage, None if there are none. `others`: lines that
    are about no unit.
    """

    units: list[tuple[int, bytes]] = field(default_factory=list)
    sums: dict[str, dict] | None = None
    others: list[dict[str, Any]] = field(default_factory=list)

    def total(self, lines: Iterable[bytes], whole: bool) -> dict[str, Counts]:
        """What the unmarked ones of these lines add up to. `whole`: they are those of the block."""
        if whole and self.sums is not None:
            return {name: Counts.from_json(counts) for name, counts in self.sums.items()}
        total: dict[str, Counts] = {}
        for record in (to_record(line) for line in lines if not is_marked(line)):
            add_counts(total, {n: counts_of(s) for n, s in record.stages.items()})
        return total


def counts_of(stage: StageRecord) -> Counts:
    return Counts.from_json(msgspec.json.decode(stage.counts))


def unit_of(line: bytes) -> str:
    """The key that a unit's line begins with."""
    return line.split(b'"', 4)[3].decode()


def is_marked(line: bytes) -> bool:
    """Whether the unit of a line is to be done again, in part or as a whole. (No string holds a bare quotation mark.)"""
    return b'"redo":true' in line[:64]


def add_counts(total: dict[str, Counts], more: dict[str, Counts]) -> None:
    for name, counts in more.items():
        total.setdefault(name, Counts()).add(counts)


def sum_line(total: dict[str, Counts]) -> bytes:
    return to_line({"sum": {name: counts.to_json() for name, counts in total.items()}})


class LedgerFiles:
    """The lines of a folder.

    Raises (on reading):
        CuratorError: a file is damaged, or of a later version.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.sizes = dict.fromkeys(sorted(n for n in folder.names() if n.endswith(".jsonl")), 0)  # in the order of writing
        self._near: list[tuple[str, int, bytes]] = []  # what was read for single lines last: file, from where, bytes

    @property
    def small(self) -> int:
        """How many files merges would still make fewer."""
        return sum(size < LARGE_BYTES for size in self.sizes.values())

    # -- reading ------------------------------------------------------------------------------------------------

    def scan(self, names: Collection[str] | None = None) -> Iterator[tuple[str, Block]]:
        """All blocks, the newest file first: of a unit, the line that comes first counts. `names`: in these files only."""
        for name in reversed(self.sizes if names is None else [n for n in self.sizes if n in names]):
            last = False
            for block in self._blocks(name):
                last = last or any("reset" in line for line in block.others)
                yield name, block
            if last:
                return

    def _blocks(self, name: str) -> Iterator[Block]:
        block, line = Block(), b""
        try:
            for offset, line in self._lines(name):
                if line.startswith(UNIT):
                    block.units.append((offset, line))
                    continue
                other = msgspec.json.decode(line)
                if "sum" not in other:
                    block.others.append(other)
                    continue
                block.sums = other["sum"]
                yield block
                block = Block()
            yield block
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, msgspec.MsgspecError) as error:
            raise self.damaged(name, line, error) from error

    def damaged(self, name: str, line: bytes, error: Exception) -> CuratorError:
        return CuratorError(f"{self.folder.path_of(name)} is damaged, or of another version ({error!r} at {line[:80]!r}). "
                            "Remove this file: the units that it names will be done again")

    def _lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        offset, rest = 0, b""
        with self.folder.open_file(name) as file:
            while chunk := file.read(CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield offset, line
                    offset += len(line) + 1
        if rest:
            yield offset, rest
        self.sizes[name] = offset + len(rest)

    def line_at(self, name: str, offset: int, size: int) -> bytes:
        """A single line."""
        for of, start, data in self._near:
            if of == name and start <= offset and offset + size <= start + len(data):
                return data[offset - start:offset - start + size]
        with self.folder.open_file(name) as file:
            file.seek(offset)
            data = file.read(max(size, NEAR))
        self._near = [*self._near[-3:], (name, offset, data)]
        return data[:size]

    # -- writing ------------------------------------------------------------------------------------------------

    def add(self, lines: Iterable[bytes]) -> str:
        """Write lines, as one new file; its name."""
        name = f"{int(next(reversed(self.sizes)).split('.')[0]) + 1 if self.sizes else 1:08d}.jsonl"
        with self.folder.open_file(name, "wb") as file:
            for line in lines:
                file.write(line + b"\n")
            size = file.tell()
        self.sizes[name] = size
        return name

    def replace(self, old: Sequence[str], lines: Iterable[bytes]) -> None:
        """Write lines that stand for those of files that then go."""
        self.add(lines)
        self.folder.delete(old)
        for name in old:
            del self.sizes[name]

    def merge(self, behind: str = "") -> None:
        """Make few files of many. `behind`: of those after this one."""
        while names := self._alike(behind):
            self.replace(names, self.copied(names))

    def _alike(self, behind: str) -> list[str]:
        """The files at the end that are no larger than the last one, by size as merges know it; if they are enough."""
        last = self.sizes[next(reversed(self.sizes))] if self.sizes else LARGE_BYTES
        if last >= LARGE_BYTES:
            return []
        found: list[str] = []
        for name in reversed(self.sizes):
            if name <= behind or _rank(self.sizes[name]) > _rank(last):
                break
            found.insert(0, name)
        return found if len(found) >= MERGE else []

    def copied(self, names: Collection[str] | None = None,
               edit: Callable[[str, bytes], bytes | None] | None = None, times: bool = True) -> Iterator[bytes]:
        """The lines that these files (None: all) add up to, with new sums, and with `times` how long attempts have worked.

        `edit` gives for a unit's line what takes its place: the line itself where nothing changes, None for nothing;
        what changes and counts no more it marks. Removals have been made by now: they are left out.
        """
        seen: set[str] = set()
        others: dict[str, list[dict[str, Any]]] = {}  # by file
        elapsed: dict[int, float] = {}
        ended: dict[str, Any] = {}  # true until the next attempt begins
        total: dict[str, Counts] = {}
        units, newest = 0, next(reversed(self.sizes), None)
        for name, block in self.scan(names):
            kept, whole = [], True
            for _, line in block.units:
                key, edited = unit_of(line), None
                if key not in seen:
                    seen.add(key)
                    edited = line if edit is None else edit(key, line)
                if edited is not None:
                    kept.append(edited)
                    yield edited
                whole = whole and (edited is line or (is_marked(line) and (edited is None or is_marked(edited))))
            units += len(kept)
            add_counts(total, block.total(kept, whole))
            for line in block.others:
                if "run" in line:
                    elapsed[line["run"]] = max(line["elapsed"], elapsed.get(line["run"], 0.0))
                    ended = ended or (line if name == newest and "whole" in line else {})
                elif "remove" not in line and ("evidence" not in line or name == newest):
                    others.setdefault(name, []).append(line)
            if units >= SUM_UNITS:
                yield sum_line(total)
                total, units = {}, 0
        yield sum_line(total)
        for run, seconds in sorted(elapsed.items()) if times else ():
            yield to_line({**(ended if ended.get("run") == run else {}), "run": run, "elapsed": seconds})
        for name in reversed(others):
            yield from map(to_line, others[name])


def _rank(size: int) -> int:
    rank = 0
    while size >= SMALL_BYTES * MERGE ** rank:
        rank += 1
    return rank
