"""A pipeline as YAML: what stands in `_run/recipe.yaml`, and loads again as the same graph."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import yaml

from curator.api.stage import FunctionStage, Sink, Source, Stage
from curator.io.yaml import scalar
from curator.pipeline.graph import End, Graph, Node, Settings
from curator.recipe.graph import sink_name
from curator.recipe.parameters import REQUIRED, parameters
from curator.registry import packs

HIDDEN = "***"
_SECRET = re.compile(r"secret|key|token|password|passwd|credential|signature", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+@")
_SECRET_IN_URL = re.compile(r"([?&][^=&\s]*(?:secret|key|token|password|credential|signature|sig)[^=&\s]*=)[^&\s]+",
                            re.IGNORECASE)


@dataclass(eq=False)
class _Line:
    """A main line or a branch; `ends` is where the next step would take its rows from."""

    name: str = ""
    takes: list[End] = field(default_factory=list)
    by_label: bool = False
    read: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)
    write: list[Node] = field(default_factory=list)
    ends: set[End] = field(default_factory=set)


def dump(pipeline: Graph) -> str:
    """The recipe of a pipeline. Parameters that have their default are left out; secrets are written as `***`.

    A stage that no installed pack offers is written by its Python name; a comment says that the recipe does not load.
    """
    nodes = pipeline.nodes()
    names = _names(nodes)
    lines = _Lines(nodes, names).found
    made = {node: _Made.of(node.stage) for node in nodes}
    stated = _stated_names(lines, names, made, pipeline.settings.discard)

    def entry(node: Node) -> Any:
        return made[node].entry(node.stage, names[node] if node in stated else None)

    def written(line: _Line) -> dict[str, Any]:
        takes = [] if line.by_label else [f"{names[end.node]}.{end.port}" for end in line.takes]
        parts = {"from": takes, "read": [entry(n) for n in line.read], "steps": [entry(n) for n in line.steps],
                 "write": [entry(n) for n in line.write]}
        return {key: part[0] if len(part) == 1 and key != "steps" else part for key, part in parts.items() if part}

    about = {key: text for key in ("description", "license") if (text := getattr(pipeline.settings, key))}
    recipe = {"name": pipeline.name} | about | (written(lines[0]) if lines else {})
    if len(lines) > 1:
        recipe["branches"] = {line.name: written(line) for line in lines[1:]}
    recipe |= _settings(pipeline.settings)
    text = yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    strangers = {m.name for m in made.values() if m.plain is None}
    if not strangers:
        return text
    return ("# This recipe does not load: these stages are in no installed pack, they were given in Python.\n"
            + "".join(f"#   {name}\n" for name in sorted(strangers)) + text)


def without_secrets(text: str) -> str:
    """A path or URL as it may be shown."""
    return _plain(text)


def _settings(settings: Settings) -> dict[str, Any]:
    """The settings that are not the usual ones, by their keys in a recipe."""
    given: dict[str, Any] = {}
    if settings.max_failed != Settings.max_failed:
        given["max_failed"] = settings.max_failed if settings.max_failed != float("inf") else "100%"
    if settings.discard:
        given["discard"] = list(settings.discard)
    if settings.out is not None:
        given["out"] = _plain(settings.out)
    if settings.storage_options:
        given["storage_options"] = _plain(settings.storage_options, "storage_options")
    return given


# -- lines -----------------------------------------------------------------------------------------------------


class _Lines:
    """Finds lines in a graph: one that goes on from port to port as long as it can, and a branch for all else."""

    def __init__(self, nodes: list[Node], names: dict[Node, str]) -> None:
        self.nodes, self.names = nodes, names
        self.found: list[_Line] = []
        self.takers: dict[End, list[Node]] = {}
        for node in nodes:
            for end in node.inputs:
                self.takers.setdefault(end, []).append(node)
        for node in (n for n in nodes if not isinstance(n.stage, Source)):
            line = self._line_to(node)
            if isinstance(node.stage, Sink):
                line.write.append(node)
            else:
                line.steps.append(node)
                line.ends = self._stay(node)

    def _line_to(self, node: Node) -> _Line:
        """The line on which this node comes next, a new one if there is none."""
        inputs = set(node.inputs)
        for line in self.found:
            if line.ends == inputs and (not line.write or isinstance(node.stage, Sink)):
                return line
        read = {n for line in self.found for n in line.read}
        own = [end for end in node.inputs if isinstance(end.node.stage, Source) and end.node not in read]
        takes = [end for end in node.inputs if end not in own]
        line = _Line(takes=takes, read=[end.node for end in own], ends=inputs)
        if self.found:  # the first line is the main one, and takes nothing: before its first node are only sources
            label = takes[0].port if len(takes) == 1 and takes[0].port != "out" else self.names[node]
            line.name = self._free_name(label)
            line.by_label = not own and self._is_label(node, line.name)
        self.found.append(line)
        return line

    def _is_label(self, node: Node, name: str) -> bool:
        """Whether a branch of this name is fed by it: one stage has this port, and only this node takes it."""
        owners = [n for n in self.nodes if name in n.stage.ports]
        return len(owners) == 1 and node.inputs == (End(owners[0], name),) and self.takers[node.inputs[0]] == [node]

    def _free_name(self, name: str) -> str:
        taken = {line.name for line in self.found}
        ports = {port for node in self.nodes for port in node.stage.ports}
        free, count = name, 1
        while free in taken or (free != name and free in ports):
            count += 1
            free = f"{name}-{count}"
        return free

    def _stay(self, node: Node) -> set[End]:
        """The ports whose rows stay on the line: `out`, or the labels that the first of its takers takes."""
        if "out" in node.stage.ports:
            return {End(node)}
        ends = {End(node, port) for port in node.stage.ports}
        for taker in self.nodes:
            together = set(taker.inputs)
            if together and together <= ends and all(self.takers[end] == [taker] for end in together):
                return together
        return set()


# -- names -----------------------------------------------------------------------------------------------------


def _names(nodes: list[Node]) -> dict[Node, str]:
    """The names that the funnel shows: the second `drop` is `drop-2`."""
    names: dict[Node, str] = {}
    for node in nodes:
        name, count = node.stage.name, 1
        while name in names.values():
            count += 1
            name = f"{node.stage.name}-{count}"
        names[node] = name
    return names


def _stated_names(lines: list[_Line], names: dict[Node, str], made: dict[Node, _Made],
                  discard: tuple[str, ...]) -> set[Node]:
    """The nodes whose name must be written, since loading the recipe would not give them the same name."""
    base_of = dict(_bases(lines, made))
    order, bases = list(base_of), list(base_of.values())
    called = {names[end.node] for line in lines if not line.by_label for end in line.takes}
    called |= {text.partition("/")[2] for text in discard}
    stated = {n for n in order if names[n] in called and bases.count(names[n]) > 1}
    while True:
        taken = {names[n] for n in stated}
        wrong = set()
        for node in (n for n in order if n not in stated):
            base = name = base_of[node]
            count = 1
            while name in taken:
                count += 1
                name = f"{base}-{count}"
            taken.add(name)
            if name != names[node]:
                wrong.add(node)
        if not wrong:
            return stated
        stated |= wrong


def _bases(lines: list[_Line], made: dict[Node, _Made]) -> Iterator[tuple[Node, str]]:
    """What a step is called before its name is made unique, in the order in which a recipe's steps get their names."""
    sinks_of_branches = []
    for line in lines:
        label = sink_name(line.name)
        yield from ((node, made[node].base) for node in (*line.read, *line.steps))
        for node in line.write:
            if label:
                sinks_of_branches.append((node, label))
            else:
                yield node, made[node].base
    yield from sinks_of_branches


