"""From graph to phases of operators: names, contracts, keys, fusion; `phases` makes the operators.

An operator is what one worker runs: one stage, or neighbours that share a resource shape, with no hop between them. Sources
stay alone (they are read unit by unit), so do reductions, and stateful stages (one worker holds the state); all sinks of a phase
share one operator, in which each unit stays with one worker.

All operators of a phase stream together. A `Reduce` begins a phase of its own; in the mode `batch` every hop does. Rows that go
from one phase to a later one are spooled by a sink step of the first, and read by a source operator of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.resources import Resources
from curator.api.stage import SIDE_OUTPUTS, Reduce, Sink, Source, Stage, Stateful
from curator.io.files.folder import Folder
from curator.io.spool import FORMAT, FromSpool, ToSpool
from curator.io.tables.parquet import ToParquet
from curator.pipeline.contracts import check_contracts, place_of, wanted_behind
from curator.pipeline.expand import expand
from curator.pipeline.graph import Graph, Node
from curator.pipeline.layout import below, check_folders, folder_of, moved, placed

Kind = Literal["source", "map", "stateful", "sink"]
Mode = Literal["stream", "batch"]
SPOOLS = "_run/spool"  # the folder of all spools, in the run's folder
READ = "read "  # before the name of a spool: the step that reads it
SPOOL = "spool/"  # before the name of a step that fills one; the rest of the name is its folder


@dataclass(frozen=True)
class Step:
    """A stage with its name in this pipeline, unique, and its key.

    `key`: 16 hex digits of the stage's fingerprint and of every stage upstream; results of two runs may stand side by
    side when their keys are equal. `after`: the names of the steps and the ports that feed it. `implicit`: a sink that the
    plan added, for rows on an ending that no stage takes. `spool`: the plan added it to take rows into a later phase, or out
    of an earlier one; it is no stage of the pipeline. `part_of`: the step of the composite stage that this one is a part of.
    `fingerprint`: of the stage, taken once a plan; empty where the plan added the step.
    """

    name: str
    stage: Stage
    key: str
    after: tuple[tuple[str, str], ...] = ()
    implicit: bool = False
    spool: bool = False
    part_of: str = ""
    fingerprint: str = ""

    @property
    def evidence(self) -> bool:
        """Of a sink: what comes to it has failed, and is kept also when the run ends early."""
        return bool(self.after) and not self.spool and all(port == "failed" for _, port in self.after)


@dataclass(frozen=True)
class Target:
    """Where rows go: an operator, and the step in it that takes them."""

    operator: int
    step: int = 0


@dataclass(frozen=True)
class Operator:
    """Steps that one worker runs. `chain`: for each step but the last, the port that leads to the next one.

    `routes`: where the rows of (step, port) go; a port that is not there is counted and let go. `payloads`: what a later stage
    wants of the payloads of (step, port); the others end there (decoded images are not carried to the sinks). All go on where
    nothing is said. `spools`: the names of the spools that it reads; `reader` reads them for a `Reduce`.
    """

    index: int
    kind: Kind
    steps: tuple[Step, ...]
    chain: tuple[str, ...] = ()
    routes: Mapping[tuple[int, str], tuple[Target, ...]] = field(default_factory=dict)
    payloads: Mapping[tuple[int, str], frozenset[str]] = field(default_factory=dict)
    spools: tuple[str, ...] = ()
    reader: FromSpool | None = None

    @property
    def derived(self) -> bool:
        """It reads what an earlier phase wrote: records that were counted before, which no failure may turn into one."""
        return isinstance(self.steps[0].stage, (Reduce, FromSpool))

    @property
    def name(self) -> str:
        names = [s.name for s in self.steps]
        return "write" if self.kind == "sink" else " + ".join(names)

    @cached_property
    def resources(self) -> Resources:
        return max((s.stage.resources for s in self.steps), key=lambda r: (r.gpus, r.cpus))

    @cached_property
    def batch_size(self) -> int | None:
        return self.steps[0].stage.batch_size

    @cached_property
    def timeout_s(self) -> float | None:
        """The longest that one `process` call of a step may take; None if a step has no limit."""
        limits = [s.stage.timeout_s for s in self.steps if s.stage.timeout_s is not None]
        return max(limits) if limits else None


@dataclass(frozen=True)
class Phase:
    """Operators that stream together, in topological order: sources first, the one of the sinks last."""

    number: int
    operators: tuple[Operator, ...]

    @property
    def steps(self) -> list[Step]:
        return [step for operator in self.operators for step in operator.steps]

    def consumers(self, operator: int) -> set[int]:
        return {t.operator for targets in self.operators[operator].routes.values() for t in targets}

    def short_circuit(self, operator: int) -> bool:
        """True when every row of every source goes through this operator."""
        seen, todo = set(), [o.index for o in self.operators if o.kind == "source"]
        while todo:
            at = todo.pop()
            if at in seen or at == operator:
                continue
            seen.add(at)
            outs = {t.operator for (_, port), targets in self.operators[at].routes.items()
                    if port not in SIDE_OUTPUTS for t in targets}
            if not outs or any(self.operators[o].kind == "sink" for o in outs):
                return False
            todo.extend(outs)
        return True


@dataclass(frozen=True)
class Plan:
    """The phases of a run, each of which begins when the one before it is done.

    `pipeline`: as it was written; `out`: the run's folder, which it may not say. The steps have their final folders.
    """

    pipeline: Graph
    out: Folder
    phases: tuple[Phase, ...]
    columns: Mapping[str, Mapping[str, pa.DataType | None] | None]  # after each step, None where unknown

    @property
    def steps(self) -> list[Step]:
        """The stages of the pipeline and the sinks for side outputs, in pipeline order phase by phase; without the spools."""
        return [step for phase in self.phases for step in phase.steps if not step.spool]


def make_plan(pipeline: Graph, mode: Mode = "stream", out: str | None = None) -> Plan:
    """Check the graph and its contracts, and fuse it into operators, in phases.

    `mode`: "stream", or "batch" to finish each operator before the next one begins. `out`: another folder for the run.

    Raises:
        RecipeError: no sink, no folder to write to, a port that leads nowhere, two sinks in one folder.
        ContractError: a stage needs a column or payload that nothing before it makes.
    """
    if not pipeline.sinks:
        raise RecipeError("the pipeline writes nothing: end it with a sink, for example >> write('out/')")
    for end in pipeline.ends:
        raise RecipeError(f"port {end.port!r} of stage {end.node.stage.name!r} leads nowhere: add a sink or discard it")
    pipeline = pipeline if out is None else moved(pipeline, out)
    there = placed(pipeline, _unique_names(pipeline.nodes()))
    check_folders(there, _unique_names(there.nodes()))
    expanded = expand(there, _unique_names(there.nodes()))
    whole, parts = expanded.pipeline, expanded.parts
    nodes = whole.nodes()
    names = _unique_names(nodes)
    takers = _takers(nodes)
    _check_ports(nodes, names, takers, whole.settings.discard)
    columns = check_contracts(nodes, names, parts)
    steps = _steps(whole, nodes, names, parts)
    groups = _fuse([n for n in nodes if not isinstance(n.stage, Sink)], takers)
    graph = _Graph(whole, nodes, groups, steps, takers, _levels(nodes, groups, mode), wanted_behind(nodes, takers), columns)
    phases = tuple(graph.phase(number) for number in range(max(graph.level.values()) + 1))
    return Plan(pipeline, _folder(whole), phases, {names[n]: columns[n] for n in nodes})


# -- the graph ------------------------------------------------------------------------------------------------


def _unique_names(nodes: list[Node]) -> dict[Node, str]:
    names: dict[Node, str] = {}
    taken: set[str] = set()
    for node in nodes:
        name, count = node.stage.name, 1
        while name in taken:
            count += 1
            name = f"{node.stage.name}-{count}"
        taken.add(name)
        names[node] = name
    return names


def _takers(nodes: list[Node]) -> dict[tuple[Node, str], list[Node]]:
    takers: dict[tuple[Node, str], list[Node]] = {}
    for node in nodes:
        for end in node.inputs:
            takers.setdefault((end.node, end.port), []).append(node)
    return takers


def _check_ports(nodes: list[Node], names: dict[Node, str], takers: dict, discard: tuple[str, ...]) -> None:
    for node in nodes:
        for port in node.stage.ports:
            if (node, port) not in takers and not _discarded(discard, port, names[node]):
                raise RecipeError(f"{place_of(node)}port {port!r} of stage {names[node]!r} leads nowhere: "
                                  f"give it a stage or a sink, or discard {port + '/' + names[node]!r}")
    for node in nodes:
        if node.stage.resources.gang and isinstance(node.stage, (Source, Sink, Stateful, Reduce)):
            raise RecipeError(f"{place_of(node)}stage {names[node]!r} cannot be a gang: only stages that answer batch by batch "
                              "can")


def _discarded(discard: tuple[str, ...], port: str, name: str) -> bool:
    return port in discard or f"{port}/{name}" in discard


def _steps(pipeline: Graph, nodes: list[Node], names: dict[Node, str], parts: dict[Node, Node]) -> dict[Node, Step]:
    steps: dict[Node, Step] = {}
    for node in nodes:
        above = sorted(f"{steps[end.node].key}.{end.port}" for end in node.inputs)
        if isinstance(node.stage, Sink):
            above.append(_place(node.stage, pipeline))
        fingerprint = node.stage.fingerprint()
        text = "\n".join([names[node], fingerprint, *above])
        key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        after = tuple((names[e.node], e.port) for e in node.inputs)
        part_of = names[parts[node]] if node in parts else ""
        steps[node] = Step(names[node], node.stage, key, after, part_of=part_of, fingerprint=fingerprint)
    return steps


def _folder(pipeline: Graph) -> Folder:
    """The run's folder, of a pipeline that says it."""
    return Folder.open(str(pipeline.settings.out), dict(pipeline.settings.storage_options) or None)


