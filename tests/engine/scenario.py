"""Random pipelines over rows whose fate is known beforehand.

What becomes of a row at a step follows from the seed and the row's name alone, so what must be committed in the end can be
computed without a scheduler (`Scenario.expected`) and compared. Only what a stateful step decides depends on the order in which rows
reach it; its decisions are read from the memories that were committed.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from curator.api.counts import Counts
from curator.api.resources import Node, Resources
from curator.api.stage import Stage
from curator.pipeline.plan import Operator, Step, Target


@dataclass(frozen=True)
class Faults:
    """Chances. `death`, `hang` and `raises`: for each call; `setup` and `slow`: for each worker; `driver`: for each commit."""

    death: float = 0.0
    setup: float = 0.0
    hang: float = 0.0
    raises: float = 0.0
    poison: float = 0.0  # share of rows that kill each worker that takes them
    slow: float = 0.0  # share of workers that are ten times slower
    idle: float = 0.0  # chance that some worker dies, whatever it does, for each event
    late: float = 0.0  # chance that what a worker sent before it was given up arrives afterwards, and its death twice
    driver: float = 0.0  # chance that the driver is killed
    stop: float = 0.0  # chance that the user stops the run, for each event
    close: float = 0.0  # chance that a worker that was asked to end does not
    node: float = 0.0  # chance that a node goes, or one joins, for each event; above 0 the scenario has several nodes

    @property
    def loses_rows(self) -> bool:
        """Rows that did nothing may end as failed: they were alone in a call that died, or in a unit that could not be read."""
        return bool(self.death or self.hang or self.idle or self.raises)


@dataclass
class Scenario:
    """A pipeline, its rows and its machine; what is not given is drawn from the seed."""

    seed: int
    faults: Faults = Faults()
    operators: list[Operator] = field(default_factory=list)
    machine: Node | None = None
    nodes: dict[int, Node] = field(default_factory=dict)
    unit_rows: list[int] | None = None
    row_bytes: int | None = None  # the same for all; by default heavy-tailed, from 200 to 12 million
    row_s: Mapping[int, float] = field(default_factory=dict)  # seconds a row, by operator; 0.01 by default
    part_bytes: int | None = None  # a worker sends a part of its answer when it has this much
    steady: bool = False  # calls take exactly what their rows take, and rows pass every step unchanged but for `fans`
    fans: Mapping[int, float] = field(default_factory=dict)  # steady: rows out for each row in, by operator; 1 by default
    noise: float = 0.0  # steady: calls take longer or shorter by about this share
    setup_s: Mapping[int, float] = field(default_factory=dict)  # steady: of a worker, by operator; 1 s by default

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.operators = self.operators or random_operators(rng)
        sources = [o.index for o in self.operators if o.kind == "source"]
        if self.unit_rows is None:
            self.unit_rows = [rng.choice([0, 1, 3, 30, 100]) for _ in range(rng.choice([1, 2, 5, 12]))]
        self.units = [[f"u{u}.{i}" for i in range(rows)] for u, rows in enumerate(self.unit_rows)]
        self.sources = [rng.choice(sources) for _ in self.units]
        self.machine = self.machine or Node(cpus=rng.choice([1, 2, 4, 16]), gpus=rng.choice([0, 0, 1, 2]),
                                               budget_bytes=rng.choice([1 << 20, 16 << 20, 1 << 30]))
        self.nodes = self.nodes or {0: self.machine}
        if self.faults.node:
            own = random.Random(self.seed + 7)  # draws of its own: other scenarios stay as they are
            self.nodes = {n: Node(cpus=own.choice([1, 2, 4]), gpus=own.choice([0, 1, 2, 4]),
                                  budget_bytes=own.choice([1 << 20, 16 << 20])) for n in range(own.randint(1, 4))}
            self.operators = [_as_gang(o) if o.kind == "map" and own.random() < 0.2 else o for o in self.operators]
        self.part_bytes = self.part_bytes or rng.choice([3_000, 100_000, 32 << 20])
        self.limit = rng.choice([0, 5, 60, 10_000])  # rows that a limit lets through
        share = rng.choice([0.0, 0.0, 0.0, 0.5])
        self.needed = [self._some_targets(rng) if rng.random() < share else None for _ in self.units]
        self._sizes: dict[str, int] = {}

    @classmethod
    def tight(cls, seed: int, faults: Faults = Faults(), nodes: int = 1) -> Scenario:
        """More rows than the memory of the run holds at once, and a stage that is slower than the rest."""
        rng = random.Random(seed)
        operators = random_operators(random.Random(seed))
        machine = Node(cpus=rng.choice([1, 2, 4, 16]), gpus=rng.choice([0, 0, 1, 2]),
                          budget_bytes=rng.choice([50_000, 200_000]))
        row_bytes, slow = rng.choice([None, 1000]), rng.randrange(len(operators))
        machines = {n: replace(machine, cpus=rng.choice([1, 2, 4])) for n in range(nodes)} if nodes > 1 else {}
        return cls(seed, faults, operators, machine, machines, unit_rows=[60] * 8, row_bytes=row_bytes, part_bytes=4000,
                   row_s={slow: 0.2})

    def _some_targets(self, rng: random.Random) -> frozenset[Target]:
        """A few sinks and everything before them, as when some of a unit's results have to be done again."""
        write = self.operators[-1]
        wanted = {Target(write.index, s) for s, step in enumerate(write.steps)
                  if rng.random() < 0.5 or step.name.startswith("failed/")}
        for operator in reversed(self.operators[:-1]):
            for (step, _), targets in operator.routes.items():
                if wanted & set(targets):
                    wanted |= {Target(operator.index, s) for s in range(step + 1)}
        return frozenset(wanted)

    # -- what everybody may ask -----------------------------------------------------------------------------

    def draw(self, *of: object) -> float:
        return zlib.crc32(repr((self.seed, *of)).encode()) / 2**32

    def size(self, row: str) -> int:
        if self.row_bytes is not None:
            return self.row_bytes
        if row not in self._sizes:
            self._sizes[row] = int(200 * (1 - self.draw(row, "size") * 0.9999) ** -1.2)
        return self._sizes[row]

    def seconds(self, operator: Operator, rows: int) -> float:
        return 0.001 + rows * self.row_s.get(operator.index, 0.01)

    def content(self, row: str) -> int:
        return int(self.draw(row, "content") * 30)

    def unit_of(self, row: str) -> int:
        return int(row[1:row.index(".")])

    def poison_step(self, operator: Operator, row: str) -> int | None:
        """The step in which a row kills every worker that takes it, if it does."""
        at = self.draw(row, operator.index, "poison")
        if operator.kind != "map" or at >= self.faults.poison:
            return None
        return int(at / self.faults.poison * len(operator.steps))

    def fate(self, operator: Operator, step: int, row: str) -> list[tuple[str, str]]:
        """(port, row) for everything that becomes of a row at a step without a memory."""
        if self.steady:
            many = self.fans.get(operator.index, 1)
            if many < 1:
                return [("out" if self.draw(row, "kept") < many else "dropped", row)]
            return [("out", f"{row}#{k}") for k in range(int(many))] if many > 1 else [("out", row)]
        at = self.draw(row, operator.index, step, "fate")
        others = [p for p in operator.steps[step].stage.ports if p != "out"]
        if operator.kind == "source":
            return [("failed" if at < 0.02 else "out", row)]
        if at < 0.1:
            return [("dropped", row)]
        if at < 0.12:
            return [("failed", row)]
        if at < 0.2:
            return [("out", f"{row}#{k}") for k in range(3)]
        if others and at < 0.4:
            return [(others[0], row)]
        return [("out", row)]

    # -- what must be -----------------------------------------------------------------------------------------

    def expected(self, decided: Mapping[tuple[int, str], str], killed: Mapping[tuple[int, str], list[int]] = {},
                 unread: frozenset[int] = frozenset(), given_up: frozenset[int] = frozenset()) -> Expected:
        """What all units must give together.

        `decided`: the port on which a stateful operator sent a row. `killed`: the steps (one for each time that it came) from
        which an operator's row was sent to `failed` because a call died over it alone. `given_up`: units that could not be
        read.
        """
        result = Expected()
        killed = {at: list(steps) for at, steps in killed.items()}
        for unit, rows in enumerate(self.units):
            if unit in unread:
                continue
            source, needed = self.operators[self.sources[unit]], self.needed[unit]
            if unit in given_up:
                self._send(result, needed, [(source, "failed", f"note{unit}", 0)], decided, killed)
                result.count(source, 0, rows_in=1, failed=1)
            else:
                ends = [(source, *end) for row in rows for end in self._through(result, source, row, decided, killed)]
                self._send(result, needed, ends, decided, killed)
        return result

    def _send(self, result: Expected, needed, ends: list[tuple[Operator, str, str, int]], decided, killed) -> None:
        while ends:
            operator, port, row, at = ends.pop()
            for target in operator.routes.get((at, port), ()):
                if needed is not None and target not in needed:
                    continue
                taker = self.operators[target.operator]
                if taker.kind == "sink":
                    result.written[target.step, row] += 1
                    result.count(taker, target.step, rows_in=1, out={"written": 1})
                else:
                    ends.extend((taker, *end) for end in self._through(result, taker, row, decided, killed))

    def _through(self, result: Expected, operator: Operator, row: str, decided, killed) -> list[tuple[str, str, int]]:
        """(port, row, step) for everything that leaves an operator because of a row."""
        steps = killed.get((operator.index, row))
        died = steps.pop() if steps else self.poison_step(operator, row)
        if died is not None:
            for step in range(died):
                result.count(operator, step, rows_in=1, out={operator.chain[step]: 1})
            result.count(operator, died, rows_in=1, failed=1)
            return [("failed", row, died)]
        ends, todo = [], [(0, row)]
        while todo:
            step, current = todo.pop()
            fate = self.fate(operator, step, current)
            if operator.kind == "stateful":
                result.reached.setdefault(operator.index, []).append(row)
                fate = [(decided.get((operator.index, row), "nowhere"), row)]
            result.count(operator, step, **counts_of(fate))
            for port, child in fate:
                if step < len(operator.chain) and port == operator.chain[step]:
                    todo.append((step + 1, child))
                else:
                    ends.append((port, child, step))
        return ends


