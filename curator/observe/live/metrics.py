"""A run in numbers for Prometheus: what the metrics are, and the port at which they are served.

Text and port are `prometheus_client`'s. The numbers are taken from the run a few times a second at most;
nothing is counted in a call, and Ray gets the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from curator.api.errors import CuratorError

if TYPE_CHECKING:
    from prometheus_client import Metric

HOST = "127.0.0.1"  # who may read the numbers of a run is the user's to say


class Family(NamedTuple):
    """The metrics of one name. A counter never falls; `labels` are the names that each sample has a value
    for."""

    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    help: str


# Labels and help by name, without `curator_`; what ends in `_total` is a counter, as Prometheus wants it.
_TOLD: dict[str, tuple[tuple[str, ...], str]] = {
    "run_info": (("run", "out", "attempt", "version"), "Always 1; the labels say which run this is."),
    "limit_info": (("limit",), "Always 1; the label says in words what limits the run."),
    "run_seconds": ((), "Seconds since this attempt of the run began."),
    "units": (("state",), "Units of the source: done, or left to do."),
    "source_bytes": (("state",), "Bytes of the source: done, or left to do."),
    "stage_rows_in_total": (("stage",), "Rows that a stage took in; a source: records read."),
    "stage_rows_made_total": (("stage",), "Rows that a stage made beside those it took in."),
    "stage_rows_out_total": (("stage", "port"), "Rows that a stage sent to a port; a sink: written."),
    "stage_rows_dropped_total": (("stage", "reason"), "Rows that a stage dropped, by reason."),
    "stage_rows_duplicate_total": (("stage",), "Rows that a stage found to be duplicates."),
    "stage_rows_failed_total": (("stage",), "Rows that failed in a stage."),
    "stage_rows_absorbed_total": (("stage",), "Rows that a stage took in for good."),
    "stage_busy_seconds_total": (("stage",), "Seconds of work in a stage, over all workers."),
    "operator_queue_rows": (("operator",), "Rows that wait before an operator."),
    "operator_queue_bytes": (("operator",), "Bytes that wait before an operator."),
    "operator_queue_limit_bytes": (("operator",), "Bytes that may wait before an operator."),
    "operator_workers": (("operator", "state"), "Workers of an operator: starting, working, or idle."),
    "operator_rows_per_second": (("operator",), "Rows that one worker does in a second of work."),
    "operator_setup_seconds": (("operator",), "What the last worker took to get ready."),
    "operator_calls_total": (("operator",), "Calls that workers have answered in this attempt."),
    "operator_busy_seconds_total": (("operator",), "Seconds of work in this attempt, over all workers."),
    "node_cores": (("node",), "Cores of a node that the run may use."),
    "node_cores_used": (("node",), "Cores of a node on which workers work now."),
    "node_gpus": (("node",), "GPUs of a node that the run may use."),
    "node_gpus_used": (("node",), "GPUs of a node, and shares of one, that workers hold."),
    "live_bytes": ((), "Bytes of batches on their way between workers."),
    "budget_bytes": ((), "Bytes of batches that may be on their way between workers."),
    "events_total": (("event",), "Lines of events.jsonl of this attempt, by kind of event."),
}
FAMILIES = {f"curator_{name}": Family("counter" if name.endswith("_total") else "gauge", *told)
            for name, told in _TOLD.items()}


class Sample(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def samples(run: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], engine: Mapping[str, Any],
            events: Mapping[str, int]) -> list[Sample]:
    """Every number of a run, families in the order of `FAMILIES`.

    `run`: name, out, attempt, version, seconds, units_done, units_left, bytes_done, bytes_left, limit ("" for
    not known). `stages`: as in `stats.json`. `engine`: as `snapshot_of` gives it, {} when nothing works.
    `events`: lines by kind.
    """
    found = [*_of_run(run), *_of_stages(stages), *_of_engine(engine),
             *(("events_total", n, event) for event, n in events.items())]
    named = [Sample(f"curator_{name}", tuple(zip(FAMILIES[f"curator_{name}"].labels, labels, strict=True)),
                    value) for name, value, *labels in found]
    order = {name: at for at, name in enumerate(FAMILIES)}
    return sorted(named, key=lambda sample: order[sample.name])


def _of_run(run: Mapping[str, Any]) -> Iterator[tuple]:
    yield "run_info", 1, run["name"], run["out"], str(run["attempt"]), run["version"]
    if run["limit"]:
        yield "limit_info", 1, run["limit"]
    yield "run_seconds", run["seconds"]
    for state in ("done", "left"):
        yield "units", run[f"units_{state}"], state
        yield "source_bytes", run[f"bytes_{state}"], state


def _of_stages(stages: Sequence[Mapping[str, Any]]) -> Iterator[tuple]:
    for stage in stages:
        name = stage["name"]
        for key in ("in", "made", "duplicate", "failed", "absorbed"):
            yield f"stage_rows_{key}_total", stage[key], name
        for key in ("out", "dropped"):
            yield from ((f"stage_rows_{key}_total", rows, name, where) for where, rows in stage[key].items())
        yield "stage_busy_seconds_total", stage["busy_s"], name


def _of_engine(engine: Mapping[str, Any]) -> Iterator[tuple]:
    for operator in engine.get("operators", ()):
        for metric, key in (("queue_rows", "queue_rows"), ("queue_bytes", "queue_bytes"),
                            ("queue_limit_bytes", "queue_limit"), ("rows_per_second", "rows_per_s"),
                            ("setup_seconds", "setup_s"), ("calls_total", "calls"),
                            ("busy_seconds_total", "busy_s")):
            yield f"operator_{metric}", operator[key], operator["name"]
        yield from (("operator_workers", workers, operator["name"], state)
                    for state, workers in operator["workers"].items())
    for node in engine.get("nodes", ()):
        yield from ((f"node_{key}", node[key], node["node"])
                    for key in ("cores", "cores_used", "gpus", "gpus_used"))
    yield from ((key, engine[key]) for key in ("live_bytes", "budget_bytes") if key in engine)


class Steady:
    """Keeps counters from falling. The rows of a unit that starts again come once more, and a counter that
    fell would be read as one that began anew: it stands still instead until the work is made good."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, tuple], float] = {}

    def __call__(self, found: Sequence[Sample]) -> list[Sample]:
        for name, labels, value in found:
            if FAMILIES[name].kind == "counter":
                self._most[name, labels] = max(value, self._most.get((name, labels), 0.0))
        return [sample._replace(value=self._most.get(sample[:2], sample.value)) for sample in found]


