"""From graph to operators: names, fusion, routes, contracts, keys.

An operator is what one worker runs: one stage, or neighbours that share a resource shape, with no hop between them. Sources
stay alone (they are read unit by unit), so do stateful stages (one worker holds the state); all sinks share one operator, in
which each unit stays with one worker.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from curator.errors import ContractError, RecipeError
from curator.io.files import Folder
from curator.io.to_parquet import ToParquet
from curator.pipeline import End, Node, Pipeline
from curator.resources import Resources
from curator.stage import ENDINGS, Sink, Source, Stage, Stateful

Kind = Literal["source", "map", "stateful", "sink"]
ENDING_COLUMNS: dict[str, dict[str, pa.DataType | None]] = {
    "dropped": {"reason": pa.string()},
    "duplicate": {"duplicate_of": pa.string()},
    "failed": {"error": pa.string(), "traceback": pa.string()},
}


@dataclass(frozen=True)
class Step:
    """A stage with its name in this pipeline, unique, and its key.

    `key`: 16 hex digits of the stage's fingerprint and of every stage upstream; results of two runs may stand side by
    side when their keys are equal. `after`: the names of the steps and the ports that feed it. `keeper`: a sink that the
    plan added, for rows on an ending that no stage takes.
    """

    name: str
    stage: Stage
    key: str
    after: tuple[tuple[str, str], ...] = ()
    keeper: bool = False


@dataclass(frozen=True)
class Target:
    """Where rows go: an operator, and the step in it that takes them."""

    operator: int
    step: int = 0


@dataclass(frozen=True)
class Operator:
    """Steps that one worker runs. `chain`: for each step but the last, the port that leads to the next one.

    `routes`: where the rows of (step, port) go; a port that is not there is counted and let go.
    """

    index: int
    kind: Kind
    steps: tuple[Step, ...]
    chain: tuple[str, ...] = ()
    routes: Mapping[tuple[int, str], tuple[Target, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        names = [s.name for s in self.steps]
        return "write" if self.kind == "sink" else " + ".join(names)

    @property
    def resources(self) -> Resources:
        return max((s.stage.resources for s in self.steps), key=lambda r: (r.gpus, r.cpus))

    @property
    def batch_size(self) -> int | None:
        return self.steps[0].stage.batch_size

    @property
    def timeout_s(self) -> float | None:
        """The longest that one `process` call of a step may take; None if a step has no limit."""
        limits = [s.stage.timeout_s for s in self.steps if s.stage.timeout_s is not None]
        return max(limits) if limits else None


@dataclass(frozen=True)
class Plan:
    """Operators in topological order: sources first, the one of the sinks last."""

    pipeline: Pipeline
    operators: tuple[Operator, ...]
    columns: Mapping[str, Mapping[str, pa.DataType | None] | None]  # after each step, None where unknown

    @property
    def steps(self) -> list[Step]:
        return [step for operator in self.operators for step in operator.steps]

    def consumers(self, operator: int) -> set[int]:
        return {t.operator for targets in self.operators[operator].routes.values() for t in targets}

    def gate(self, operator: int) -> bool:
        """True when every row of every source goes through this operator."""
        seen, todo = set(), [o.index for o in self.operators if o.kind == "source"]
        while todo:
            at = todo.pop()
            if at in seen or at == operator:
                continue
            seen.add(at)
            outs = {t.operator for (_, port), targets in self.operators[at].routes.items()
                    if port not in ENDINGS for t in targets}
            if not outs or any(self.operators[o].kind == "sink" for o in outs):
                return False
            todo.extend(outs)
        return True


def make_plan(pipeline: Pipeline) -> Plan:
    """Check the graph and its contracts, and fuse it into operators.

    Raises:
        RecipeError: no sink, a port that leads nowhere, two sinks in one folder.
        ContractError: a stage needs a column or payload that nothing before it makes.
    """
    nodes = pipeline.nodes()
    if not pipeline.sinks:
        raise RecipeError("the pipeline writes nothing: end it with a sink, for example >> write('out/')")
    for end in pipeline.ends:
        raise RecipeError(f"port {end.port!r} of stage {end.node.stage.name!r} leads nowhere: add a sink or discard it")
    names = _unique_names(nodes)
    takers = _takers(nodes)
    _check_ports(nodes, names, takers, pipeline.settings.discard)
    columns = _check_contracts(nodes, names)
    steps = _steps(pipeline, nodes, names)
    groups = _fuse([n for n in nodes if not isinstance(n.stage, Sink)], takers)
    return Plan(pipeline, _operators(pipeline, nodes, groups, steps, takers),
                {names[n]: columns[n] for n in nodes})


def out_folder(pipeline: Pipeline) -> str:
    """The run's folder: as the settings say, else the path of the first sink."""
    if pipeline.settings.out is not None:
        return pipeline.settings.out
    first = pipeline.sinks[0].stage
    assert isinstance(first, Sink)
    return first.path


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
                raise RecipeError(f"{_at(node)}port {port!r} of stage {names[node]!r} leads nowhere: "
                                  f"give it a stage or a sink, or discard {port + '/' + names[node]!r}")
    folders: dict[str, str] = {}
    for node in nodes:
        if isinstance(node.stage, Sink):
            path = _folder_of(node.stage)
            if path in folders:
                raise RecipeError(f"{_at(node)}sinks {folders[path]!r} and {names[node]!r} write to one folder, {path}")
            folders[path] = names[node]


def _discarded(discard: tuple[str, ...], port: str, name: str) -> bool:
    return port in discard or f"{port}/{name}" in discard


