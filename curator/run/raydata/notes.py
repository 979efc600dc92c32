"""What the actors of a phase tell each other, and what outlives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from curator.api.errors import CuratorError


class Notes:
    """An actor on the driver's node. `short_circuits`: stateful operators without which nothing is read."""

    def __init__(self, short_circuits: frozenset[int] = frozenset()) -> None:
        self.stopping, self.short_circuits = False, short_circuits
        self.enough: frozenset[int] | None = None  # the units that a limit was reached with
        self.begun: dict[str, tuple[int, str, int]] = {}
        self.learnt: dict[int, dict[int, str | None]] = {}
        self.once: dict[tuple[str, str], tuple[str, str | None]] = {}  # by node: who, and how it ended

    def stop(self) -> None:
        """The run is to stop."""
        self.stopping = True

    def skips(self, units: Sequence[int]) -> set[int]:
        """Those that need not be read: the run is to stop, or its limit is reached without them."""
        if self.stopping:
            return set(units)
        return set() if self.enough is None else set(units) - self.enough

    def exhausted(self, operator: int, units: Sequence[int]) -> None:
        """A stage wants no more than these units gave."""
        if operator in self.short_circuits and self.enough is None:
            self.enough = frozenset(units)

    def begin(self, what: str) -> tuple[int, str, int]:
        """Something begins that may kill: how often it did before, what was said of that, at which step."""
        before = self.begun.get(what, (0, "", 0))
        self.begun[what] = (before[0] + 1, "", 0)
        return before

    def at(self, what: str, step: int, said: str = "") -> None:
        """What has begun is at this step."""
        if what in self.begun:
            self.begun[what] = (self.begun[what][0], said, step)

    def end(self, what: str) -> None:
        """It has not killed."""
        self.begun.pop(what, None)

    def teach(self, operator: int, sidecars: Mapping[int, str | None]) -> None:
        """Units have been through a stateful stage, and what they taught lies there."""
        self.learnt.setdefault(operator, {}).update(sidecars)

    def taught(self, operator: int) -> dict[int, str | None]:
        """The units that have."""
        return self.learnt.get(operator, {})

    def claim(self, name: str, who: str, node: str) -> bool | None:
        """Whether to do what is done once on a node; None: another is at it. Raises what that raised."""
        owner, ended = self.once.setdefault((node, name), (who, None))
        if ended:
            raise CuratorError(ended)
        return False if ended == "" else True if owner == who else None

    def died(self, who: str) -> None:
        """It may be started again on another node: what it was at, whoever waits for it does."""
        self.once = {at: (by, ended) for at, (by, ended) in self.once.items()
                     if by != who or ended is not None}

    def did(self, name: str, node: str, error: str | None) -> None:
        """It is done, or failed."""
        self.once[node, name] = self.once[node, name][0], error or ""