def _place(sink: Sink, pipeline: Graph) -> str:
    """Where a sink writes, from the run's folder where it lies in that: a run's folder may be moved."""
    root, folder = _folder(pipeline).uri.rstrip("/"), folder_of(sink)
    return folder.removeprefix(root) if f"{folder}/".startswith(f"{root}/") else folder


# -- operators ------------------------------------------------------------------------------------------------


def _fuse(nodes: list[Node], takers: dict) -> list[list[Node]]:
    """Chains of neighbours with nothing between them and the same resource shape; the rest alone."""
    groups: list[list[Node]] = []
    group_of: dict[Node, list[Node]] = {}
    for node in nodes:
        chain = group_of.get(node.inputs[0].node) if len(node.inputs) == 1 else None
        if chain is not None and _fusible(chain[-1], node, takers):
            chain.append(node)
        else:
            chain = [node]
            groups.append(chain)
        group_of[node] = chain
    return groups


def _fusible(last: Node, node: Node, takers: dict) -> bool:
    if node.inputs[0].node is not last or takers[(last, node.inputs[0].port)] != [node]:
        return False
    plain = not any(isinstance(n.stage, (Source, Stateful, Reduce)) for n in (last, node))
    return plain and last.stage.resources == node.stage.resources


def _levels(nodes: list[Node], groups: list[list[Node]], mode: Mode) -> dict[Node, int]:
    """The phase of each node: the barriers on the longest way to it. A sink stands with the last of its inputs."""
    level: dict[Node, int] = {}
    first = {group[0] for group in groups}
    for node in nodes:
        before = max((level[end.node] for end in node.inputs), default=-1)
        barrier = isinstance(node.stage, Reduce) or (mode == "batch" and node in first)
        level[node] = before + 1 if barrier else max(0, before)
    return level


