"""The counts of a stage: where the rows that came in went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypeVar

from curator.api.summary import ColumnSummary

Number = TypeVar("Number", int, float)
VALUES_MAX = 1000  # of a column that is counted by value: those that come later are left out
ERRORS_MAX = 5  # of a stage in a unit: enough to say what goes wrong
WRITTEN = "written"  # the port on which a sink's counts carry what it wrote


@dataclass(frozen=True)
class MemoryShort:
    """Calls that ran out of memory and were made again with fewer rows. `rows`: the most that one of them
    had. `rows_max`: what a call may have since `at`, the time of the last change; None: as many as before."""

    calls: int
    rows: int
    rows_max: int | None
    at: float

    def __add__(self, other: MemoryShort) -> MemoryShort:
        last = max(self, other, key=lambda one: one.at)
        return MemoryShort(self.calls + other.calls, max(self.rows, other.rows), last.rows_max, last.at)


@dataclass
class Counts:
    """What went through one stage. `rows_in + made` always equals the rows that came out, on whatever way.

    `rows_in`: records taken in; for a source the records it read, good and bad. `made`: rows more than came
    in (children of an explode, a row sent to two ports, results of a reduction). `out`: rows by port, the
    side outputs aside; a sink's are on the port "written". `dropped`: rows by reason. `absorbed`: rows taken
    in for good. `busy_s`: seconds of work. `errors`: failed rows by error, the first `ERRORS_MAX` different
    ones. `columns`: what the columns that the stage added hold. `by_value`: of the columns in the stage's
    `count_by`, rows by value and port. `amounts`: sums of columns by what became of the rows (`in`, `out`,
    `dropped`, `duplicate`, `failed`) and their port or reason ("" where there is none). `extra`: numbers that
    the stage gave with its answers. `memory`: where it ran short. `inner`: of the stages that work inside
    this one, what became of the pieces of records that they are given.
    """

    rows_in: int = 0
    made: int = 0
    out: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    duplicate: int = 0
    failed: int = 0
    absorbed: int = 0
    busy_s: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    columns: dict[str, ColumnSummary] = field(default_factory=dict)
    by_value: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    amounts: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    extra: dict[str, int] = field(default_factory=dict)
    memory: MemoryShort | None = None
    inner: dict[str, Counts] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Take in the counts of another unit or attempt of the same stage."""
        self._add_numbers(other, 1)
        for port, rows in other.out.items():
            self.out[port] = self.out.get(port, 0) + rows
        # this and what follows: mostly there is none, and this is done for every call of a run
        if other.dropped:
            for reason, rows in other.dropped.items():
                self.dropped[reason] = self.dropped.get(reason, 0) + rows
        if other.errors:
            for error, rows in other.errors.items():
                if error in self.errors or len(self.errors) < ERRORS_MAX:
                    self.errors[error] = self.errors.get(error, 0) + rows
        if other.columns:
            for name, summary in other.columns.items():
                self.columns.setdefault(name, ColumnSummary()).merge(summary)
        if other.by_value:
            for column, values in other.by_value.items():
                for value, ports in values.items():
                    for port, rows in ports.items():
                        self.saw_value(column, value, port, rows)
        if other.amounts:
            for column, ways in other.amounts.items():
                for way, parts in ways.items():
                    for part, amount in parts.items():
                        self.saw_amount(column, way, part, amount)
        if other.extra:
            for name, number in other.extra.items():
                self.extra[name] = self.extra.get(name, 0) + number
        if other.memory:
            self.memory = self.memory + other.memory if self.memory else other.memory
        for name, inner in other.inner.items():
            self.inner.setdefault(name, Counts()).add(inner)

    def _add_numbers(self, other: Counts, sign: int) -> None:
        self.rows_in += sign * other.rows_in
        self.busy_s += sign * other.busy_s
        if other.made or other.duplicate or other.failed or other.absorbed:
            self.made += sign * other.made
            self.duplicate += sign * other.duplicate
            self.failed += sign * other.failed
            self.absorbed += sign * other.absorbed

    def shift(self, other: Counts, sign: int) -> None:
        """Take in the rows and seconds of others (1), or take them away again (-1). What columns hold is left
        alone: of that nothing can be taken away."""
        self._add_numbers(other, sign)
        for mine, more in ((self.out, other.out), (self.dropped, other.dropped), (self.errors, other.errors)):
            for name, rows in more.items():
                mine[name] = left = mine.get(name, 0) + sign * rows
                if not left:
                    del mine[name]

    def take_away(self, other: Counts) -> None:
        """What was counted of these rows is true no more: also their values and amounts."""
        self.shift(other, -1)
        self.errors = {error: rows for error, rows in self.errors.items() if rows > 0}
        _take_away(self.by_value, other.by_value)
        _take_away(self.amounts, other.amounts)

    def saw_value(self, column: str, value: str, port: str, rows: int) -> None:
        """Count rows with a value that went to a port, if there are not too many values already."""
        values = self.by_value.setdefault(column, {})
        if value in values or len(values) < VALUES_MAX:
            ports = values.setdefault(value, {})
            ports[port] = ports.get(port, 0) + rows

    def saw_amount(self, column: str, way: str, part: str, amount: float) -> None:
        """Add to the sum of a column over rows that went some way."""
        parts = self.amounts.setdefault(column, {}).setdefault(way, {})
        parts[part] = parts.get(part, 0.0) + amount

    @property
    def unaccounted(self) -> int:
        """Rows that are nowhere; below 0, rows from nowhere. Always 0 unless Curator erred."""
        ended = sum(self.dropped.values()) + self.duplicate + self.failed + self.absorbed
        return self.rows_in + self.made - sum(self.out.values()) - ended

    def check(self, stage: str = "") -> None:
        """Raises:
            AssertionError: the counts do not add up.
        """
        assert not self.unaccounted, (
            f"stage {stage!r}: {self.unaccounted} rows are not accounted for in {self!r}")

    def to_json(self) -> dict[str, Any]:
        """The counts that are not 0, as plain values with the names of `stats.json`."""
        named = {"in": self.rows_in, "made": self.made, "out": dict(self.out), "dropped": dict(self.dropped),
                 "duplicate": self.duplicate, "failed": self.failed, "absorbed": self.absorbed,
                 "busy_s": round(self.busy_s, 6), "errors": dict(self.errors),
                 "columns": {n: c.to_json() for n, c in self.columns.items()},
                 "by_value": dict(self.by_value),
                 "amounts": {n: dict(ways) for n, ways in self.amounts.items()}, "extra": dict(self.extra),
                 "memory": asdict(self.memory) if self.memory else None,
                 "inner": {n: c.to_json() for n, c in self.inner.items()}}
        return {name: value for name, value in named.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The counts that `to_json` wrote; what is not there is 0."""
        values = dict(data)
        values["rows_in"] = values.pop("in", 0)
        for name in ("out", "dropped", "errors"):
            values[name] = dict(values.get(name, {}))
        values["columns"] = {n: ColumnSummary.from_json(c) for n, c in values.get("columns", {}).items()}
        values["memory"] = MemoryShort(**values["memory"]) if "memory" in values else None
        values["inner"] = {n: cls.from_json(c) for n, c in values.get("inner", {}).items()}
        return cls(**values)


def _take_away(mine: dict[str, dict[str, dict[str, Number]]],
               less: Mapping[str, dict[str, dict[str, Number]]]) -> None:
    for column, groups in less.items():
        for group, parts in groups.items():
            there = mine.get(column, {}).get(group, {})
            for part in parts.keys() & there.keys():
                there[part] -= parts[part]
                if abs(there[part]) <= 1e-9 * abs(parts[part]):
                    del there[part]
            if not there:
                mine.get(column, {}).pop(group, None)
