"""A run over a sample, and what follows from it for the whole."""

from __future__ import annotations

import math
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from curator.api.errors import CuratorError
from curator.api.resources import Node
from curator.engine.balance.allocation import in_words
from curator.machine.detect import this_machine
from curator.pipeline.graph import Graph
from curator.pipeline.plan import Operator, Plan, make_plan
from curator.run.profiles import allocation, load_profiles
from curator.run.run import run
from curator.trial.sample import COUNTED, Sampled, records_in, sampled

SHARE_ERROR = 0.15  # relative error of a rate that a short run measures, beside that of the input
START = 4  # the first sample has so many times fewer records: it tells what starting takes
WATCH_S = 0.1


@dataclass
class Forecast:
    """What a run will take.

    `seconds`: once workers are ready, `setup_s` more until then. `error`: relative, one standard deviation.
    `stages`: for each its records in and out, of the whole, and core seconds. `outputs`: bytes by folder.
    `memory`: bytes of all processes of the sample at its highest, Linux only, else 0. `cores`, `gpus`: of the
    nodes. `limits`: what limits, a sentence for each phase.
    """

    records: float
    error: float
    seconds: float
    setup_s: float
    core_s: float
    gpu_s: float
    cores: float
    gpus: int
    sampled_records: int
    sampled_parts: int
    parts: int
    sample_s: float
    memory: int
    stages: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, float] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)

    @property
    def between(self) -> tuple[float, float]:
        """Seconds that it will take at least and at most, nine times in ten, as far as a sample can tell."""
        spread = math.exp(1.645 * self.error)
        return self.seconds / spread + self.setup_s, self.seconds * spread + self.setup_s

    def price(self, cpu_hour: float = 0.0, gpu_hour: float = 0.0) -> float:
        """What the nodes cost for the time of the run: they are paid for whether they are busy or not."""
        return (self.seconds + self.setup_s) / 3600 * (self.cores * cpu_hour + self.gpus * gpu_hour)