@dataclass
class Expected:
    """`written`: how often each (sink step, row); `counts`: by step name; `reached`: rows by stateful operator."""

    written: Counter = field(default_factory=Counter)
    counts: dict[str, Counts] = field(default_factory=dict)
    reached: dict[int, list[str]] = field(default_factory=dict)

    def count(self, operator: Operator, step: int, **values) -> None:
        self.counts.setdefault(operator.steps[step].name, Counts()).add(Counts(**values))


def counts_of(fate: list[tuple[str, str]]) -> dict:
    """One row in, and where it and its children went."""
    values: dict = {"rows_in": 1, "made": len(fate) - 1}
    for port, _ in fate:
        if port in ("failed", "duplicate"):
            values[port] = values.get(port, 0) + 1
        else:
            group = values.setdefault("dropped", {}) if port == "dropped" else values.setdefault("out", {})
            name = "some reason" if port == "dropped" else port
            group[name] = group.get(name, 0) + 1
    return values


# -- pipelines --------------------------------------------------------------------------------------------------


def make_stage(name: str = "", ports: tuple[str, ...] = ("out",), batch_size: int | None = None,
               timeout_s: float | None = None, **resources: float) -> Stage:
    stage = Stage().with_(name=name or None, batch_size=batch_size, timeout_s=timeout_s, resources=Resources(**resources))
    stage.ports = ports
    return stage