@dataclass(frozen=True)
class _Graph:
    """What the operators of all phases are made from."""

    pipeline: Graph
    nodes: list[Node]
    groups: list[list[Node]]
    steps: dict[Node, Step]
    takers: dict[tuple[Node, str], list[Node]]
    level: dict[Node, int]
    wanted: Mapping[Node, frozenset[str] | None]
    columns: Mapping[Node, Mapping[str, pa.DataType | None] | None]

    def phase(self, number: int) -> Phase:
        """The operators of one phase: readers of spools, then what begins it, then what follows."""
        groups = [g for g in self.groups if self.level[g[0]] == number]
        groups.sort(key=lambda g: not isinstance(g[0].stage, (Source, Reduce)))
        sinks = [n for n in self.nodes if isinstance(n.stage, Sink) and self.level[n] == number]
        read = self._read(number)
        write = len(read) + len(groups)
        place = {n: Target(len(read) + g, s) for g, group in enumerate(groups) for s, n in enumerate(group)}
        place |= {n: Target(write, s) for s, n in enumerate(sinks)}
        sink_steps = [self.steps[n] for n in sinks]
        operators = []
        for index, end in enumerate(read):
            targets = tuple(place[n] for n in self.takers[end] if n in place and not isinstance(n.stage, Reduce))
            operators.append(self._reader(index, end, targets))
        for index, group in enumerate(groups, len(read)):
            routes = self._routes(group, number, place, write, sink_steps)
            operators.append(self._operator(index, group, routes))
        return Phase(number, (*operators, Operator(write, "sink", tuple(sink_steps))))

    def _read(self, number: int) -> list[tuple[Node, str]]:
        """Ports of earlier phases whose rows this one takes, those aside that a `Reduce` reads itself."""
        ends = ((end.node, end.port) for n in self.nodes if self.level[n] == number and not isinstance(n.stage, Reduce)
                for end in n.inputs if self.level[end.node] < number)
        return list(dict.fromkeys(ends))

    def _routes(self, group: list[Node], number: int, place: dict[Node, Target], write: int,
                sink_steps: list[Step]) -> dict[tuple[int, str], tuple[Target, ...]]:
        """Where the rows of a group go; the sinks that this takes are added to `sink_steps`."""
        routes: dict[tuple[int, str], tuple[Target, ...]] = {}
        for at, node in enumerate(group):
            for port in (*node.stage.ports, *SIDE_OUTPUTS):
                if at + 1 < len(group) and port == group[at + 1].inputs[0].port:
                    continue
                takers = self.takers.get((node, port), ())
                added = list({self._spool(node, port, n).name: self._spool(node, port, n)
                              for n in takers if self.level[n] > number}.values())
                if not takers and port in SIDE_OUTPUTS and not _discarded(self.pipeline.settings.discard, port, self.steps[node].name):
                    added.append(_implicit(self.pipeline, self.steps[node], port))
                targets = [place[n] for n in takers if self.level[n] == number]
                targets += [Target(write, len(sink_steps) + i) for i in range(len(added))]
                sink_steps += added
                if targets:
                    routes[(at, port)] = tuple(targets)
        return routes

    def _operator(self, index: int, group: list[Node], routes: dict[tuple[int, str], tuple[Target, ...]]) -> Operator:
        chain = tuple(node.inputs[0].port for node in group[1:])
        steps = tuple(self.steps[n] for n in group)
        head = group[0]
        ports = ((at, node, port) for at, node in enumerate(group) for port in (*node.stage.ports, *SIDE_OUTPUTS))
        wanted = {(at, port): self._wanted(node, port) for at, node, port in ports}
        payloads = {key: names for key, names in wanted.items() if names is not None}
        if not isinstance(head.stage, Reduce):
            return Operator(index, _kind(head.stage), steps, chain, routes, payloads)
        spools = tuple(dict.fromkeys(self._spool(end.node, end.port, head).name for end in head.inputs))
        return Operator(index, "source", steps, chain, routes, payloads, spools, self._from_spool())

    def _wanted(self, node: Node, port: str) -> frozenset[str] | None:
        """What is read later of the rows of a port, None if that may be everything."""
        found = [self.wanted[taker] for taker in self.takers.get((node, port), ())]
        return None if None in found else frozenset().union(*found)

    def _spool(self, node: Node, port: str, taker: Node) -> Step:
        """The sink that keeps the rows of a port for a later phase: one for all that read it as it is, and one a `Reduce`."""
        of, reduce = self.steps[node], taker.stage if isinstance(taker.stage, Reduce) else None
        name = f"{SPOOL}{of.name}.{port}" + (f".{self.steps[taker].name}" if reduce is not None else "")
        column, shards = (reduce.key, reduce.shards) if reduce is not None and reduce.key is not None else (None, 1)
        text = f"spool {FORMAT}\n{of.key}\n{port}\n{column}\n{shards}\n{self._carried(node, port)}"
        key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        sink = ToSpool(path=f"{_spool_folder(self.pipeline)}/{name.removeprefix(SPOOL)}", key=column, shards=shards,
                             storage_options=dict(self.pipeline.settings.storage_options) or None)
        return Step(name, sink, key, ((of.name, port),), spool=True)

    def _carried(self, node: Node, port: str) -> list[str] | None:
        """The payloads that a spool of a port holds (and columns of unknown type), None for all.

        They count in the spool's key: an edit behind the barrier may ask for others. What is wanted later and comes another
        way, around the spool, does not count.
        """
        wanted, columns = self._wanted(node, port), self.columns[node]
        return None if wanted is None else sorted(n for n in wanted if columns is None or columns.get(n, pa.null()) is None)

    def _from_spool(self) -> FromSpool:
        return FromSpool(path=_spool_folder(self.pipeline), storage_options=dict(self.pipeline.settings.storage_options) or None)

    def _reader(self, index: int, end: tuple[Node, str], targets: tuple[Target, ...]) -> Operator:
        """The source that reads a spool into a later phase."""
        step = self._spool(*end, next(n for n in self.takers[end] if not isinstance(n.stage, Reduce)))
        read = Step(READ + step.name, self._from_spool(), step.key, spool=True)
        return Operator(index, "source", (read,), (), {(0, "out"): targets}, spools=(step.name,))


def _spool_folder(pipeline: Graph) -> str:
    return below(str(pipeline.settings.out), SPOOLS)


def _implicit(pipeline: Graph, step: Step, port: str) -> Step:
    """The sink that keeps the rows which a stage dropped, failed or found twice."""
    folder = below(str(pipeline.settings.out), f"{port}/{step.name}")
    sink = ToParquet(path=folder, storage_options=dict(pipeline.settings.storage_options) or None)
    key = hashlib.blake2b(f"{port}\n{step.key}".encode(), digest_size=8).hexdigest()
    return Step(f"{port}/{step.name}", sink, key, ((step.name, port),), implicit=True)


def _kind(stage: Stage) -> Kind:
    return "source" if isinstance(stage, (Source, Reduce)) else "stateful" if isinstance(stage, Stateful) else "map"
