"""From graph to phases of operators: names, contracts, keys, fusion.

An operator is what one worker runs: one stage, or neighbours that share a resource shape, with no hop between
them. Sources stay alone (they are read unit by unit), so do reductions, and stateful stages (one worker holds
the state); all sinks of a phase share one operator, in which each unit stays with one worker.

All operators of a phase stream together. A `Reduce` begins a phase of its own; in the mode `batch` every hop
does, and in the mode `shards` the first stage that remembers. Rows that go from one phase to a later one are
spooled by a sink step of the first, and read by a source operator of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.resources import Resources
from curator.api.stage import SIDE_OUTPUTS, Reduce, Sink, Source, Stage, Stateful
from curator.io.failed import FromFailed
from curator.io.files.folder import Folder
from curator.io.source import PathSource
from curator.io.spool import FORMAT, FromCheckpoint, FromSpool, ToSpool
from curator.io.tables.parquet import ToParquet
from curator.pipeline.checkpoint import CHECKPOINTS, payloads
from curator.pipeline.contracts import check_contracts, columns_at, place_of, wanted_behind
from curator.pipeline.expand import expand
from curator.pipeline.graph import End, Graph, Node
from curator.pipeline.layout import below, folder_of, moved, placed, run_folder, written_to

Kind = Literal["source", "map", "stateful", "sink"]
Mode = Literal["stream", "batch", "shards"]
Ports = Mapping[tuple[int, str], tuple["Target", ...]]  # where the rows of (step, port) go
CHECKPOINT_PREFIX = "checkpoint/"  # the names of steps that keep rows for later runs begin so
SPOOLS = "_run/spool"  # the folder of all spools, in the run's folder


@dataclass(frozen=True)
class Step:
    """A stage with its name in this pipeline, unique, and its key.

    `key`: 16 hex digits of the stage's fingerprint and of every stage upstream; results of two runs may stand
    side by side when their keys are equal. `after`: the names of the steps and the ports that feed it.
    `implicit`: a sink that the plan added, for rows on a side output that no stage takes. `spool`: the plan
    added it to take rows into a later phase or out of an earlier one, or to keep and read those of a
    `checkpoint`; it is no stage of the pipeline.
    `part_of`: the step of the composite stage that this one is a part of. `fingerprint`: of the stage, taken
    once a plan; empty where the plan added the step. `amounts`: the columns that are summed wherever rows are
    counted: what all stages of the pipeline declare.
    """

    name: str
    stage: Stage
    key: str
    after: tuple[tuple[str, str], ...] = ()
    implicit: bool = False
    spool: bool = False
    checkpoint: bool = False
    part_of: str = ""
    fingerprint: str = ""
    amounts: tuple[str, ...] = ()

    @property
    def sink(self) -> Sink:
        """The stage of a step that writes."""
        assert isinstance(self.stage, Sink), self.name
        return self.stage

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

    `routes`: where rows go; a port that is not there is counted and let go. `payloads`: what a later stage
    wants of the payloads of (step, port); the others end there (decoded images are not carried to the sinks),
    and all go on where nothing is said. `spools`: the names of the spools that it reads; `reader` reads them
    for a `Reduce`.
    """

    index: int
    kind: Kind
    steps: tuple[Step, ...]
    chain: tuple[str, ...] = ()
    routes: Ports = field(default_factory=dict)
    payloads: Mapping[tuple[int, str], frozenset[str]] = field(default_factory=dict)
    spools: tuple[str, ...] = ()
    reader: FromSpool | None = None

    @property
    def internal(self) -> bool:
        """It reads records that an earlier phase wrote and counted: no failure may turn them into one."""
        return isinstance(self.steps[0].stage, (Reduce, FromSpool, FromFailed))

    @property
    def replays(self) -> bool:
        """It reads what checkpoints of its own phase kept, for units that are only done from there on."""
        return isinstance(self.steps[0].stage, FromCheckpoint)

    @property
    def name(self) -> str:
        names = [s.name for s in self.steps]
        return "write" if self.kind == "sink" else " + ".join(names)

    @cached_property
    def consumers(self) -> frozenset[int]:
        """The operators that its rows go to."""
        return frozenset(t.operator for targets in self.routes.values() for t in targets)

    @cached_property
    def resources(self) -> Resources:
        return max((s.stage.resources for s in self.steps), key=lambda r: (r.gpus, r.cpus))

    @cached_property
    def batch_size(self) -> int | None:
        return self.steps[0].stage.batch_size

    @cached_property
    def batch_bytes(self) -> int:
        return self.steps[0].stage.batch_bytes

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

    @cached_property
    def replay(self) -> int | None:
        """The operator that reads checkpoints; None where nothing is kept."""
        return next((o.index for o in self.operators if o.replays), None)

    def checkpoint(self, targets: tuple[Target, ...]) -> tuple[Target, Step] | None:
        """Of targets of one port: that which keeps its rows, if it has a checkpoint."""
        sinks = self.operators[-1]
        return next(((t, sinks.steps[t.step]) for t in targets
                     if t.operator == sinks.index and sinks.steps[t.step].checkpoint), None)

    def short_circuit(self, operator: int) -> bool:
        """True when every row of every source goes through this operator."""
        seen, todo = set(), [o.index for o in self.operators if o.kind == "source" and not o.replays]
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

    `pipeline`: as it was written; `out`: the run's folder, which it may not say. The steps have their final
    folders. `notes`: what people should know of the versions that are read.
    """

    pipeline: Graph
    out: Folder
    phases: tuple[Phase, ...]
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> list[Step]:
        """The stages of the pipeline and the sinks for side outputs, phase by phase; without the spools."""
        return [step for phase in self.phases for step in phase.steps if not step.spool]


def make_plan(pipeline: Graph, mode: Mode = "stream", out: str | None = None,
              replay: Collection[str] = ()) -> Plan:
    """Check the graph and its contracts, and fuse it into operators, in phases.

    `mode`: "stream", or "batch" to finish each operator before the next one begins; "shards" if the first
    phase is to be one whose units know nothing of each other: what needs all rows comes after it. `out`:
    another folder for the run. `replay`: stages at which rows that failed there before may come in again; no
    key changes.

    Raises:
        RecipeError: no sink, no folder to write to, a port that leads nowhere, two sinks in one folder.
        ContractError: a stage needs a column or payload that nothing before it makes.
    """
    if not pipeline.sinks:
        raise RecipeError("the pipeline writes nothing: end it with a sink, for example >> write('out/')")
    for end in pipeline.ends:
        raise RecipeError(f"port {end.port!r} of stage {end.node.stage.name!r} leads nowhere: add a sink or "
                          "discard it")
    pipeline = pipeline if out is None else moved(pipeline, out)
    planner = _Planner(*expand(placed(pipeline)), mode, replay)
    phases = tuple(planner.phase(number) for number in range(max(planner.level.values()) + 1))
    return Plan(pipeline, planner.out, phases)


def _key(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


class _Planner:
    """What the operators of all phases are made from: a graph, placed, and what `expand` gives."""

    def __init__(self, graph: Graph, parts: Mapping[Node, Node], kept: frozenset[End], mode: Mode,
                 replay: Collection[str]) -> None:
        self.parts, self.kept, self.discard, self.replay = parts, kept, graph.settings.discard, replay
        self.out, self.folder = run_folder(graph), str(graph.settings.out)
        self.options = dict(graph.settings.storage_options) or None
        self.nodes, self.names = graph.nodes(), graph.names()
        self.takers: dict[tuple[Node, str], list[Node]] = {}
        for node in self.nodes:
            for end in node.inputs:
                self.takers.setdefault((end.node, end.port), []).append(node)
        self.parted: list[str] = []  # stages that would be fused to one before, were they not to be replayed
        self._check_ports()
        own = written_to(self.out, (node.stage for node in self.nodes))
        for node in self.nodes:
            if isinstance(node.stage, PathSource):
                node.stage.not_read = own
        self.columns = check_contracts(self.nodes, self.names, parts, kept)
        self.wanted = wanted_behind(self.nodes, self.takers)
        self.amounts = tuple(dict.fromkeys(name for node in self.nodes for name in node.stage.amounts()))
        self.steps: dict[Node, Step] = {}
        for node in self.nodes:
            self.steps[node] = self._step(node)
        self.groups = self._fuse()
        self.level = self._levels(mode)

    def _check_ports(self) -> None:
        for node in self.nodes:
            for port in node.stage.ports:
                if (node, port) not in self.takers and not self._discarded(node, port):
                    raise RecipeError(f"{place_of(node)}port {port!r} of stage {self.names[node]!r} leads "
                                      "nowhere: give it a stage or a sink, or discard "
                                      f"{port + '/' + self.names[node]!r}")
            if node.stage.resources.gang and isinstance(node.stage, (Source, Sink, Stateful, Reduce)):
                raise RecipeError(f"{place_of(node)}stage {self.names[node]!r} cannot be a gang: only stages "
                                  "that answer batch by batch can")

    def _discarded(self, node: Node, port: str) -> bool:
        return port in self.discard or f"{port}/{self.names[node]}" in self.discard

    def _step(self, node: Node) -> Step:
        above = sorted(f"{self.steps[end.node].key}.{end.port}" for end in node.inputs)
        # named from the run's folder where it lies in that: this may be moved
        if isinstance(node.stage, Sink):
            root, folder = self.out.uri.rstrip("/"), folder_of(node.stage)
            above.append(folder.removeprefix(root) if f"{folder}/".startswith(f"{root}/") else folder)
        name, fingerprint = self.names[node], node.stage.fingerprint()
        after = tuple((self.names[e.node], e.port) for e in node.inputs)
        part_of = self.names[self.parts[node]] if node in self.parts else ""
        return Step(name, node.stage, _key(name, fingerprint, *above), after, part_of=part_of,
                    fingerprint=fingerprint, amounts=self.amounts)

    # -- operators -------------------------------------------------------------------------------------------

    def _fuse(self) -> list[list[Node]]:
        """Chains of neighbours with one resource shape and nothing between them; the rest alone. No sinks."""
        groups: list[list[Node]] = []
        group_of: dict[Node, list[Node]] = {}
        for node in (n for n in self.nodes if not isinstance(n.stage, Sink)):
            chain = group_of.get(node.inputs[0].node) if len(node.inputs) == 1 else None
            if chain is None or not self._fusible(chain[-1], node):
                chain = []
                groups.append(chain)
            chain.append(node)
            group_of[node] = chain
        return groups

    def _fusible(self, last: Node, node: Node) -> bool:
        if node.inputs[0].node is not last or self.takers[last, node.inputs[0].port] != [node]:
            return False
        if node.inputs[0] in self.kept:
            return False
        plain = not any(isinstance(n.stage, (Source, Stateful, Reduce)) for n in (last, node))
        fusible = plain and last.stage.resources == node.stage.resources
        if fusible and self.names[node] in self.replay:
            self.parted.append(self.names[node])
            return False
        return fusible

    def _levels(self, mode: Mode) -> dict[Node, int]:
        """The phase of each node: the barriers on the longest way to it. A sink is in its last input's."""
        level: dict[Node, int] = {}
        first = {group[0] for group in self.groups}
        for node in self.nodes:
            before = max((level[end.node] for end in node.inputs), default=-1)
            barrier = (isinstance(node.stage, Reduce) or (mode == "batch" and node in first)
                       or (mode == "shards" and before == 0 and isinstance(node.stage, Stateful)))
            level[node] = before + 1 if barrier else max(0, before)
        return level

    def phase(self, number: int) -> Phase:
        """The operators of one phase: readers of spools, then what begins it, then what follows."""
        here = [n for n in self.nodes if self.level[n] == number]
        groups = [g for g in self.groups if self.level[g[0]] == number]
        groups.sort(key=lambda g: not isinstance(g[0].stage, (Source, Reduce)))
        sinks = [n for n in here if isinstance(n.stage, Sink)]
        # Ports of earlier phases whose rows this one takes, those aside that a `Reduce` reads itself.
        read = list(dict.fromkeys((end.node, end.port) for n in here if not isinstance(n.stage, Reduce)
                                  for end in n.inputs if self.level[end.node] < number))
        replays = any(end.node in here for end in self.kept)
        again = [n for n in here if self._takes_again(n)]
        first = len(read) + replays + bool(again)  # of the operators of stages
        write = first + len(groups)  # the index of the operator of all sinks
        place = {n: Target(first + g, s) for g, group in enumerate(groups) for s, n in enumerate(group)}
        place |= {n: Target(write, s) for s, n in enumerate(sinks)}
        sink_steps = [self.steps[n] for n in sinks]
        operators = []
        for index, end in enumerate(read):
            takers = [n for n in self.takers[end] if n in place and not isinstance(n.stage, Reduce)]
            operators.append(self._reader(index, end, tuple(place[n] for n in takers)))
        behind = [self._operator(index, group, self._routes(group, place, write, sink_steps))
                  for index, group in enumerate(groups, first)]
        if again:
            behind.insert(0, self._failed_reader(first - 1, again, place, write, sink_steps))
        operators += [*behind, Operator(write, "sink", tuple(sink_steps))]
        if replays:
            operators.insert(len(read), self._replay(len(read), operators))
        return Phase(number, tuple(operators))

    def _routes(self, group: list[Node], place: Mapping[Node, Target], write: int,
                sink_steps: list[Step]) -> Ports:
        """Where the rows of a group go. Sinks that the plan adds for them are appended to `sink_steps`."""
        routes: dict[tuple[int, str], tuple[Target, ...]] = {}
        for at, node in enumerate(group):
            for port in (*node.stage.ports, *SIDE_OUTPUTS):
                if at + 1 < len(group) and port == group[at + 1].inputs[0].port:
                    continue
                takers = self.takers.get((node, port), ())
                spools = (self._spool(node, port, n) for n in takers if n not in place)
                added = list({step.name: step for step in spools}.values())
                if not takers and port in SIDE_OUTPUTS and not self._discarded(node, port):
                    added.append(self._implicit(self.steps[node], port))
                if End(node, port) in self.kept:
                    added.append(self._checkpoint(node, port))
                targets = [place[n] for n in takers if n in place]
                targets += [Target(write, len(sink_steps) + i) for i in range(len(added))]
                sink_steps += added
                if targets:
                    routes[at, port] = tuple(targets)
        return routes

    def _operator(self, index: int, group: list[Node], routes: Ports) -> Operator:
        head, chain = group[0], tuple(node.inputs[0].port for node in group[1:])
        steps = tuple(self.steps[n] for n in group)
        payloads = {(at, port): wanted for at, node in enumerate(group)
                    for port in (*node.stage.ports, *SIDE_OUTPUTS)
                    if (wanted := self._lasting(node, port) if End(node, port) in self.kept
                        else self._wanted(node, port)) is not None}
        if isinstance(head.stage, Reduce):
            spools = tuple(dict.fromkeys(self._spool(end.node, end.port, head).name for end in head.inputs))
            return Operator(index, "source", steps, chain, routes, payloads, spools, self._from_spool())
        kind: Kind = "map"
        if isinstance(head.stage, (Source, Stateful)):
            kind = "source" if isinstance(head.stage, Source) else "stateful"
        return Operator(index, kind, steps, chain, routes, payloads)

    def _implicit(self, step: Step, port: str) -> Step:
        """The sink that keeps the rows which a stage dropped, failed or found twice."""
        name = f"{port}/{step.name}"
        sink = ToParquet(path=below(self.folder, name), storage_options=self.options)
        return Step(name, sink, _key(port, step.key), ((step.name, port),), implicit=True)

    # -- between phases --------------------------------------------------------------------------------------

    def _wanted(self, node: Node, port: str) -> frozenset[str] | None:
        """What is read later of the rows of a port, None if that may be everything."""
        takers = self.takers.get((node, port), ())
        known = [names for taker in takers if (names := self.wanted[taker]) is not None]
        return None if len(known) < len(takers) else frozenset().union(*known)

    def _spool(self, node: Node, port: str, taker: Node) -> Step:
        """The sink that keeps the rows of a port for a later phase: one for all that read it as it is, one a
        `Reduce`."""
        of, folder, column, shards = self.steps[node], f"{self.steps[node].name}.{port}", None, 1
        if isinstance(taker.stage, Reduce):
            folder += f".{self.steps[taker].name}"
            if taker.stage.key is not None:
                column, shards = taker.stage.key, taker.stage.shards
        # The payloads that it holds (and columns of unknown type), None for all, count in its key: an edit
        # behind the barrier may ask for others. What comes another way, around the spool, does not count.
        wanted, columns = self._wanted(node, port), self.columns[node]
        carried = None if wanted is None else sorted(
            n for n in wanted if columns is None or columns.get(n, pa.null()) is None)
        key = _key(f"spool {FORMAT}", of.key, port, f"{column}", f"{shards}", f"{carried}")
        sink = ToSpool(path=below(self.folder, f"{SPOOLS}/{folder}"), key=column, shards=shards,
                       storage_options=self.options)
        return Step(f"spool/{folder}", sink, key, ((of.name, port),), spool=True)

    def _lasting(self, node: Node, port: str) -> frozenset[str]:
        """The payloads that a checkpoint keeps: those that it can keep and that may be read behind it."""
        wanted, columns = self._wanted(node, port), self.columns[node]
        return frozenset(n for n in payloads(lasting=True) if (wanted is None or n in wanted)
                         and (columns is None or columns.get(n, pa.null()) is None))

    def _checkpoint(self, node: Node, port: str) -> Step:
        """The sink that keeps the rows of a port for runs after an edit."""
        step, lasting = self.steps[node], sorted(self._lasting(node, port))
        name = f"{step.name}.{port}"
        sink = ToSpool(path=below(self.folder, f"{CHECKPOINTS}/{name}"), storage_options=self.options)
        return Step(CHECKPOINT_PREFIX + name, sink, _key(f"checkpoint {FORMAT}", step.key, port, *lasting),
                    ((step.name, port),), spool=True, checkpoint=True)

    def _replay(self, index: int, operators: list[Operator]) -> Operator:
        """The source that reads the checkpoints of a phase: each to where the rows that it keeps go."""
        sinks, routes = operators[-1], {}
        for targets in (targets for o in operators for targets in o.routes.values()):
            for step in (sinks.steps[t.step] for t in targets if t.operator == sinks.index):
                if step.checkpoint:
                    on = [t for t in targets if t.operator != sinks.index or sinks.steps[t.step] is not step]
                    routes[0, ".".join(step.after[0])] = tuple(on)
        stage = FromCheckpoint(path=below(self.folder, CHECKPOINTS), storage_options=self.options)
        read = Step("read checkpoint", stage, _key(*sorted(port for _, port in routes)), spool=True)
        return Operator(index, "source", (read,), (), routes)

    def _from_spool(self) -> FromSpool:
        return FromSpool(path=below(self.folder, SPOOLS), storage_options=self.options)

    def _reader(self, index: int, end: tuple[Node, str], targets: tuple[Target, ...]) -> Operator:
        """The source that reads a spool into a later phase."""
        step = self._spool(*end, next(n for n in self.takers[end] if not isinstance(n.stage, Reduce)))
        read = Step(f"read {step.name}", self._from_spool(), step.key, spool=True)
        return Operator(index, "source", (read,), (), {(0, "out"): targets}, spools=(step.name,))

    # -- failed rows, once more ------------------------------------------------------------------------------

    def _takes_again(self, node: Node) -> bool:
        """Whether a stage is one to replay, and its failed rows are kept and can come to it alone."""
        alone = not isinstance(node.stage, (Source, Sink, Reduce))
        return (alone and self.names[node] in self.replay and (node, "failed") not in self.takers
                and not self._discarded(node, "failed"))

    def _failed_reader(self, index: int, nodes: list[Node], place: Mapping[Node, Target], write: int,
                       sink_steps: list[Step]) -> Operator:
        """The source of rows that failed before; those that are not asked for stay in `failed/`."""
        routes: dict[tuple[int, str], tuple[Target, ...]] = {}
        needs: dict[str, frozenset[str] | None] = {}
        at = {step.name: Target(write, i) for i, step in enumerate(sink_steps)}
        for node in nodes:
            name, wanted = self.names[node], self.wanted[node]
            known = columns_at(node.inputs, self.columns, self.kept, payloads(lasting=False))
            # what is not known to be needed may be: all that there is
            needs[name] = wanted if wanted is not None else None if known is None else frozenset(known)
            kept = f"failed/{name}"
            routes |= {(0, name): (place[node],), (0, kept): (at[kept],)}
        stage = FromFailed(path=self.folder, needs=needs, behind=tuple(self.parted),
                           storage_options=self.options,
                           counted={self.names[n]: tuple(n.stage.count_by) for n in nodes})
        return Operator(index, "source", (Step("read failed", stage, "", spool=True, amounts=self.amounts),),
                        (), routes)
