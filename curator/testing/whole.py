"""A stage with all its parts: a composite as one stage, so that it can be run and checked like any other."""

from __future__ import annotations

from typing import Any

from curator.api.batch import Batch
from curator.api.stage import Composite, Context, Outputs, Reduce, Sink, Stage
from curator.pipeline.expand import expand
from curator.pipeline.graph import End, Graph, Node, Settings
from curator.testing.run import call, fresh, joined, learn, marked

FOLDER = "memory://checked"  # where sinks among the parts would write; they are not opened


def run_stage(stage: Stage, *batches: Batch) -> Outputs:
    """What a stage answers to these batches, one after the other, as in a worker: pickled, set up, called,
    closed.

    A `Reduce` gets them as one shard, and what it makes in `finish` stands before its answers. So does a
    `Composite`, with all its parts, sinks aside.

    Raises:
        AssertionError: it breaks a rule on the way (an unknown port, a row that is nowhere).
    """
    working = fresh(as_one(stage))
    answered = [learn(working, batches), *(call(working, marked(batch)) for batch in batches)]
    working.close()
    ports = dict.fromkeys(port for answer in answered for port in answer)
    parts = {port: [answer[port] for answer in answered if port in answer] for port in ports}
    return Outputs({port: joined(stage, port, batches) for port, batches in parts.items()})


def as_one(stage: Stage) -> Stage:
    """What a composite expands to, if that is a single stage; else a reduction that answers as its parts
    together do."""
    if not isinstance(stage, Composite):
        return stage
    main, parts = _expanded(stage)
    return Whole(stage) if parts else main.stage


def _expanded(stage: Composite) -> tuple[Node, list[Node]]:
    """Its main node and the other ones in order, sinks aside."""
    rows = Node(Stage())
    node = Node(stage, (End(rows),))
    made, parts, _ = expand(Graph(ends=(End(node),), settings=Settings(out=FOLDER)))
    return made.ends[0].node, [n for n in made.nodes() if n in parts and not isinstance(n.stage, Sink)]


class Whole(Reduce):
    """Works through all parts of a composite in this process, over one shard of all records."""

    key = None

    def __init__(self, stage: Composite) -> None:
        self.stage, self.name, self.ports = stage, stage.name, stage.ports
        # in a run it is the main part that is asked for what people should know
        main = _expanded(stage)[0].stage
        vars(self).update(contract=stage.contract, columns_after=stage.columns_after,
                          fingerprint=stage.fingerprint, findings=main.findings,
                          example_columns=main.example_columns)

    def setup(self, ctx: Context) -> None:
        self.main, self.parts = _expanded(self.stage)
        for node in (self.main, *self.parts):
            node.stage.setup(ctx)

    def clear(self) -> None:
        self._records: list[Batch] = []

    def absorb(self, batch: Batch) -> None:
        self._records.append(batch)

    def finish(self) -> list[Outputs]:
        return [self._learn()]

    def process(self, batch: Batch) -> Any:
        return self.main.stage.process(batch)

    def _learn(self) -> Outputs:
        """Have the parts work, and the main one take in what they found: what it makes of that."""
        ends: dict[End, list[Batch]] = {}

        def rows_of(node: Node) -> list[Batch]:
            return [b for end in node.inputs for b in ends.get(end, ())] + (
                self._records if any(end.node not in self.parts and end.node is not self.main
                                     for end in node.inputs) else [])

        for node in self.parts:
            if any(end.node is self.main for end in node.inputs):
                continue  # it comes after, as an index does
            batches = rows_of(node)
            answers = [learn(node.stage, batches), *(call(node.stage, marked(b)) for b in batches)]
            for answer in answers:
                for port, rows in answer.items():
                    ends.setdefault(End(node, port), []).append(rows)
        made = learn(self.main.stage, rows_of(self.main))
        self._records = []
        return made

    def close(self) -> None:
        for node in (self.main, *self.parts):
            node.stage.close()
