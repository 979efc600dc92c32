"""Where the time of one stage goes: its calls over a sample of the input, in this process."""

from __future__ import annotations

import copy
import cProfile
import pstats
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from time import perf_counter, process_time
from typing import Any, ClassVar

from curator.api.batch import Batch
from curator.api.errors import CuratorError
from curator.api.stage import Context, Outputs, Reduce, Sink, Source, Stage
from curator.pipeline.graph import Graph
from curator.run.run import run
from curator.trial.calls import RecordedCalls
from curator.trial.sample import find, sampled


@dataclass
class Call:
    """One call of a stage: rows in, seconds by the clock and of the processor."""

    rows: int
    seconds: float
    cpu_s: float


@dataclass
class StageProfile:
    """What a stage's calls took. `functions`: (place, calls, own seconds, seconds with what it calls), most
    own time first. `memory`: bytes by which the process grew at its highest; `gpu_memory`: bytes of devices
    that torch had given out at its highest, 0 without."""

    stage: str
    setup_s: float = 0.0
    calls: list[Call] = field(default_factory=list)
    memory: int = 0
    gpu_memory: int = 0
    functions: list[tuple[str, int, float, float]] = field(default_factory=list)
    recorded: int = 0

    @property
    def rows(self) -> int:
        return sum(call.rows for call in self.calls)

    @property
    def seconds(self) -> float:
        return sum(call.seconds for call in self.calls)

    @property
    def cpu_s(self) -> float:
        return sum(call.cpu_s for call in self.calls)


def profile(pipeline: Graph, stage: str, records: int = 500,
            record: RecordedCalls | None = None) -> StageProfile:
    """Run a pipeline over about `records` records from all over its input, and watch one stage.

    Everything works in this process, so that a debugger and a profiler see it. `stage`: as the pipeline calls
    it. `record`: where its batches are kept, so that its calls can be made again alone.

    Raises:
        CuratorError: there is no such stage, or it is a sink or a reduction; or the sample cannot run.
    """
    node = find(pipeline, stage)
    if isinstance(node.stage, (Sink, Reduce)):
        raise CuratorError(f"{stage} is a {'sink' if isinstance(node.stage, Sink) else 'reduction'}: what is "
                           "watched is a source, or a stage with a `process`")
    with tempfile.TemporaryDirectory(prefix="curator-profile-") as folder, _Watch(stage, record) as watch:
        spied = _spied(node.stage)
        watched = pipeline.with_stages(lambda one: spied if one is node else one.stage)
        whole = sampled(watched, records, folder)
        result = run(whole.pipeline, workers=0)
        if not result.ok or not watch.found.calls:
            raise CuratorError(f"no call of {stage} ended: {str(result.error) or 'no record came to it'}")
    return watch.found


class _Watch:
    """Measures the calls of a stage, one stage at a time. That is copied on its way to where it works, so it
    finds this as `now`."""

    now: ClassVar[_Watch]

    def __init__(self, stage: str, record: RecordedCalls | None) -> None:
        self.found, self.record = StageProfile(stage), record
        self.profiler, self.began_at = cProfile.Profile(), 0

    def __enter__(self) -> _Watch:
        _Watch.now = self
        return self

    def __exit__(self, *error: object) -> None:
        del _Watch.now
        self.found.functions = _functions(self.profiler)

    def set_up(self, setup: Callable[[Context], None], ctx: Context) -> None:
        began = perf_counter()
        if cuda := _cuda():  # of the work in this process before
            cuda.reset_peak_memory_stats()
        setup(ctx)
        self.found.setup_s += perf_counter() - began
        self.began_at = _memory()

    def process(self, process: Callable[[Batch], Any], batch: Batch) -> Any:
        if self.record is not None:
            self.found.recorded += self.record.add(batch)
        return self.measure(lambda: _whole(process(batch)), len(batch))

    def measure(self, work: Callable[[], Any], rows: int = 0) -> Any:
        began, cpu = perf_counter(), process_time()
        self.profiler.enable()
        try:
            answer = work()
        finally:
            self.profiler.disable()
        if rows == 0 and answer is not None:  # of a source: the rows that it gives
            rows = sum(map(len, answer.values())) if isinstance(answer, Outputs) else len(answer)
        self.found.calls.append(Call(rows, perf_counter() - began, process_time() - cpu))
        self.found.memory = max(self.found.memory, _memory() - self.began_at)
        if cuda := _cuda():
            self.found.gpu_memory = max(self.found.gpu_memory, cuda.max_memory_allocated())
        return answer


def _whole(answer: Any) -> Any:
    """What a generator gives is part of the call."""
    return answer if isinstance(answer, (Batch, Outputs)) else list(answer)


def _spied(stage: Stage) -> Stage:
    kind: Any = type(stage)

    def setup(self: Any, ctx: Context) -> None:
        _Watch.now.set_up(lambda ctx: kind.setup(self, ctx), ctx)

    def process(self: Any, batch: Batch) -> Any:
        return _Watch.now.process(lambda batch: kind.process(self, batch), batch)

    def read(self: Any, unit: Any) -> Iterator[Any]:
        answers, watch = iter(kind.read(self, unit)), _Watch.now
        while (answer := watch.measure(lambda: next(answers, None))) is not None:
            yield answer

    work: dict[str, Any] = {"read": read} if isinstance(stage, Source) else {"process": process}
    spied, members = copy.copy(stage), {**work, "setup": setup, "name": stage.name}
    object.__setattr__(spied, "__class__", type(kind.__name__, (kind,), members))
    return spied


def _memory() -> int:
    """The most memory that this process had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def _cuda() -> Any:
    """What torch knows of devices, if somebody has imported it and there is one."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None


def _functions(profiler: cProfile.Profile) -> list[tuple[str, int, float, float]]:
    try:
        table = pstats.Stats(profiler).stats  # type: ignore[attr-defined]  # it is in no stub
    except TypeError:  # nothing was called
        return []
    found = []
    for (path, line, name), (_, calls, own, whole, _) in table.items():
        own_file = "/".join(PurePath(path).parts[-2:])
        place = name if path == "~" else f"{own_file}:{line} {name}"
        found.append((place, calls, own, whole))
    return sorted(found, key=lambda one: -one[2])