# -- steps -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Made:
    """A stage as a recipe says it. `plain` is what its parameters alone make, None if no pack offers the stage."""

    name: str
    given: Mapping[str, Any]
    base: str
    plain: Stage | None

    @classmethod
    def of(cls, stage: Stage) -> _Made:
        name = packs.name_of(stage)
        if name is None:
            made_by = stage.function if isinstance(stage, FunctionStage) else type(stage)
            given = stage.arguments if isinstance(stage, FunctionStage) else stage.parameters()
            return cls(f"{made_by.__module__}.{made_by.__qualname__}", given, stage.name, None)
        factory = packs.stage_class(name)
        values = stage.arguments if isinstance(stage, FunctionStage) else {
            p.name: getattr(stage, p.name) for p in parameters(factory)}
        usual = {p.name: p.default for p in parameters(factory)}
        given = {key: value for key, value in values.items()
                 if usual[key] is REQUIRED or repr(value) != repr(usual[key])}  # 1 == 1.0 == True, but are not the same
        return cls(name, given, factory.name, factory(**values))

    def entry(self, stage: Stage, name: str | None) -> Any:
        """The step in the recipe: its name, its parameters and what was changed after it was made."""
        written = re.sub(r"(^|\.)to_([^.]+)$", r"\1\2", self.name) if isinstance(stage, Sink) else self.name
        values = {key: _plain(value, key) for key, value in self.given.items()}
        extra = {"name": name} if name is not None else {}
        if self.plain is not None:
            changed = {key: getattr(stage, key) for key in ("batch_size", "timeout_s")}
            extra |= {k: v for k, v in changed.items() if v is not None and v != getattr(self.plain, k)}
            if stage.resources != self.plain.resources:
                usual, now = dataclasses.asdict(self.plain.resources), dataclasses.asdict(stage.resources)
                extra["resources"] = {key: value for key, value in now.items() if value != usual[key]}
        if not values and not extra:
            return written
        return {written: values or None} | ({"with": extra} if extra else {})


def _plain(value: Any, key: str = "") -> Any:
    """A parameter in YAML's own types; secrets are hidden."""
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name), f.name) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        hide = key == "storage_options"
        return {str(k): HIDDEN if hide and v is not None and _SECRET.search(str(k)) else _plain(v, key)
                for k, v in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(v, key) for v in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [_plain(v, key) for v in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value) if isinstance(value, (str, PurePath)) else f"{value!r}"
    return _SECRET_IN_URL.sub(rf"\1{HIDDEN}", _USER_IN_URL.sub(f"{HIDDEN}@", text))


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, since recipes have none, and texts so that they are texts again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if scalar(text) == text else "'"  # YAML 1.1, which PyYAML writes, takes 1e-3 for a text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