def chain(*stages: Stage, steps: Mapping[int, int | list[Stage]] = {}) -> list[Operator]:
    """A source, these stages one after the other, and the sinks: `written` and one for each step's failed rows.

    A stage named "dedup" or "limit" is stateful. `steps`: how many steps an operator is fused of, by its index, or the stages behind
    its first.
    """
    stages = (make_stage(), *stages)
    sinks, operators = ["written"], []
    for index, stage in enumerate(stages):
        kind = "source" if not index else "stateful" if stage.name in ("dedup", "limit") else "map"
        more = steps.get(index, 1)
        fused = [stage] * more if isinstance(more, int) else [stage, *more]
        count = len(fused)
        last = index == len(stages) - 1
        routes = {(count - 1, "out"): (Target(len(stages), 0) if last else Target(index + 1),)}
        for step in range(count):
            sinks.append(f"failed/{index}.{step}")
            routes[step, "failed"] = (Target(len(stages), len(sinks) - 1),)
        made = tuple(Step(f"op{index}.{s}", one, "key") for s, one in enumerate(fused))
        operators.append(Operator(index, kind, made, ("out",) * (count - 1), routes))
    return [*operators, Operator(len(stages), "sink", tuple(sink_step(name) for name in sinks))]


def sink_step(name: str) -> Step:
    """A sink; if it is called `ending/step`, for what ends so in that step."""
    ending, _, of = name.partition("/")
    return Step(name, make_stage(), "key", ((of, ending.removeprefix("other-")),) if of else (), implicit=bool(of))


