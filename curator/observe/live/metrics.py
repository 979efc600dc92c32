"""A run in numbers for Prometheus: plain samples, their text, and a hand-over to another library's gauges.

`look` reads the scheduler's state, `samples` names the numbers; both are called a few times a second at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple

from curator.engine.state import State


class Family(NamedTuple):
    """The metrics of one name. A counter never falls; `labels` are the names that each sample has a value for."""

    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str


FAMILIES = {
    "curator_run_info": Family("gauge", ("run", "out", "attempt", "version"), "Always 1; the labels say which run this is."),
    "curator_limit_info": Family("gauge", ("limit",), "Always 1; the label says in words what limits the run."),
    "curator_run_seconds": Family("gauge", (), "Seconds since this attempt of the run began."),
    "curator_units": Family("gauge", ("state",), "Units of the source: done, or left to do."),
    "curator_source_bytes": Family("gauge", ("state",), "Bytes of the source: done, or left to do."),
    "curator_stage_rows_in_total": Family("counter", ("stage",), "Rows that a stage took in; a source: records read."),
    "curator_stage_rows_made_total": Family("counter", ("stage",), "Rows that a stage made beside those it took in."),
    "curator_stage_rows_out_total": Family("counter", ("stage", "port"), "Rows that a stage sent to a port; a sink: written."),
    "curator_stage_rows_dropped_total": Family("counter", ("stage", "reason"), "Rows that a stage dropped, by reason."),
    "curator_stage_rows_duplicate_total": Family("counter", ("stage",), "Rows that a stage found to be duplicates."),
    "curator_stage_rows_failed_total": Family("counter", ("stage",), "Rows that failed in a stage."),
    "curator_stage_rows_absorbed_total": Family("counter", ("stage",), "Rows that a stage took in for good."),
    "curator_stage_busy_seconds_total": Family("counter", ("stage",), "Seconds of work in a stage, over all workers."),
    "curator_operator_queue_rows": Family("gauge", ("operator",), "Rows that wait before an operator."),
    "curator_operator_queue_bytes": Family("gauge", ("operator",), "Bytes that wait before an operator."),
    "curator_operator_queue_limit_bytes": Family("gauge", ("operator",), "Bytes that may wait before an operator."),
    "curator_operator_workers": Family("gauge", ("operator", "state"), "Workers of an operator: starting, working, or idle."),
    "curator_operator_rows_per_second": Family("gauge", ("operator",), "Rows that one worker does in a second of work."),
    "curator_operator_setup_seconds": Family("gauge", ("operator",), "What the last worker took to get ready."),
    "curator_operator_calls_total": Family("counter", ("operator",), "Calls that workers have answered in this attempt."),
    "curator_operator_busy_seconds_total": Family("counter", ("operator",), "Seconds of work in this attempt, over all workers."),
    "curator_node_cores": Family("gauge", ("node",), "Cores of a node that the run may use."),
    "curator_node_cores_used": Family("gauge", ("node",), "Cores of a node on which workers work now."),
    "curator_node_gpus": Family("gauge", ("node",), "GPUs of a node that the run may use."),
    "curator_node_gpus_used": Family("gauge", ("node",), "GPUs of a node, and shares of one, that workers hold."),
    "curator_live_bytes": Family("gauge", (), "Bytes of batches on their way between workers."),
    "curator_budget_bytes": Family("gauge", (), "Bytes of batches that may be on their way between workers."),
    "curator_events_total": Family("counter", ("event",), "Lines of events.jsonl of this attempt, by kind of event."),
}


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    @property
    def family(self) -> Family:
        return FAMILIES[self.name]


def look(state: State) -> dict[str, Any]:
    """What `samples` tells of a scheduler's state, as plain values."""
    operators = []
    for o in state.operators:
        working = sum(w.ready and w.working for w in o.workers.values())
        starting = sum(not w.ready for w in o.workers.values())
        operators.append({
            "name": o.plan.name, "queue_rows": o.rows, "queue_limit": o.limit,
            "queue_bytes": sum(part.nbytes for part in (*o.waiting.values(), *o.groups)),
            "workers": {"starting": starting, "working": working, "idle": len(o.workers) - working - starting},
            "rows_per_s": 1 / o.s_per_row if o.s_per_row else 0.0, "setup_s": o.setup_s, "calls": o.calls, "busy_s": o.busy_s})
    nodes = [{"node": str(n.number), "cores": n.node.cpus, "cores_used": n.cpus_used, "gpus": n.node.gpus,
              "gpus_used": n.node.gpus - sum(n.gpu_free)} for n in state.nodes.values()]
    budget = sum(n.node.budget_bytes for n in state.nodes.values())
    return {"operators": operators, "nodes": nodes, "live_bytes": state.live_bytes, "budget_bytes": budget}


