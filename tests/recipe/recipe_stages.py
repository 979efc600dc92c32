"""Two fake packs, `core` and `text`, and what the tests of recipes share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from curator.api.errors import RecipeError
from curator.api.resources import Resources
from curator.api.stage import Sink, Source, Stage, setting, stage
from curator.front import Pipeline, load
from curator.pipeline.graph import Node


@dataclass(kw_only=True)
class Jsonl(Source):
    """Records of JSON lines."""

    path: str | list[str]
    storage_options: dict[str, Any] | None = setting(default=None)


@dataclass(kw_only=True)
class Archive(Source):
    name = "warc"
    path: str | list[str]
    limit: int | None = None


@dataclass(kw_only=True)
class ToParquet(Sink):
    path: str
    storage_options: dict[str, Any] | None = setting(default=None)


@dataclass(kw_only=True)
class ToJsonl(Sink):
    path: str


@dataclass(kw_only=True)
class Report(Sink):
    path: str


@dataclass(kw_only=True)
class Drop(Stage):
    conditions: dict[str, str] = field(default_factory=dict)
    rules: str | list[str] | None = None


@dataclass(kw_only=True)
class Route(Stage):
    conditions: dict[str, str]

    def __post_init__(self):
        if not self.conditions:
            raise ValueError("a route needs at least one label")
        self.ports = tuple(self.conditions)


@dataclass(kw_only=True)
class Limit(Stage):
    rows: int


@dataclass(kw_only=True)
class Exact(Stage):
    name = "dedup.exact"


@dataclass(kw_only=True)
class Sample(Stage):
    fraction: float = 0.5
    seed: int = 0


@dataclass(kw_only=True)
class Language(Stage):
    keep: list[str] | None = None
    threshold: float = 0.5
    resources = Resources(cpus=2, memory_gb=1)

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be between 0 and 1, got {self.threshold}")


@dataclass(kw_only=True)
class Signals(Stage):
    column: str = "text"


@dataclass
class Window:
    size: int
    step: int = 1


@dataclass(kw_only=True)
class Typed(Stage):
    """One parameter of each kind of type."""

    text: str = ""
    whole: int = 0
    number: float = 0.0
    switch: bool = False
    mode: Literal["fast", "exact", 3] = "fast"
    names: list[str] = field(default_factory=list)
    pair: tuple[int, float] = (0, 0.0)
    many: tuple[int, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    by_number: dict[int, str] = field(default_factory=dict)
    either: int | str = 0
    maybe: float | None = None
    window: Window | None = None
    path: Path | None = None
    anything: Any = None
    unique: set[str] = field(default_factory=set)
    nested: list[dict[str, list[int]]] = field(default_factory=list)


@dataclass(kw_only=True)
class Quality(Stage):
    ports = ("out", "poor")


@stage
def shout(batch, column: str, times: int = 1):
    """Upper case."""
    return batch


CORE = (Jsonl, ToParquet, ToJsonl, Report, Drop, Route, Limit, Exact, Sample, Typed, Quality)
TEXT = (Archive, Language, Signals, shout)


def graph(pipeline: Pipeline) -> list:
    """The graph as plain values: what every sink rests on."""

    def describe(node: Node):
        return (type(node.stage).__name__, node.stage.fingerprint(), node.stage.name, node.stage.batch_size,
                node.stage.resources, sorted(((describe(e.node), e.port) for e in node.inputs), key=repr))

    return sorted((describe(sink) for sink in pipeline.sinks), key=repr)


def flat(pipeline: Pipeline) -> list[str]:
    return [node.stage.name for node in pipeline.nodes()]


def problems(text: str, overrides=None) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load(text, overrides or {})
    return str(caught.value).splitlines()


def step(text: str) -> Stage:
    """The stage that a step makes."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    made = load(f"read: {{jsonl: {{path: x}}}}\nsteps:\n  -\n{lines}write: {{parquet: {{path: o}}}}\n")
    return made.sinks[0].inputs[0].node.stage


def wrong(text: str) -> str:
    """The one problem of a step."""
    [problem] = problems("read: {jsonl: {path: x}}\nsteps:\n  - " + text + "\nwrite: {parquet: {path: o}}\n")
    return problem


DESIGN = """\
name: web-text
description: Good pages.
read:  {text.warc: {path: crawl/*.warc.gz}}
steps:
  - text.language: {keep: [en, no]}
  - text.signals
  - drop: {rules: gopher}
  - drop:
      too_short: word_count < 50
      shouting: upper_ratio > 0.3
  - dedup.exact
  - route:
      high: quality >= 0.8
      low: quality < 0.8
write: {parquet: {path: out/}}
branches:
  low: {steps: [text.shout: {column: text}], write: {parquet: {path: out-low/}}}
max_failed: 5%
discard: [duplicate, dropped/drop-2]
seed: 7
"""
