"""How far the source of a phase is read: in bytes, as a share, and how long its last unit takes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from heapq import nlargest
from itertools import accumulate

from curator.engine.parts import UnitState
from curator.engine.state import State

LARGEST = 16  # units that are looked at for the end of a run


class Reading:
    """`sizes`: bytes of each unit; the first `todo` are to be done, the others were done before. It asks the
    state of the scheduler, and walks over units being read only. Without one (None: nothing is to do, or
    others schedule) it knows finished units only."""

    def __init__(self, sizes: Sequence[int], todo: int) -> None:
        self.sizes, self.todo = sizes, todo
        self.total = sum(sizes)
        self.before = self.done = sum(sizes[todo:])  # of units that were done before, and of finished ones
        self.unread = 0, 0  # so many units that stay unread, as they were last counted, and their bytes
        self.begins = array("q", [0, *accumulate(sizes)])  # bytes before each unit
        # those that may be under way when all others are done
        self.largest = nlargest(LARGEST, range(todo), key=sizes.__getitem__)

    def bytes(self, state: State | None) -> dict[str, int]:
        """Bytes of finished units (`bytes_done`), with those under way (`bytes_read`), and in all."""
        if state is not None and len(unread := state.units.unread) != self.unread[0]:
            self.unread = len(unread), sum(self.sizes[unit] for unit in unread)
        done = self.done + self.unread[1]
        read = done if state is None else done + state.read_bytes
        return {"bytes_done": done, "bytes_read": read, "bytes_total": self.total}

    def units(self, state: State | None) -> list[UnitState]:
        """Those that are being read."""
        if state is None:
            return []
        return [state.units[call.units[0][0]] for call in state.calls.values() if call.kind == "read"]

    def share(self, state: State | None) -> float:
        """The share of the source that is read: of its bytes; where a source does not tell how far it is, the
        records so far of those that finished units let expect; without any bytes, of units."""
        if state is None:
            return self.done / self.total if self.total else 1.0
        n = self.bytes(state)
        if not self.total:
            return 1 - state.open / len(self.sizes) if self.sizes else 1.0
        reading = self.units(state)
        if reading and n["bytes_done"] and not any(u.read_bytes for u in reading):
            under_way = sum(c.rows_in for (operator, _), c in state.under_way.items()
                            if state.operators[operator].plan.kind == "source")
            finished = state.read - under_way
            if finished > 0:
                return min(1.0, state.read * n["bytes_done"] / (finished * self.total))
        return n["bytes_read"] / self.total

    def longest_s(self, state: State, read_s: float, left_s: float) -> float:
        """How long it takes until the last unit is read, when one worker reads it, who would take `read_s`
        for all. Those that wait are taken to begin one after the other in the time that is left."""
        if read_s <= 0 or not self.total:
            return 0.0
        bytes_per_s = self.total / read_s
        longest = max((self.sizes[u.index] - u.read_bytes for u in self.units(state)), default=0)
        longest_s = longest / bytes_per_s
        for queue in filter(None, state.waiting.values()):
            first = queue[0]
            unread, source = self.begins[self.todo] - self.begins[first], state.units.given[first][0]
            for index in self.largest:
                if index >= first and state.units.given[index][0] == source and unread:
                    begins_s = left_s * (self.begins[index] - self.begins[first]) / unread
                    longest_s = max(longest_s, begins_s + self.sizes[index] / bytes_per_s)
        return longest_s