def _check_contracts(nodes: list[Node], names: dict[Node, str]) -> dict[Node, dict | None]:
    """The columns after each node (None where a source does not say), checked against what each one needs."""
    after: dict[Node, dict | None] = {}
    for node in nodes:
        if isinstance(node.stage, Source):
            known = node.stage.columns()
            after[node] = None if known is None else {"id": pa.string(), "source": pa.string(), **known}
            continue
        before = _columns_at(node.inputs, after)
        contract = node.stage.contract()
        if before is None:
            after[node] = None
            continue
        needs = contract.needs if isinstance(contract.needs, Mapping) else dict.fromkeys(contract.needs)
        for name, kind in needs.items():
            _check_need(node, names[node], name, kind, before)
        try:
            node.stage.check(before)
        except RecipeError as error:
            raise type(error)(f"{_at(node)}stage {names[node]!r}: {error}") from None
        after[node] = node.stage.columns_after(before)
    return after


def _columns_at(ends: tuple[End, ...], after: dict[Node, dict | None]) -> dict | None:
    """The columns that all of these ends carry."""
    tables = []
    for end in ends:
        columns = after[end.node]
        if columns is None:
            return None
        tables.append({**columns, **ENDING_COLUMNS.get(end.port, {})})
    common = dict(tables[0])
    for other in tables[1:]:
        common = {n: (k if other[n] == k else None) for n, k in common.items() if n in other}
    return common


def _check_need(node: Node, stage: str, name: str, kind: pa.DataType | None, before: dict) -> None:
    if name not in before:
        near = difflib.get_close_matches(name, before, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(before)) or 'none'}"
        raise ContractError(f"{_at(node)}stage {stage!r} needs {name!r}, which nothing before it makes; {hint}")
    have = before[name]
    if kind is not None and have is not None and not have.equals(kind) and not _same_family(have, kind):
        raise ContractError(f"{_at(node)}stage {stage!r} needs {name!r} as {kind}, and here it is {have}")


def _same_family(a: pa.DataType, b: pa.DataType) -> bool:
    t = pa.types
    families = (lambda x: t.is_string(x) or t.is_large_string(x) or t.is_null(x),
                lambda x: t.is_binary(x) or t.is_large_binary(x),
                lambda x: t.is_integer(x) or t.is_floating(x))
    return any(same(a) and same(b) for same in families)


def _at(node: Node) -> str:
    return f"{node.place}: " if node.place else ""


def _steps(pipeline: Pipeline, nodes: list[Node], names: dict[Node, str]) -> dict[Node, Step]:
    steps: dict[Node, Step] = {}
    for node in nodes:
        above = sorted(f"{steps[end.node].key}.{end.port}" for end in node.inputs)
        if isinstance(node.stage, Sink):
            above.append(_place(node.stage, pipeline))
        text = "\n".join([names[node], node.stage.fingerprint(), *above])
        key = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        steps[node] = Step(names[node], node.stage, key, tuple((names[e.node], e.port) for e in node.inputs))
    return steps


def _folder_of(sink: Sink) -> str:
    """A sink's folder, called the same however its path is written (`out`, `./out/`, `file:///…/out`)."""
    return Folder.open(str(sink.path), dict(getattr(sink, "storage_options", None) or {}) or None).uri.rstrip("/")


def _place(sink: Sink, pipeline: Pipeline) -> str:
    """Where a sink writes, from the run's folder where it lies in that: a run's folder may be moved."""
    root = Folder.open(out_folder(pipeline), dict(pipeline.settings.storage_options) or None).uri.rstrip("/")
    folder = _folder_of(sink)
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
    plain = not any(isinstance(n.stage, (Source, Stateful)) for n in (last, node))
    return plain and last.stage.resources == node.stage.resources


def _operators(pipeline: Pipeline, nodes: list[Node], groups: list[list[Node]], steps: dict[Node, Step],
               takers: dict) -> tuple[Operator, ...]:
    place: dict[Node, Target] = {n: Target(g, s) for g, group in enumerate(groups) for s, n in enumerate(group)}
    write = len(groups)
    sinks = [n for n in nodes if isinstance(n.stage, Sink)]
    sink_steps = [steps[n] for n in sinks]
    place |= {n: Target(write, s) for s, n in enumerate(sinks)}
    discard = pipeline.settings.discard
    operators = []
    for index, group in enumerate(groups):
        chain = tuple(node.inputs[0].port for node in group[1:])
        routes: dict[tuple[int, str], tuple[Target, ...]] = {}
        for at, node in enumerate(group):
            for port in (*node.stage.ports, *ENDINGS):
                if at < len(chain) and port == chain[at]:
                    continue
                targets = tuple(place[n] for n in takers.get((node, port), ()))
                if not targets and port in ENDINGS and not _discarded(discard, port, steps[node].name):
                    targets = (Target(write, len(sink_steps)),)
                    sink_steps.append(_keeper(pipeline, steps[node], port))
                if targets:
                    routes[(at, port)] = targets
        operators.append(Operator(index, _kind(group[0].stage), tuple(steps[n] for n in group), chain, routes))
    operators.append(Operator(write, "sink", tuple(sink_steps)))
    return tuple(operators)


def _keeper(pipeline: Pipeline, step: Step, port: str) -> Step:
    """The sink that keeps the rows which a stage dropped, failed or found twice."""
    folder = f"{out_folder(pipeline).rstrip('/')}/{port}/{step.name}"
    sink = ToParquet(path=folder, storage_options=dict(pipeline.settings.storage_options) or None)
    key = hashlib.blake2b(f"{port}\n{step.key}".encode(), digest_size=8).hexdigest()
    return Step(f"{port}/{step.name}", sink, key, ((step.name, port),), keeper=True)


def _kind(stage: Stage) -> Kind:
    return "source" if isinstance(stage, Source) else "stateful" if isinstance(stage, Stateful) else "map"