class Endpoint:
    """Serves `samples` at `url`, from a thread of its own.

    `address`: a port of this machine (0 for any free one), or "HOST:PORT" to let others in ("0.0.0.0:9400").

    Raises:
        CuratorError: the port cannot be had.
    """

    def __init__(self, address: int | str) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        host, _, port = str(address).rpartition(":")
        host = host or HOST
        if not port.isdigit() or int(port) > 65535:
            raise CuratorError(f"metrics port {address!r}: give a port such as 9400, or host and port such "
                               "as 0.0.0.0:9400")
        self.samples: Sequence[Sample] = ()
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(int(port), host, registry)
        except OSError as error:
            raise CuratorError(f"metrics cannot be served on {host}:{port} ({error.strerror or error}); "
                               "choose another port, or 0 for any that is free") from None
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def collect(self) -> Iterator[Metric]:
        """The samples as `prometheus_client` wants them: it adds `_total` to the name of a counter."""
        from prometheus_client import Metric

        for name, found in groupby(self.samples, key=lambda sample: sample.name):
            metric = Metric(name.removesuffix("_total"), FAMILIES[name].help, FAMILIES[name].kind)
            for sample in found:
                metric.add_sample(name, dict(sample.labels), sample.value)
            yield metric

    def close(self) -> None:
        """Give the port back. May be called twice."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Published:
    """Hands samples to gauges of another library, such as Ray's.

    `gauge(name, help, labels)` makes one; its `set(value, tags)` takes a number and a dict. A sample that is
    no longer there is set to 0, because such a gauge would show its last value for ever.
    """

    def __init__(self, gauge: Callable[[str, str, tuple[str, ...]], Any]) -> None:
        self._make, self._gauges = gauge, dict[str, Any]()
        self._shown: set[tuple[str, tuple]] = set()

    def publish(self, found: Sequence[Sample]) -> None:
        now = {sample[:2]: sample.value for sample in found}
        for (name, labels), value in (dict.fromkeys(self._shown - now.keys(), 0) | now).items():
            if name not in self._gauges:
                self._gauges[name] = self._make(name, FAMILIES[name].help, FAMILIES[name].labels)
            self._gauges[name].set(value, dict(labels))
        self._shown = set(now)
