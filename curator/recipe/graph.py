"""The lines of a recipe, joined to a graph.

A line is the main one (`read`, `steps`, `write`) or a branch. It starts with its own sources, with ports that
it names (`from: stage.port`) or with the port that has the branch's name; it ends in sinks, or in a `merge`
of another line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from curator.api.names import suggestion
from curator.api.stage import SIDE_OUTPUTS, Sink, Stage
from curator.io.yaml import Item, Problems
from curator.pipeline.graph import End, Node, unique


@dataclass(eq=False)
class Step:
    """A source, stage or sink as a recipe names it. `stage` is None when it could not be made."""

    written: str
    path: str
    item: Item
    stage: Stage | None
    named: bool = False  # by the recipe, with `with: {name: …}`
    base: str = ""  # the stage's name before it was made unique
    node: Node = field(init=False)  # when the lines are joined

    @property
    def made(self) -> Stage:
        assert self.stage is not None, self.path
        return self.stage

    @property
    def place(self) -> str:
        return f"{self.item.place}: {self.path}"

    @property
    def names(self) -> set[str]:
        """What `from` and `discard` may call it."""
        if self.named or isinstance(self.stage, Sink):
            return {self.made.name}
        return {self.made.name, self.base, self.written}


@dataclass(eq=False)
class Merge:
    """The step `merge: [label, …]`."""

    path: str
    item: Item
    labels: dict[str, Item]


@dataclass(eq=False)
class Line:
    """The main line (its name is empty) or a branch. `takes`: the texts `stage.port` that it says it starts
    from."""

    name: str
    path: str
    item: Item
    sources: list[Step] = field(default_factory=list)
    takes: dict[str, Item] = field(default_factory=dict)
    steps: list[Step | Merge] = field(default_factory=list)
    sinks: list[Step] = field(default_factory=list)
    feeds: list[tuple[Step, str]] = field(default_factory=list)
    ends: tuple[End, ...] = ()

    @property
    def spoken(self) -> str:
        return f"branch {self.name!r}" if self.name else "the main line"


def all_steps(lines: list[Line]) -> Iterator[Step]:
    """Every source, stage and sink, in the order of the recipe."""
    for line in lines:
        yield from line.sources
        yield from (s for s in line.steps if isinstance(s, Step))
        yield from line.sinks


def give_names(lines: list[Line], problems: Problems) -> None:
    """Make the names unique, as the funnel shows them: the second `drop` is `drop-2`, unless the recipe names
    it.

    The sink of a branch is called like the branch, and so is its folder.
    """
    taken: set[str] = set()
    for step in (s for s in all_steps(lines) if s.named and s.stage):
        if step.made.name in taken:
            problems.add(step.item, f"{step.path}.with.name", f"two steps are named {step.made.name!r}")
        taken.add(step.made.name)
    label = {id(sink): name for line in lines if (name := sink_name(line.name)) for sink in line.sinks}
    unnamed = sorted((s for s in all_steps(lines) if not s.named and s.stage), key=lambda s: id(s) in label)
    for step in unnamed:
        step.base = label.get(id(step), step.made.name)
        name = unique(step.base, taken)
        taken.add(name)
        if name != step.made.name:
            step.stage = step.made.with_(name=name)


def sink_name(branch: str) -> str:
    """What the sink of a branch is called, "" where the branch's name would be no good one for a folder."""
    return branch if re.fullmatch(r"[^\W_][^/]*", branch) else ""


