"""The memory of this process and all below it, while something runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

WATCH_S = 0.1


class Memory:
    """The most memory that this process and those below it had together: shared pages are counted once."""

    def __enter__(self) -> Memory:
        self.most, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(WATCH_S):
            self.most = max(self.most, sum(map(_memory_of, _processes_below(os.getpid()))))


def _processes_below(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    found = [pid]
    while more := [child for child, parent in parents.items() if parent in found and child not in found]:
        found += more
    return found


def _memory_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
