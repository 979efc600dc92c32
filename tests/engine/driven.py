"""A runtime without a scheduler: a test starts workers, gives them calls and takes the events, as a scheduler would."""

from __future__ import annotations

import time

import pyarrow as pa

from curator import Stage, TextBatch
from curator.api.batch import UNIT, Batch
from curator.api.resources import Place
from curator.engine.events import StartWorker, Submit
from curator.engine.protocol import Call, Ref, Slice
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator, Step
from curator.runtime.workers import Job
from curator.worker.store import Store


def job_of(folder, *stages: Stage) -> Job:
    """A job of these stages, an operator each, whose answers are wanted."""
    operators = [Operator(i, "map", (Step(f"s{i}", stage, "key"),), routes={(0, "out"): ()}) for i, stage in enumerate(stages)]
    return Job(operators, lambda unit, attempt: None, Folder(str(folder)), lambda step, committed: [])


def text_batch(*texts: str, pad: int = 0) -> TextBatch:
    """Rows of unit 0; `pad`: characters that each has besides."""
    return TextBatch(pa.table({
        "id": [str(i) for i in range(len(texts))], "source": ["s"] * len(texts), "text": list(texts),
        UNIT: pa.array([0] * len(texts), pa.int32()), "pad": ["x" * pad] * len(texts)}))


def inline(batch: Batch) -> Ref:
    """A batch that travels inside messages."""
    return Ref(Store([], "nobody").put(batch), len(batch), batch.nbytes)


class Driven:
    def __init__(self, runtime) -> None:
        self.runtime, self.events, self.calls = runtime, [], 0

    def listen(self) -> list:
        """Take in what has happened; all events that no `until` has taken."""
        self.events += self.runtime.wait(0.05)
        return self.events

    def until(self, kind, seconds: float = 60.0):
        """The next event of a kind; those before it are kept."""
        until = time.monotonic() + seconds
        while not any(isinstance(e, kind) for e in self.listen()):
            assert time.monotonic() < until, f"no {kind}, but {self.events}"
        return self.events.pop(next(i for i, e in enumerate(self.events) if isinstance(e, kind)))

    def start(self, worker: int, operator: int = 0, *places: Place) -> None:
        self.runtime.execute(StartWorker(worker, operator, places or (Place(),)))

    def submit(self, worker: int, *refs: Ref, operator: int = 0) -> Call:
        self.calls += 1
        pieces = tuple(Slice(ref, 0, 0, 0, ref.rows) for ref in refs)
        call = Call(self.calls, operator, "process", pieces, ((0, 0),), worker=worker)
        self.runtime.execute(Submit(call))
        return call


def rows(done) -> list[dict]:
    """The records that a call gave; they must lie on this machine."""
    return [row for output in done.outputs for row in Store.get(output.ref.data).rows.to_pylist()]