def beside(one: list[Operator], other: list[Operator]) -> list[Operator]:
    """Two pipelines that share nothing but their sinks' operator and the machine."""
    write, sinks = len(one) + len(other) - 2, len(one[-1].steps)
    operators = []
    for pipeline, shift, first, prefix in ((one, 0, 0, ""), (other, len(one) - 1, sinks, "other-")):
        for o in pipeline[:-1]:
            end = len(pipeline) - 1
            routes = {at: tuple(Target(write, t.step + first) if t.operator == end else Target(t.operator + shift, t.step)
                                for t in targets) for at, targets in o.routes.items()}
            steps = tuple(Step(prefix + s.name, s.stage, s.key) for s in o.steps)
            operators.append(Operator(o.index + shift, o.kind, steps, o.chain, routes))
    names = [s.name for s in one[-1].steps] + ["other-" + s.name for s in other[-1].steps]
    return [*operators, Operator(write, "sink", tuple(sink_step(name) for name in names))]


def random_operators(rng: random.Random) -> list[Operator]:
    """Sources, a graph of maps with branches and merges, maybe a stateful one, and the sinks."""
    sources, special = rng.choice([1, 1, 2]), rng.choice(["", "", "dedup", "dedup", "limit"])
    kinds = ["source"] * sources + ["map"] * rng.randint(0, 4)
    if special == "limit":
        kinds.insert(sources, special)  # everything goes through it, so that reading may end early
    elif special:
        kinds.insert(rng.randint(sources, len(kinds)), special)
    sinks: list[str] = []
    fed = [False] * len(kinds)
    operators = []
    for index, kind in enumerate(kinds):
        count = rng.choice([1, 1, 2, 3]) if kind == "map" else 1
        ports = ("out",) if kind in ("source", "dedup", "limit") else rng.choice([("out",), ("out", "low")])
        routes = {}
        for step in range(count):
            for port in ("dropped", "failed", *(["duplicate"] if kind == "dedup" else [])):
                if port == "failed" or rng.random() < 0.85:  # else these rows are counted and let go
                    sinks.append(f"{port}/{index}.{step}")
                    routes[step, port] = (Target(len(kinds), len(sinks) - 1),)
        for port in ports:
            routes[count - 1, port] = _targets(rng, index, kinds, fed, sinks, special)
        name = kind if kind in ("dedup", "limit") else ""
        made = _random_steps(rng, index, kind, count, ports, name)
        plain = "stateful" if name else kind
        operators.append(Operator(index, plain, made, ("out",) * (count - 1), routes))
    return [*operators, Operator(len(kinds), "sink", tuple(sink_step(name) for name in sinks))]


def _targets(rng: random.Random, index: int, kinds: list[str], fed: list[bool], sinks: list[str],
             special: str) -> tuple[Target, ...]:
    """One or two takers of a port: later operators, or new sinks."""
    first = kinds.count("source")
    if special == "limit" and index < first:
        fed[first] = True
        return (Target(first),)
    later = list(range(max(index + 1, first), len(kinds)))
    # A row that came to a dedup by two ways would be there twice with one id: what it then answers is not defined.
    alone = special == "dedup" and index < kinds.index("dedup")
    chosen: list[Target] = []
    for _ in range(1 if alone else rng.choice([1, 1, 1, 2])):
        if later and rng.random() < 0.8:
            unfed = [i for i in later if not fed[i]]
            target = Target(rng.choice(unfed[:1] + later))
            fed[target.operator] = True
        else:
            sinks.append(f"sink{len(sinks)}")
            target = Target(len(kinds), len(sinks) - 1)
        if target not in chosen:
            chosen.append(target)
    return tuple(chosen)


def _as_gang(operator: Operator) -> Operator:
    """The same with two or three ranks."""
    shape = operator.resources
    ranks = 2 if operator.index % 2 else 3
    gang = Resources(cpus=ranks, gpus=ranks if shape.gpus else 0, memory_gb=shape.memory_gb, gang=True)
    steps = tuple(replace(s, stage=s.stage.with_(resources=gang)) for s in operator.steps)
    return replace(operator, steps=steps)


def _random_steps(rng: random.Random, index: int, kind: str, count: int, ports: tuple[str, ...],
                  name: str) -> tuple[Step, ...]:
    shape: dict[str, float] = {"cpus": 1}
    if kind == "map":
        shape = {"cpus": rng.choice([0.25, 1, 1, 2]), "gpus": rng.choice([0, 0, 0, 0.5, 1, 2]),
                 "memory_gb": rng.choice([0, 0, 3, 6])}
    elif name:
        shape["memory_gb"] = rng.choice([0, 3])
    timeout_s = None if kind == "source" else 50.0
    made = []
    for step in range(count):
        batch_size = rng.choice([None, None, 1, 8, 64]) if kind == "map" else None
        stage = make_stage(name, ports if step == count - 1 else ("out",), batch_size, timeout_s, **shape)
        made.append(Step(f"op{index}.{step}", stage, "key"))
    return tuple(made)
