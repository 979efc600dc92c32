"""The lines of a ledger, in few files, however often some are added; each is written once, atomically.

Lines are added as a new file. When there are `MERGE` files of about a size at the end they are made one, as
digits carry when one counts, so a line is written anew a few times, however many there are. Who dies before
the old files are deleted leaves the same lines twice, and of a unit's lines the one in the newest file
counts.

A unit's line begins with `{"unit": key`. Last in a file is a `State`; that of the newest file counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from curator.api.counts import Counts
from curator.api.errors import CuratorError
from curator.io.files.folder import Folder

MERGE = 8
# files below this are of one size; then each `MERGE` times as many bytes are another,
SMALL_BYTES = 256 << 10
LARGE_BYTES = 16 << 20  # and files from this on are left alone: nobody waits long for a merge
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
    """What a stage did with a unit. `counts`: JSON of `Counts`. `sidecar`: the name of its snapshot's file.

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

    `depends`: keys of units that must be there, else this one is done again; `rests`: so it is, too, if fewer
    than so many other units taught a stage anything.
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


class State(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """What is true of all units together when a file is written.

    `elapsed`: how many seconds each attempt has worked. `totals`: the counts of the `done` finished units by
    stage, so that nobody has to read a million of them; with another number of units they are counted anew.
    `whole`: the attempt has ended, and left no file unnamed. `remove`: files to be deleted when the next
    attempt begins: results that were cleared, and what shows why a run stopped early; so is `replaced`, files
    whose rows are in others now. `reset`: older files count no more.
    """

    elapsed: dict[int, float] = {}
    totals: dict[str, dict[str, Any]] = {}
    done: int = 0
    whole: bool = False
    remove: list[str] = []
    replaced: list[str] = []
    reset: bool = False


to_state = msgspec.json.Decoder(State).decode


def counts_in(record: Record) -> dict[str, Counts]:
    return {name: counts_of(stage) for name, stage in record.stages.items()}


def counts_of(stage: StageRecord) -> Counts:
    return Counts.from_json(msgspec.json.decode(stage.counts))


def unit_of(line: bytes) -> str:
    """The key that a unit's line begins with."""
    return line.split(b'"', 4)[3].decode()


def is_marked(line: bytes) -> bool:
    """Whether the unit of a line is to be done again. (No string holds a bare quotation mark.)"""
    return b'"redo":true' in line[:64]


def add_counts(total: dict[str, Counts], more: dict[str, Counts]) -> None:
    for name, counts in more.items():
        total.setdefault(name, Counts()).add(counts)


class LedgerFiles:
    """The lines of a folder.

    Raises (on reading):
        CuratorError: a file is damaged, or of a later version.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        # in the order of writing
        self.sizes = dict.fromkeys(sorted(n for n in folder.names() if n.endswith(".jsonl")), 0)
        self.states: list[State] = []
        # what was read for single lines last: file, from where, bytes
        self._near: list[tuple[str, int, bytes]] = []

    @property
    def small(self) -> int:
        """How many files merges would still make fewer."""
        return sum(size < LARGE_BYTES for size in self.sizes.values())

    def units(self, names: Collection[str] | None = None) -> Iterator[tuple[str, int, bytes]]:
        """The line of each unit that counts, with its file and place there; the newest file comes first.

        `names`: in these files only. When all is read, `states` has those of the files, the newest first.
        """
        self.states = []
        seen: set[str] = set()
        for name in reversed(self.sizes if names is None else [n for n in self.sizes if n in names]):
            line = b""
            try:
                for offset, line in self._lines(name):
                    if not line.startswith(UNIT):
                        self.states.append(to_state(line))
                    elif (unit := unit_of(line)) not in seen:
                        seen.add(unit)
                        yield name, offset, line
            except (ValueError, IndexError, msgspec.MsgspecError) as error:
                raise self.damaged(name, line, error) from error
            if any(state.reset for state in self.states):
                return

    def damaged(self, name: str, line: bytes, error: Exception) -> CuratorError:
        return CuratorError(f"{self.folder.path_of(name)} is damaged, or of another version ({error!r} at "
                            f"{line[:80]!r}). Remove this file: the units that it names will be done again")

    def _lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        offset, rest = 0, b""
        with self.folder.open_file(name) as file:
            while chunk := file.read(CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield offset, line
                    offset += len(line) + 1
        if rest:
            raise ValueError("it ends in the middle of a line")
        self.sizes[name] = offset

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

    def add(self, lines: Iterable[bytes], state: Callable[[], State]) -> str:
        """Write lines, as one new file; its name. `state`: asked for behind the last line."""
        name = f"{int(next(reversed(self.sizes)).split('.')[0]) + 1 if self.sizes else 1:08d}.jsonl"
        with self.folder.open_file(name, "wb") as file:
            for line in lines:
                file.write(line + b"\n")
            file.write(to_line(state()) + b"\n")
            size = file.tell()
        self.sizes[name] = size
        return name

    def replace(self, old: Sequence[str], lines: Iterable[bytes], state: Callable[[], State]) -> None:
        """Write lines that stand for those of files that then go."""
        self.add(lines, state)
        self.folder.delete(old)
        for name in old:
            del self.sizes[name]

    def merge(self, state: State, behind: str = "") -> None:
        """Make few files of many. `state`: of the newest. `behind`: of files after this one."""
        while names := self._alike(behind):
            self.replace(names, (line for _, _, line in self.units(names)), lambda: state)

    def _alike(self, behind: str) -> list[str]:
        """The last files that are no larger than the last one, by size as merges know it, if enough.

        Files that a reset hides were not read, so they have no size, and go with the file that says it.
        """
        last = self.sizes[next(reversed(self.sizes))] if self.sizes else LARGE_BYTES
        if last >= LARGE_BYTES:
            return []
        found: list[str] = []
        for name in reversed(self.sizes):
            if name <= behind or _rank(self.sizes[name]) > _rank(last):
                break
            found.insert(0, name)
        return found if len(found) >= MERGE else []


def _rank(size: int) -> int:
    rank = 0
    while size >= SMALL_BYTES * MERGE ** rank:
        rank += 1
    return rank