def samples(run: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], engine: Mapping[str, Any],
            events: Mapping[str, int]) -> list[Sample]:
    """Every number of a run, families in the order of `FAMILIES`.

    `run`: name, out, attempt, version, seconds, units_done, units_left, bytes_done, bytes_left, limit ("" for not known).
    `stages`: as in `stats.json`. `engine`: what `look` gives, {} when nothing works. `events`: lines by kind.
    """
    found = [*_of_run(run), *_of_stages(stages), *_of_engine(engine),
             *(_sample("curator_events_total", n, event) for event, n in events.items())]
    order = {name: at for at, name in enumerate(FAMILIES)}
    return sorted(found, key=lambda s: order[s.name])


def _sample(name: str, value: float, *labels: str) -> Sample:
    return Sample(name, tuple(zip(FAMILIES[name].labels, labels, strict=True)), value)


def _of_run(run: Mapping[str, Any]) -> Iterator[Sample]:
    yield _sample("curator_run_info", 1, run["name"], run["out"], str(run["attempt"]), run["version"])
    if run["limit"]:
        yield _sample("curator_limit_info", 1, run["limit"])
    yield _sample("curator_run_seconds", run["seconds"])
    for name, what in (("curator_units", "units"), ("curator_source_bytes", "bytes")):
        for state in ("done", "left"):
            yield _sample(name, run[f"{what}_{state}"], state)


def _of_stages(stages: Sequence[Mapping[str, Any]]) -> Iterator[Sample]:
    for stage in stages:
        for key in ("in", "made", "duplicate", "failed", "absorbed"):
            yield _sample(f"curator_stage_rows_{key}_total", stage[key], stage["name"])
        for key in ("out", "dropped"):
            for port, rows in stage[key].items():
                yield _sample(f"curator_stage_rows_{key}_total", rows, stage["name"], port)
        yield _sample("curator_stage_busy_seconds_total", stage["busy_s"], stage["name"])


def _of_engine(engine: Mapping[str, Any]) -> Iterator[Sample]:
    for operator in engine.get("operators", ()):
        for name, key in (("queue_rows", "queue_rows"), ("queue_bytes", "queue_bytes"), ("queue_limit_bytes", "queue_limit"),
                          ("rows_per_second", "rows_per_s"), ("setup_seconds", "setup_s"), ("calls_total", "calls"),
                          ("busy_seconds_total", "busy_s")):
            yield _sample(f"curator_operator_{name}", operator[key], operator["name"])
        for state, workers in operator["workers"].items():
            yield _sample("curator_operator_workers", workers, operator["name"], state)
    for node in engine.get("nodes", ()):
        for key in ("cores", "cores_used", "gpus", "gpus_used"):
            yield _sample(f"curator_node_{key}", node[key], node["node"])
    for key in ("live_bytes", "budget_bytes"):
        if key in engine:
            yield _sample(f"curator_{key}", engine[key])


class Steady:
    """Keeps counters from falling. The rows of a unit that starts again come once more, and a counter that fell would be
    read as one that began anew: it stands still instead until the work is made good."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, tuple], float] = {}

    def __call__(self, found: Sequence[Sample]) -> list[Sample]:
        steady = []
        for sample in found:
            if sample.family.kind == "counter":
                key = sample.name, sample.labels
                most = self._most[key] = max(sample.value, self._most.get(key, 0.0))
                sample = sample if most == sample.value else replace(sample, value=most)
            steady.append(sample)
        return steady


def exposition(found: Sequence[Sample]) -> str:
    """Samples in Prometheus' text format 0.0.4.

    Source: https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    lines = []
    for name, of_name in groupby(found, key=lambda s: s.name):
        family = FAMILIES[name]
        lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
        for sample in of_name:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels)
            lines.append(f"{name}{{{labels}}} {_number(sample.value)}" if labels else f"{name} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


class Published:
    """Hands samples to gauges of another library, such as Ray's.

    `gauge(name, help, labels)` makes one; its `set(value, tags)` takes a number and a dict. A sample that is no longer
    there is set to 0, because such a gauge would tell its last value for ever.
    """

    def __init__(self, gauge: Callable[[str, str, tuple[str, ...]], Any]) -> None:
        self._make, self._gauges = gauge, {}
        self._told: set[tuple[str, tuple]] = set()

    def publish(self, found: Sequence[Sample]) -> None:
        now = {(s.name, s.labels): s.value for s in found}
        for name, labels in self._told - now.keys():
            self._gauges[name].set(0, dict(labels))
        for (name, labels), value in now.items():
            if name not in self._gauges:
                self._gauges[name] = self._make(name, FAMILIES[name].help, FAMILIES[name].labels)
            self._gauges[name].set(value, dict(labels))
        self._told = set(now)