class RecipeGraph:
    """The lines while they are joined. Every method notes what is wrong; `join` gives the sinks."""

    def __init__(self, lines: list[Line], discard: dict[str, Item], problems: Problems) -> None:
        self.lines, self.problems = lines, problems
        self.steps = list(all_steps(lines))
        self.branches = {line.name: line for line in lines if line.name}
        self.merged: dict[str, Merge] = {}
        self.taken: set[tuple[Step, str]] = set()  # ports that do not stay on their line
        self.discard = tuple(self._discarded(text, item) for text, item in discard.items())

    def join(self) -> tuple[Node, ...]:
        """The sinks, those of the main line first, each with all that leads to it."""
        self._find_merges()
        if not all(step.stage for step in self.steps):  # ports are not known, and are not judged
            return ()
        for line in self.branches.values():
            self._find_feeds(line)
        if not self.problems.found:
            self._run()
        return () if self.problems.found else tuple(step.node for line in self.lines for step in line.sinks)

    def find(self, name: str, item: Item, path: str) -> Step | None:
        """The step of this name, as the recipe writes it or as the funnel shows it."""
        found = [s for s in self.steps if s.stage and name in s.names]
        if len(found) > 1:
            found = [s for s in found if s.named] or found
        if len(found) == 1:
            return found[0]
        names = [s.stage.name for s in self.steps if s.stage]
        self.problems.add(item, path, f"{len(found)} steps are {name!r}; name the one you mean, with: "
                                      f"{{name: …}} beside it"
                          if found else f"no step is named {name!r}; "
                          + suggestion(name, names, f"there are {', '.join(names)}"))
        return None

    def _discarded(self, text: str, item: Item) -> str:
        port, slash, name = text.partition("/")
        if port == "failed":
            self.problems.add(item, "discard",
                              "failed records are always kept; set max_failed to allow more of them")
        ports = {*SIDE_OUTPUTS, *(p for s in self.steps if s.stage for p in s.stage.ports)}
        if port not in ports and all(s.stage for s in self.steps):
            hint = suggestion(port, ports - {"failed"},
                              "write dropped, duplicate or one of these with /stage", quoted=True)
            self.problems.add(item, "discard", f"no stage has a port {port!r}; {hint}")
        step = self.find(name, item, "discard") if slash else None
        owners = [s for s in self.steps if s.stage and not slash] + ([step] if step else [])
        self.taken |= {(s, port) for s in owners if port in s.made.ports}
        return f"{port}/{step.made.name}" if step else port

    def _find_merges(self) -> None:
        for line in self.lines:
            for merge in (s for s in line.steps if isinstance(s, Merge)):
                for label, item in merge.labels.items():
                    first = self.merged.setdefault(label, merge)
                    if label not in self.branches:
                        hint = suggestion(label, self.branches, "add it under branches")
                        self.problems.add(item, merge.path, f"there is no branch {label!r}; {hint}")
                    elif first is not merge:
                        self.problems.add(item, merge.path, f"branch {label!r} is merged twice, first at "
                                          f"{first.item.place}: {first.path}")

    def _find_feeds(self, line: Line) -> None:
        for text, item in line.takes.items():
            self._take(line, text, item)
        if not line.takes and not line.sources:
            self._feed_by_label(line)
        self.taken |= {(step, port) for step, port in line.feeds if port != "out"}

    def _take(self, line: Line, text: str, item: Item) -> None:
        """`from: stage.port`."""
        path = f"{line.path}.from"
        dots = [at for at, letter in enumerate(text) if letter == "."]
        if not dots:
            self.problems.add(item, path, f"write stage.port, for example {text}.dropped")
            return
        # they and ports may have dots in them
        names = {name for step in self.steps if step.stage for name in step.names}
        cut = next((at for at in reversed(dots) if text[:at] in names), dots[-1])
        name, port = text[:cut], text[cut + 1:]
        step = self.find(name, item, path)
        if step is None:
            return
        ports = () if isinstance(step.stage, Sink) else (*step.made.ports, *SIDE_OUTPUTS)
        if port in ports:
            line.feeds.append((step, port))
            return
        has = f"it has {', '.join(ports)}" if ports else "it is a sink, and nothing comes out of it"
        self.problems.add(item, path, f"{step.made.name!r} has no port {port!r}; {has}")

    def _feed_by_label(self, line: Line) -> None:
        owners = [s for s in self.steps if s.stage and line.name in s.stage.ports and line.name != "out"]
        if len(owners) == 1:
            line.feeds.append((owners[0], line.name))
        elif owners:
            self.problems.add(line.item, line.path, f"{len(owners)} stages have a port {line.name!r} "
                              f"({', '.join(s.made.name for s in owners)}); say which one, from: "
                              f"stage.{line.name}")
        else:
            labels = {p for s in self.steps if s.stage for p in s.stage.ports if p != "out"}
            say = suggestion(line.name, labels, "route to it, or say from: stage.port, or give it a read",
                             quoted=True)
            self.problems.add(line.item, line.path,
                              f"nothing feeds this branch: no stage has a port {line.name!r}; {say}")

    def _run(self) -> None:
        """Do each line step by step, what starts from a step or merges a line after that."""
        made = {step: (line, at) for line in self.lines
                for at, step in (*((0, s) for s in line.sources), *enumerate(line.steps, 1))}
        order: TopologicalSorter[tuple[Line, int]] = TopologicalSorter()
        for line in self.lines:
            order.add((line, 0), *(made[step] for step, _ in line.feeds))
            for at, step in enumerate(line.steps, 1):
                merged = [self.branches[label] for label in step.labels] if isinstance(step, Merge) else []
                order.add((line, at), (line, at - 1), *((branch, len(branch.steps)) for branch in merged))
        try:
            for line, at in order.static_order():
                self._advance(line, at)
        except CycleError as error:
            for line, at in dict.fromkeys(error.args[1]):
                self._note_cycle(line, at, {line for line, _ in error.args[1]})
        if not self.problems.found:
            for line in self.lines:
                self._finish(line)

    def _advance(self, line: Line, at: int) -> None:
        """What feeds a line (0), or its next step."""
        step = line.steps[at - 1] if at else None
        if step is None:
            for source in line.sources:
                source.node = Node(source.made, (), source.place)
            line.ends = tuple(dict.fromkeys([*(End(s.node) for s in line.sources),
                                             *(End(step.node, port) for step, port in line.feeds)]))
        elif isinstance(step, Merge):
            line.ends = (tuple(dict.fromkeys([*line.ends, *(e for label in step.labels
                                                            for e in self.branches[label].ends)])))
        else:
            self._add(line, step)

    def _add(self, line: Line, step: Step) -> None:
        if not line.ends:
            self.problems.add(step.item, step.path,
                              "no row reaches this step: every port before it leads elsewhere")
        step.node = Node(step.made, line.ends, step.place)
        ports = [p for p in step.made.ports if (step, p) not in self.taken]
        stay = [p for p in ports if p == "out" or "out" not in step.made.ports]
        for port in (p for p in ports if p not in stay):
            self.problems.add(step.item, step.path,
                              f"the port {port!r} leads nowhere: add a branch {port!r}, "
                              f"or discard {port}/{step.made.name}")
        line.ends = tuple(End(step.node, port) for port in stay)

    def _finish(self, line: Line) -> None:
        for sink in line.sinks:
            if not line.ends:
                self.problems.add(sink.item, sink.path,
                                  "no row is left for this sink: every port leads elsewhere")
            sink.node = Node(sink.made, line.ends, sink.place)
        if line.name in self.merged and not line.ends:
            self.problems.add(line.item, line.path, "no row is left to merge: every port leads elsewhere")
        fed = {(step.node, port) for other in self.lines if other is not line for step, port in other.feeds}
        loose = [e for e in line.ends if (e.node, e.port) not in fed]
        if loose and not line.sinks and line.name not in self.merged:
            ports = ", ".join(f"{e.node.stage.name}.{e.port}" for e in loose)
            self.problems.add(line.item, line.path, f"{line.spoken} leads nowhere ({ports}): give it a write"
                              + (", or merge it into another line" if line.name else ""))

    def _note_cycle(self, line: Line, at: int, lines: set[Line]) -> None:
        if not at:
            owners = ", ".join(f"{step.made.name}.{port}" for step, port in line.feeds)
            self.problems.add(line.item, line.path,
                              f"a cycle: {line.spoken} starts from {owners}, which comes after")
        elif isinstance(step := line.steps[at - 1], Merge):
            waits = ", ".join(repr(label) for label in step.labels if self.branches[label] in lines)
            self.problems.add(step.item, step.path,
                              f"a cycle: branch {waits} is merged here, and starts from what comes "
                              "after this step")
