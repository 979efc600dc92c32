"""A pipeline as YAML: what stands in `_run/recipe.yaml`, and loads again as the same graph."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import yaml

from curator.api.stage import FunctionStage, Sink, Source, Stage
from curator.io.yaml import scalar
from curator.pipeline.graph import End, Graph, Node, Settings
from curator.recipe.graph import sink_name, unique
from curator.recipe.parameters import REQUIRED, parameters
from curator.registry import packs

HIDDEN = "***"
_WORDS = "secret|key|token|password|passwd|credential|signature|connection[-_]string|authorization"
_OPTIONS = ("storage_options", "lance_options")
_SECRET = re.compile(_WORDS, re.IGNORECASE)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+@")
_SECRET_IN_URL = re.compile(rf"([?&][^=&\s]*(?:{_WORDS}|sig)[^=&\s]*=)[^&\s]+", re.IGNORECASE)


@dataclass(eq=False)
class _Line:
    """The main line or a branch. The next step on it is the one that takes exactly `ends`."""

    name: str = ""
    takes: list[End] = field(default_factory=list)
    read: list[Node] = field(default_factory=list)
    steps: list[Node] = field(default_factory=list)
    write: list[Node] = field(default_factory=list)
    ends: set[End] = field(default_factory=set)


def dump(pipeline: Graph) -> str:
    """The recipe of a pipeline. Parameters that have their default are left out; secrets are written as
    `***`.

    A stage that no installed pack offers is written by its Python name; a comment says that the recipe does
    not load.
    """
    nodes, names = pipeline.nodes(), pipeline.names()
    main, *branches = _lines(nodes, names) or [_Line()]
    about = {key: text for key in ("description", "license") if (text := getattr(pipeline.settings, key))}
    recipe = {"name": pipeline.name} | about | _written(main, names)
    if branches:
        recipe["branches"] = {line.name: _written(line, names) for line in branches}
    recipe |= _settings(pipeline.settings)
    text = yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110,
                     default_flow_style=None)
    stages = [stage for node in nodes for stage in (node.stage, *node.stage.inner().values())]
    strangers = {packs.described(stage) for stage in stages if packs.name_of(stage) is None}
    if not strangers:
        return text
    return ("# This recipe does not load: these stages are in no installed pack, they were given in Python.\n"
            + "".join(f"#   {name}\n" for name in sorted(strangers)) + text)


def without_secrets(text: str) -> str:
    """A path or URL as it may be shown."""
    return _SECRET_IN_URL.sub(rf"\1{HIDDEN}", _USER_IN_URL.sub(f"{HIDDEN}@", text))


def _settings(settings: Settings) -> dict[str, Any]:
    """The settings that are not the usual ones, by their keys in a recipe."""
    given: dict[str, Any] = {}
    if settings.max_failed != Settings.max_failed:
        given["max_failed"] = settings.max_failed if settings.max_failed != float("inf") else "100%"
    if settings.discard:
        given["discard"] = list(settings.discard)
    if settings.out is not None:
        given["out"] = plain(settings.out)
    if settings.storage_options:
        given["storage_options"] = plain(dict(settings.storage_options), "storage_options")
    return given


def _lines(nodes: list[Node], names: Mapping[Node, str]) -> list[_Line]:
    """The graph cut into lines: each goes on from `out` to the first step that takes nothing else."""
    lines: list[_Line] = []
    for node in (n for n in nodes if not isinstance(n.stage, Source)):
        inputs, is_sink = set(node.inputs), isinstance(node.stage, Sink)
        line = next((one for one in lines if one.ends == inputs and (is_sink or not one.write)), None)
        if line is None:
            read = {source for one in lines for source in one.read}
            fresh = [e.node for e in node.inputs if isinstance(e.node.stage, Source) and e.node not in read]
            takes = [e for e in node.inputs if e.node not in fresh]
            label = takes[0].port if len(takes) == 1 and takes[0].port != "out" else names[node]
            line = _Line(unique(label, [one.name for one in lines]) if lines else "", takes, fresh,
                         ends=inputs)
            lines.append(line)
        if is_sink:
            line.write.append(node)
        else:
            line.steps.append(node)
            line.ends = {End(node)}
    return lines


def _written(line: _Line, names: Mapping[Node, str]) -> dict[str, Any]:
    """A line under its keys. A step's name is written where loading would give it another."""
    label = sink_name(line.name)
    parts = {"from": [f"{names[end.node]}.{end.port}" for end in line.takes],
             "read": [_entry(node.stage, names[node]) for node in line.read],
             "steps": [_entry(node.stage, names[node]) for node in line.steps],
             "write": [_entry(node.stage, names[node], label) for node in line.write]}
    return {key: part[0] if len(part) == 1 and key != "steps" else part for key, part in parts.items()
            if part}


def _entry(stage: Stage, name: str, usual_name: str = "") -> Any:
    """The step in the recipe: what offers it, its parameters, and what was changed after it was made."""
    offered = packs.name_of(stage)
    extra: dict[str, Any] = {}
    if offered is None:
        written = packs.described(stage)
        given = stage.arguments if isinstance(stage, FunctionStage) else stage.parameters()
    else:
        written = re.sub(r"(^|\.)to_([^.]+)$", r"\1\2", offered) if isinstance(stage, Sink) else offered
        factory = packs.stage_class(offered)
        usual = {p.name: p.default for p in parameters(factory)}
        values = (stage.arguments if isinstance(stage, FunctionStage)
                  else {key: getattr(stage, key) for key in usual})
        given = {key: value for key, value in values.items()
                 # 1 == 1.0 == True, but are not the same
                 if usual[key] is REQUIRED or repr(value) != repr(usual[key])}
        if name != (usual_name or factory.name):
            extra["name"] = name
        extra |= _changed(stage, factory(**values))
    values = {key.removesuffix("_"): plain(value, key) for key, value in given.items()}
    if not values and not extra:
        return written
    return {written: values or None} | ({"with": extra} if extra else {})


def _changed(stage: Stage, usual: Stage) -> dict[str, Any]:
    """What `with_` changed in a stage, compared with what its parameters alone make."""
    changed = {key: getattr(stage, key) for key in ("batch_size", "timeout_s")
               if getattr(stage, key) not in (None, getattr(usual, key))}
    if stage.resources != usual.resources:
        before, now = dataclasses.asdict(usual.resources), dataclasses.asdict(stage.resources)
        changed["resources"] = {key: value for key, value in now.items() if value != before[key]}
    return changed


def plain(value: Any, key: str = "") -> Any:
    """A parameter in YAML's own types; secrets are hidden."""
    if isinstance(value, Stage):
        return _entry(value, value.name)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        is_options = key in _OPTIONS
        return {str(name): HIDDEN if is_options and inner is not None and _SECRET.search(str(name))
                else plain(inner, key if is_options else name) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, key) for inner in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(inner, key) for inner in value), key=repr)
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return without_secrets(str(value) if isinstance(value, (str, PurePath)) else repr(value))


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, since recipes have none, and texts so that they are texts again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if scalar(text) == text else "'"  # YAML 1.1, which PyYAML writes, takes 1e-3 for a text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
