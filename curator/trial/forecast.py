"""A run over a sample, and what follows from it for the whole."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from typing import Any

from curator.api.errors import CuratorError
from curator.api.resources import Node
from curator.engine.balance.allocation import in_words
from curator.engine.placement import Profile
from curator.machine.detect import this_machine
from curator.pipeline.graph import Graph
from curator.pipeline.plan import Operator, Phase, Plan, make_plan
from curator.run.profiles import load_profiles
from curator.run.run import run
from curator.trial.limits import allocation
from curator.trial.memory import Memory
from curator.trial.sample import COUNTED, Sampled, records_in, sampled
from curator.trial.simulate import Cost, phase_s

RATE_ERROR = 0.15  # relative error of a rate that a short run measures: this machine is never twice the same
BUSY_ERROR = 0.1  # and for each process more of others that wants a core
# standard deviation of what a record takes over its mean, as texts, pages and pictures have it
RECORD_SPREAD = 2.0
START = 4  # the first sample has so many times fewer records: it tells what starting takes
LEAST = 20  # what is needed once leaves a record at least such a part of what it seems to take
START_ERROR = 0.2  # relative error of what starting takes, beside what two samples differ
NINE_IN_TEN = 1.645  # standard deviations


@dataclass
class Forecast:
    """What a run will take.

    `work_s`: from the first worker to the last record, `error`: of it, relative, one standard deviation.
    `start_s`, `start_error`: seconds of all else (imports, first calls, closing files, the report), whatever
    the number of records. `stages`: for each its records in and out, of the whole, and core seconds.
    `outputs`: bytes by folder. `memory`: bytes of all processes of the sample at its highest, Linux only,
    else 0. `cores`, `gpus`: of the nodes. `others`: processes of others for each core of this machine, beyond
    one, when the sample began. `limits`: what limits, a sentence for each phase.
    """

    records: float
    error: float
    work_s: float
    start_s: float
    start_error: float
    core_s: float
    gpu_s: float
    cores: float
    gpus: int
    sampled_records: int
    sampled_parts: int
    parts: int
    sample_s: float
    memory: int
    others: float = 0.0
    stages: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, float] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.start_s + self.work_s

    @property
    def between(self) -> tuple[float, float]:
        """Seconds that it will take at least and at most, nine times in ten, as far as a sample can tell."""
        spread, start = math.exp(NINE_IN_TEN * self.error), NINE_IN_TEN * self.start_error
        return (max(0.0, self.seconds - math.hypot(self.work_s * (1 - 1 / spread), start)),
                self.seconds + math.hypot(self.work_s * (spread - 1), start))

    def price(self, cpu_hour: float = 0.0, gpu_hour: float = 0.0) -> float:
        """What the nodes cost for the time of the run: they are paid for whether they are busy or not."""
        return self.seconds / 3600 * (self.cores * cpu_hour + self.gpus * gpu_hour)


def forecast(pipeline: Graph, records: int = 500, nodes: Mapping[int, Node] | None = None) -> Forecast:
    """Run a pipeline over about `records` records from all over its input, and reckon what the whole will
    take.

    The sample goes through all stages and sinks, into a folder of its own that is removed; servers are asked
    for it, and once more for a quarter of it, which tells what starting takes. `nodes`: where the whole is to
    run, by default this machine.

    Raises:
        CuratorError: the pipeline cannot run, or did not come to the end of the sample, or would not come to
            its end on these nodes.
    """
    here, others = this_machine(), _others()
    with tempfile.TemporaryDirectory(prefix="curator-forecast-") as folder, Memory() as memory:
        first = _run(pipeline, max(1, records // START), f"{folder}/first")
        second = _run(pipeline, records, f"{folder}/second")
        _without_start(second.stats, first.stats)
        found = _reckoned(first, second, dict(nodes or {0: here}), memory, others)
        costs = _costs(first, second)
        starts = [max(0.0, one.seconds - one.seconds_of(costs, {0: here})) for one in (first, second)]
        found.start_s = sum(starts) / 2
        found.start_error = start_error_of(*starts)
        found.work_s = second.seconds_of(costs, dict(nodes or {0: here}), found.records)
        return found


def _others() -> float:
    """Processes for each core, beyond one, that worked here in the last minute."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(0.0, load / (os.cpu_count() or 1) - 1)