def forecast(pipeline: Graph, records: int = 500, nodes: Mapping[int, Node] | None = None) -> Forecast:
    """Run a pipeline over about `records` records from all over its input, and reckon what the whole will
    take.

    The sample goes through all stages and sinks, into a folder of its own that is removed; servers are asked
    for it, and once more for a quarter of it, which tells what starting takes. `nodes`: where the whole is to
    run, by default this machine.

    Raises:
        CuratorError: the pipeline cannot run, or did not come to the end of the sample.
    """
    nodes = dict(nodes or {0: this_machine()})
    with tempfile.TemporaryDirectory(prefix="curator-forecast-") as folder, _Memory() as memory:
        first, _ = _run(pipeline, max(1, records // START), f"{folder}/first")
        stats, whole = _run(pipeline, records, f"{folder}/second")
        _without_start(stats, first)
        return _reckoned(make_plan(whole.pipeline), whole, stats, nodes, memory)


def _run(pipeline: Graph, records: int, folder: str) -> tuple[dict[str, Any], Sampled]:
    """The stats of a sample. What a sampled source took to count records is taken away again."""
    whole = sampled(pipeline, records, folder)
    result = run(whole.pipeline)
    first = "".join(f"\n{error}" for error in result.first_errors[:1])
    if not result.ok:
        raise CuratorError(f"the sample did not end well: {result.stats['message']}{first}")
    if result.records["failed"] and not result.records["written"]:
        raise CuratorError(f"no record of the sample was written, {result.records['failed']} failed{first}")
    if not result.stats["records"]["in"]:
        raise CuratorError("the sample has no record: nothing can be reckoned from it")
    for stage in result.stats["stages"]:
        stage["busy_s"] = max(1e-6, stage["busy_s"] - stage.get("extra", {}).get(COUNTED, 0) / 1e6)
    return result.stats, whole


def _without_start(stats: dict[str, Any], first: Mapping[str, Any]) -> None:
    """Takes from the work of each stage what its workers needed once: a larger sample takes more by what its
    records take."""
    before = {stage["name"]: stage for stage in first["stages"]}
    for stage in stats["stages"]:
        rows, busy_s = before[stage["name"]]["in"], before[stage["name"]]["busy_s"]
        if stage["in"] >= 2 * max(1, rows):
            steady = (stage["busy_s"] - busy_s) * stage["in"] / (stage["in"] - rows)
            stage["busy_s"] = min(stage["busy_s"], max(steady, stage["busy_s"] / START))


def _reckoned(plan: Plan, whole: Sampled, stats: Mapping[str, Any], nodes: dict[int, Node],
              memory: _Memory) -> Forecast:
    by_name = {stage["name"]: stage for stage in stats["stages"]}
    extra = {name: by_name[name].get("extra", {}) for name in whole.bytes_in}
    records, input_error = records_in(extra, whole)
    taken = sum(by_name[name]["in"] for name in whole.bytes_in)
    more = records / max(1, taken)  # how many records of the whole one of the sample stands for
    seconds = setup_s = gpu_s = core_s = 0.0
    limits = []
    for phase in plan.phases:
        profiles = load_profiles(plan.out.sub("_run"), phase.operators)
        for operator in phase.operators:
            stages = [by_name[step.name] for step in operator.steps if step.name in by_name]
            busy = sum(stage["busy_s"] for stage in stages)
            if (known := profiles.get(operator.index)) is not None:
                setup_s = max(setup_s, known.setup_s)
                if stages and operator.kind != "sink":
                    profiles[operator.index] = replace(known, rows=float(stages[0]["in"]), busy_s=busy)
            core_s += busy * more * operator.resources.cpus
            gpu_s += busy * more * operator.resources.gpus
        best = allocation(phase.operators, profiles, nodes)
        if best is not None and best.rate > 0:
            seconds += _rows_read(phase.operators, by_name) * more / best.rate
            limits.append(in_words(best, [o.name for o in phase.operators]))
    error = math.hypot(input_error, SHARE_ERROR)
    return Forecast(
        records=records, error=error, seconds=seconds, setup_s=setup_s, core_s=core_s, gpu_s=gpu_s,
        cores=sum(n.cpus for n in nodes.values()), gpus=sum(n.gpus for n in nodes.values()),
        sampled_records=taken, sampled_parts=sum(whole.sampled.values()), parts=sum(whole.parts.values()),
        sample_s=stats["seconds"], memory=memory.most, limits=limits,
        stages=[{"name": s["name"], "in": s["in"] * more, "out": sum(s["out"].values()) * more,
                 "core_s": s["busy_s"] * more} for s in stats["stages"]],
        outputs={group["folder"].removeprefix(stats["out"] + "/").rstrip("/"): group["size_bytes"] * more
                 for group in (*stats["outputs"], *stats.get("checkpoints", ()))})


def _rows_read(operators: Sequence[Operator], stages: Mapping[str, Mapping[str, Any]]) -> float:
    """Rows that a phase of the sample read: of its sources, or of the stages that read what was spooled."""
    read = 0.0
    for operator in operators:
        if operator.kind == "source":
            named = next((s.name for s in operator.steps if s.name in stages), None)
            if named is None:  # it reads a spool for others
                fed = {target.operator for targets in operator.routes.values() for target in targets}
                named = next((o.steps[0].name for o in operators
                              if o.index in fed and o.steps[0].name in stages), None)
            read += stages[named]["in"] if named else 0.0
    return read


class _Memory:
    """The most memory that this process and those below it had together: shared pages are counted once."""

    def __enter__(self) -> _Memory:
        self.most, self._end = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(WATCH_S):
            self.most = max(self.most, sum(map(_memory_of, _processes_below(os.getpid()))))


def _processes_below(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    found, rest = [pid], True
    while rest:
        rest = [child for child, parent in parents.items() if parent in found and child not in found]
        found += rest
    return found


def _memory_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
