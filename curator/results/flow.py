"""The way of records through a pipeline, as far as its graph tells it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from curator.api.stage import Composite, Reduce, Sink, Stage, Stateful
from curator.pipeline.checkpoint import Checkpoint
from curator.pipeline.graph import Graph, Node


@dataclass(frozen=True)
class Flow:
    """`order`: the names of the stages, each after those that it takes rows from. `takers`: by stage and
    port. `above`: the stages that rows on their way to one may pass, and `through`: those that they must
    pass, itself too."""

    stages: dict[str, Stage]
    takers: dict[tuple[str, str], tuple[str, ...]]
    above: dict[str, frozenset[str]]
    through: dict[str, frozenset[str]]

    @classmethod
    def of(cls, graph: Graph) -> Flow:
        names = graph.names()
        takers: dict[tuple[str, str], tuple[str, ...]] = {}
        above: dict[str, frozenset[str]] = {}
        through: dict[str, frozenset[str]] = {}
        stages: dict[str, Stage] = {}
        ends: dict[Node, list[tuple[str, str]]] = {}  # of checkpoints, which are no stages of a run
        for node, name in names.items():
            taken = [end for e in node.inputs for end in ends.get(e.node, [(names[e.node], e.port)])]
            if isinstance(node.stage, Checkpoint):
                ends[node] = taken
                continue
            stages[name], before = node.stage, [other for other, _ in taken]
            for key in taken:
                takers[key] = (*takers.get(key, ()), name)
            above[name] = frozenset(before).union(*(above[b] for b in before))
            ways = [through[b] for b in before]
            through[name] = frozenset({name}) | (frozenset.intersection(*ways) if ways else frozenset())
        return cls(stages, takers, above, through)

    @property
    def order(self) -> list[str]:
        return list(self.stages)

    def between(self, first: str, last: str) -> list[str]:
        """The stages that rows may pass on their way from one to another, without these two."""
        return [name for name in self.order if first in self.above[name] and name in self.above[last]]

    def remembers(self, name: str) -> bool:
        """Whether what a stage does with a record depends on the others."""
        return isinstance(self.stages[name], (Stateful, Reduce, Composite))

    def twins(self, sink: str) -> set[str]:
        """The other sinks that take the same rows as one does."""
        taken = {end for end, names in self.takers.items() if sink in names}
        return {name for end in taken for name in self.takers[end] if self.is_sink(name) and name != sink
                and taken == {other for other, names in self.takers.items() if name in names}}

    def is_sink(self, name: str) -> bool:
        return isinstance(self.stages[name], Sink)

    def changes(self, names: Iterable[str], columns: Iterable[str]) -> dict[str, str]:
        """Of these columns those that one of the stages makes, changes or removes, with the stage."""
        found: dict[str, str] = {}
        for name in names:
            contract = self.stages[name].contract()
            touched = set(contract.removes) | set(contract.adds)
            found |= {column: name for column in columns if column in touched}
        return found