def error_of(input_error: float, taken: int, records: float, others: float = 0.0) -> float:
    """Of the seconds of work, relative, one standard deviation: how many records there are, what each takes
    by a sample of so many of them, and a machine that is never twice the same, and has other work."""
    unseen = math.sqrt(max(0.0, 1 - taken / max(1.0, records)))
    return math.hypot(input_error, unseen * RECORD_SPREAD / math.sqrt(max(1, taken)), RATE_ERROR,
                      BUSY_ERROR * others)


def start_error_of(first_s: float, second_s: float) -> float:
    """Of the seconds of starting and ending, by two samples, one standard deviation."""
    return math.hypot((first_s - second_s) / 2, START_ERROR * (first_s + second_s) / 2)


@dataclass
class _Probe:
    """A run over a sample. `seconds`: of all of it. `counting_s`: by source, what it took to count records
    that are not of the sample."""

    whole: Sampled
    stats: dict[str, Any]
    seconds: float
    counting_s: Mapping[str, float]

    @cached_property
    def plan(self) -> Plan:
        return make_plan(self.whole.pipeline)

    @cached_property
    def by_name(self) -> dict[str, Any]:
        return {stage["name"]: stage for stage in self.stats["stages"]}

    @cached_property
    def taken(self) -> int:
        return sum(self.by_name[name]["in"] for name in self.whole.bytes_in)

    @property
    def written(self) -> dict[str, tuple[float, float]]:
        """Rows and bytes by folder."""
        groups = (*self.stats["outputs"], *self.stats.get("checkpoints", ()))
        return {group["folder"].removeprefix(self.stats["out"] + "/").rstrip("/"):
                (float(group["rows"]), float(group["size_bytes"])) for group in groups}

    def profiles(self, phase: Phase) -> dict[int, Profile]:
        """What was learnt of the operators, without the counting."""
        found = load_profiles(self.plan.out.sub("_run"), phase.operators)
        for operator in phase.operators:
            counting_s = self.counting_s.get(operator.steps[0].name, 0.0)
            if operator.index in found and counting_s:
                known = found[operator.index]
                found[operator.index] = replace(known, busy_s=max(1e-6, known.busy_s - counting_s))
        return found

    def seconds_of(self, costs: Mapping[tuple[int, int], Cost], nodes: Mapping[int, Node],
                   records: float | None = None) -> float:
        """How long so many records take from the first worker to the last, with these costs by phase and
        operator. None: the sample itself, with the counting."""
        seconds = 0.0
        for phase in self.plan.phases:
            own, units = {o.index: costs[phase.number, o.index] for o in phase.operators}, []
            for operator in (o for o in phase.operators if o.kind == "source" and not o.replays):
                name, rows = operator.steps[0].name, self._rows_read(operator, phase)
                sizes = [max(1, n) for n in self._units(name, phase, records is not None)]
                density = rows * (records or self.taken) / max(1, self.taken) / sum(sizes)
                units += [(operator.index, density * n) for n in sizes]
                if records is None and rows:
                    cost, counting_s = own[operator.index], self.counting_s.get(name, 0.0)
                    own[operator.index] = replace(cost, row_s=cost.row_s + counting_s / rows)
            row_bytes = sum(self.whole.bytes_in.values()) / max(1.0, records or self.taken)
            seconds += phase_s(phase.operators, own, units, nodes, row_bytes) if units else 0.0
        return seconds

    def _units(self, source: str, phase: Phase, whole: bool) -> Sequence[int]:
        """How large the units of a source are; behind a barrier all alike, and as many as in the sample."""
        if source in self.whole.units:
            return (self.whole.units if whole else self.whole.sampled)[source]
        return [1] * max(1, self.stats["phases"][phase.number]["units"]["total"])

    def _rows_read(self, source: Operator, phase: Phase) -> float:
        """Rows that a source of the sample read; one that reads a spool for others is named by these."""
        fed = {target.operator for targets in source.routes.values() for target in targets}
        names = [step.name for step in source.steps]
        names += [o.steps[0].name for o in phase.operators if o.index in fed]
        return next((float(self.by_name[name]["in"]) for name in names if name in self.by_name), 0.0)


def _run(pipeline: Graph, records: int, folder: str) -> _Probe:
    """A run over a sample. What a sampled source took to count records is taken away again."""
    began = monotonic()
    whole = sampled(pipeline, records, folder)
    result = run(whole.pipeline)
    seconds = monotonic() - began
    if not result.ok:
        raise CuratorError(f"the sample did not end well: {result.error}")
    if result.records["failed"] and not result.records["written"]:
        raise CuratorError(f"no record of the sample was written, {result.records['failed']} failed"
                           f"{result.error}")
    if not result.stats["records"]["in"]:
        raise CuratorError("the sample has no record: nothing can be reckoned from it")
    counting_s = {}
    for stage in result.stats["stages"]:
        counting_s[stage["name"]] = stage.get("extra", {}).get(COUNTED, 0) / 1e6
        stage["busy_s"] = max(1e-6, stage["busy_s"] - counting_s[stage["name"]])
    return _Probe(whole, result.stats, seconds, counting_s)


def _without_start(stats: dict[str, Any], first: Mapping[str, Any]) -> None:
    """Takes from the work of each stage what its workers needed once."""
    before = {stage["name"]: stage for stage in first["stages"]}
    for stage in stats["stages"]:
        rows, busy_s = before[stage["name"]]["in"], before[stage["name"]]["busy_s"]
        stage["busy_s"] = stage["in"] * _steady(stage["in"], stage["busy_s"], rows, busy_s)


def _steady(rows: float, amount: float, first_rows: float, first_amount: float) -> float:
    """Seconds or bytes a row without what is needed once: a larger sample takes more by what its records
    take."""
    each = amount / max(1.0, rows)
    if rows < 2 * max(1, first_rows):
        return each
    return min(each, max((amount - first_amount) / (rows - first_rows), each / LEAST))


def _costs(first: _Probe, second: _Probe) -> dict[tuple[int, int], Cost]:
    """What each operator takes, by phase and number: of whole calls, which are more than their stages."""
    costs = {}
    for phase, same in zip(second.plan.phases, first.plan.phases, strict=True):
        found, before = second.profiles(phase), first.profiles(same)
        for operator in phase.operators:
            known = found.get(operator.index)
            less = before.get(operator.index, Profile(0.0, 0.0, 0.0, {}))
            costs[phase.number, operator.index] = Cost() if known is None else Cost(
                _steady(known.rows, known.busy_s, less.rows, less.busy_s), known.setup_s, known.sent)
    return costs


def _reckoned(first: _Probe, second: _Probe, nodes: dict[int, Node], memory: Memory,
              others: float) -> Forecast:
    """All but the time."""
    whole, stats, by_name = second.whole, second.stats, second.by_name
    counted = {name: by_name[name].get("extra", {}) for name in whole.bytes_in}
    records, input_error = records_in(counted, whole)
    more = records / max(1, second.taken)  # how many records of the whole one of the sample stands for
    gpu_s = core_s = 0.0
    limits = []
    for phase in second.plan.phases:
        profiles = second.profiles(phase)
        for operator in phase.operators:
            stages = [by_name[step.name] for step in operator.steps if step.name in by_name]
            busy = sum(stage["busy_s"] for stage in stages)
            if stages and operator.kind != "sink" and operator.index in profiles:
                known = profiles[operator.index]
                profiles[operator.index] = replace(known, rows=float(stages[0]["in"]), busy_s=busy)
            core_s += busy * more * operator.resources.cpus
            gpu_s += busy * more * operator.resources.gpus
        best = allocation(phase.operators, profiles, nodes)
        if best is not None and best.rate > 0:
            limits.append(in_words(best, [o.name for o in phase.operators]))
    return Forecast(
        records=records, error=error_of(input_error, second.taken, records, others), others=others,
        work_s=0.0, start_s=0.0, start_error=0.0, core_s=core_s, gpu_s=gpu_s,
        cores=sum(n.cpus for n in nodes.values()), gpus=sum(n.gpus for n in nodes.values()),
        sampled_records=second.taken, sampled_parts=sum(map(len, whole.sampled.values())),
        parts=sum(whole.parts.values()), sample_s=stats["seconds"], memory=memory.most, limits=limits,
        stages=[{"name": s["name"], "in": s["in"] * more, "out": sum(s["out"].values()) * more,
                 "core_s": s["busy_s"] * more} for s in stats["stages"]],
        outputs=_outputs(first, second, more))


def _outputs(first: _Probe, second: _Probe, more: float) -> dict[str, float]:
    """Bytes by folder. A file has some whatever its rows, which two samples tell; and the whole has as many
    files for a unit as the sample."""
    files = sum(map(len, second.whole.units.values())) / sum(map(len, second.whole.sampled.values()))
    before, found = first.written, {}
    for name, (rows, size) in second.written.items():
        row_bytes = _steady(rows, size, *before.get(name, (0.0, 0.0)))
        found[name] = more * rows * row_bytes + files * (size - rows * row_bytes)
    return found
