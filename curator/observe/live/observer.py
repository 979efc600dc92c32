"""Watches a run: what happens goes to `events.jsonl`, how much of it to the metrics. Events and fields: docs/observe.md."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from curator.api.errors import CuratorError
from curator.api.format import count, plural
from curator.engine import events as ev
from curator.engine.protocol import DataLost
from curator.engine.state import State
from curator.io.files.folder import Folder
from curator.observe.live.events_log import EventLog
from curator.observe.live.metrics import Endpoint, Published, Steady, look, samples
from curator.pipeline.plan import Operator

SAMPLES_S = 0.5  # numbers are taken so often, or
SAMPLES_SHARE = 0.01  # so seldom that it costs no more than this share of the time
LIMIT_S = 60.0  # the same sentence with other numbers is told anew after so long: each one is a new series in Prometheus

# What the scheduler reports, as it is called in the log. A kind that is not here keeps its name.
REPORTS = {"retry": "call_failed", "restart": "unit_restart", "failed": "record_failed", "stopped": "stop"}


class Observer:
    """Told by the loop of a run what came in and what was decided. `folder`: the run's `_run`; `run`: the attempt's number.

    A context: it writes `run_end` also when the run breaks off with an exception.
    """

    def __init__(self, folder: Folder, name: str, run: int, endpoint: Endpoint | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        from importlib.metadata import version

        self.log = EventLog(folder, run, clock)
        self.clock, self.began, self.endpoint = clock, clock(), endpoint
        self.facts = {"name": name, "out": folder.uri.rstrip("/").removesuffix("/_run"), "attempt": run,
                      "version": version("curator-core")}
        self.deaths: list[str] = []  # what the first worker that died died of, and how often it happened: `dead`
        self.dead = 0
        self._published: Published | None = None
        self._steady, self._due = Steady(), 0.0
        self._limit, self._limit_at = "", 0.0
        self._ended = False
        self._number((), ())

    # -- from beginning to end ------------------------------------------------------------------------------

    def begin(self, *, units: int, skipped: int = 0, **fields: Any) -> None:
        """The first line of an attempt. `skipped`: of the units, those that earlier ones have done."""
        name, url = self.facts["name"], self.endpoint.url if self.endpoint else None
        told = f"attempt {self.log.run} of {name} begins: {units - skipped} of {plural(units, 'unit')} to do"
        self.log.add("run_begin", told, name=name, version=self.facts["version"], host=socket.gethostname(), pid=os.getpid(),
                     metrics=url, units=units, skipped=skipped, **fields)
        self.log.flush()

    def phase(self, operators: Sequence[Operator], units: Sequence[str], number: int = 1, of: int = 1) -> None:
        """From now on operators, units and workers are numbered as here. `units`: what people call them."""
        self._number(operators, units)
        if of > 1:
            self.log.add("phase_begin", f"phase {number} of {of} begins: {plural(len(units), 'unit')}", phase=number, phases=of,
                         units=len(units))
            self.log.flush()

    def _number(self, operators: Sequence[Operator], units: Sequence[str]) -> None:
        self._operators, self._units = operators, units
        self._workers: dict[int, int] = {}  # the operator of each worker that was started and has not ended
        self._asked: set[int] = set()  # of these, those that were told to end

    def end(self, status: str, message: str, records: Mapping[str, int] | None = None) -> None:
        """The last line. With it the log is closed. `records`: as in `stats.json`.

        Raises:
            InputError: the log cannot be written.
        """
        self._ended = True
        told = message or ", ".join(f"{count(n)} {end}" for end, n in (records or {}).items() if n)
        self.log.add("run_end", f"{status}: {told}" if told else status, status=status, message=message or None,
                     seconds=round(self.clock() - self.began, 3), records=records)
        self.log.close()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if not self._ended:
            with suppress(CuratorError):  # what broke the run off is the error to tell
                self.end("error", f"{type(error).__name__}: {error}" if error else "")

    # -- what happens ---------------------------------------------------------------------------------------

    def see(self, events: Sequence[ev.Event], actions: Sequence[ev.Action]) -> None:
        """What came in, and what the scheduler made of it."""
        for event in events:
            tell = _EVENTS.get(type(event))
            if tell is not None:
                tell(self, event)
        told = [e.reason for e in events if isinstance(e, ev.WorkerLost)]
        for action in actions:
            if isinstance(action, ev.Report):
                self._report(action, told)
            else:
                tell = _ACTIONS.get(type(action))
                if tell is not None:
                    tell(self, action)
        self.log.flush()

    def _name(self, worker: int) -> str | None:
        at = self._workers.get(worker)
        return None if at is None else self._operators[at].name

    def _call(self, worker: int) -> str:
        """A worker in a sentence: the field `operator` has the name in full."""
        name = self._name(worker)
        return f"worker {worker}" if name is None else f"worker {worker} ({_short(name)})"

    def _ready(self, event: ev.WorkerReady) -> None:
        name = self._name(event.worker)
        self.log.add("worker_ready", f"{self._call(event.worker)} is ready after {event.setup_s:.2f} s", worker=event.worker,
                     operator=name, setup_s=round(event.setup_s, 3))

    def _lost(self, event: ev.WorkerLost) -> None:
        worker, who = event.worker, self._call(event.worker)
        at = self._workers.pop(worker, None)
        if at is None:
            return
        operator = self._operators[at]
        if worker in self._asked:
            self._asked.discard(worker)
            self.log.add("worker_end", f"{who} has ended", worker=worker, operator=operator.name)
            return
        stage = operator.steps[event.step].name if len(operator.steps) > 1 and not event.setup else None
        when = " in its setup" if event.setup else ""
        self.log.add("worker_lost", f"{who} died{when}: {event.reason}", worker=worker,
                     operator=operator.name, stage=stage, setup=event.setup or None, reason=event.reason)

    def _node_up(self, event: ev.NodeUp) -> None:
        node = event.node
        self.log.add("node_up", f"node {event.number} ({node.name}) has joined: {node.cpus:g} cores, {plural(node.gpus, 'GPU')}",
                     node=event.number, name=node.name, cores=node.cpus, gpus=node.gpus)

    def _node_down(self, event: ev.NodeDown) -> None:
        self.log.add("node_down", f"node {event.number} is gone: {event.reason}", node=event.number, reason=event.reason)

    def _data_lost(self, event: DataLost) -> None:
        self.log.add("data_lost", f"a call could not begin: {event.reason}", reason=event.reason)

    def _start(self, action: ev.StartWorker) -> None:
        self._workers[action.worker] = action.operator
        name, first = self._operators[action.operator].name, action.places[0]
        gang = len(action.places) > 1
        where = f"node {first.node}" + (f", GPU {', '.join(map(str, first.gpus))}" if first.gpus else "")
        where = f"{plural(len(action.places), 'place')} from {where}" if gang else where
        self.log.add("worker_start", f"{self._call(action.worker)} starts on {where}", worker=action.worker, operator=name,
                     node=first.node, gpus=list(first.gpus) or None,
                     places=[[p.node, *p.gpus] for p in action.places] if gang else None)

    def _stop(self, action: ev.StopWorker) -> None:
        name, who = self._name(action.worker), self._call(action.worker)
        if action.kill:
            self._workers.pop(action.worker, None)
        else:
            self._asked.add(action.worker)
        self.log.add("worker_stop", f"{who} is {'killed' if action.kill else 'told to end'}", worker=action.worker, operator=name,
                     kill=action.kill or None)

    def _submit(self, action: ev.Submit) -> None:
        call = action.call
        if call.kind == "read":
            unit, attempt = call.units[0]
            again = f", attempt {attempt + 1}" if attempt else ""
            self.log.add("unit_read", f"{self._units[unit]} is read{again}", unit=self._units[unit], attempt=attempt + 1,
                         operator=self._operators[call.operator].name, worker=call.worker)
        elif call.crashes:
            name, deaths = self._operators[call.operator].name, plural(call.crashes, "death")
            self.log.add("isolate", f"{plural(call.rows, 'row')} with {deaths} go alone through {_short(name)}", operator=name,
                         worker=call.worker, rows=call.rows, deaths=call.crashes, units=[self._units[u] for u, _ in call.units])

    def _commit(self, action: ev.Commit) -> None:
        unit, files = self._units[action.unit], sum(map(len, action.files.values()))
        failed = sum(c.failed for c in action.counts.values())
        self.log.add("unit_commit", f"{unit} is done: {plural(files, 'file')}" + (f", {failed} failed" if failed else ""),
                     unit=unit, attempt=action.attempt + 1, files=files, failed=failed or None)

    def _report(self, report: ev.Report, told: Sequence[str]) -> None:
        if report.kind == "lost":
            self.dead += 1
            self.deaths = self.deaths or [report.text]
            if any(report.text.endswith(reason) for reason in told):
                return  # there is a line for it, with the worker's number
        operator = None if report.operator is None else self._operators[report.operator].name
        unit = None if report.unit is None else self._units[report.unit]
        kind = "worker_lost" if report.kind == "lost" else REPORTS.get(report.kind, report.kind)
        self.log.add(kind, report.text, operator=operator, unit=unit, **report.details)

    # -- in numbers -----------------------------------------------------------------------------------------

    def publish_to(self, gauge: Callable[[str, str, tuple[str, ...]], Any]) -> None:
        """From now on numbers go to gauges of another library too, such as `ray.util.metrics.Gauge`."""
        self._published = Published(gauge)

    def due(self) -> bool:
        """Whether somebody waits for new numbers. It also gives lines that were held back their chance."""
        self.log.flush()
        return (self.endpoint is not None or self._published is not None) and self.clock() >= self._due

    def update(self, snapshot: Mapping[str, Any], stages: Sequence[Mapping[str, Any]], state: State | None,
               began: float | None = None) -> None:
        """New numbers: `snapshot` as watchers get it, `stages` as in `stats.json`. `began`: when the caller began to collect
        them, so that their cost counts."""
        if self.endpoint is None and self._published is None:
            return
        now = self.clock()
        self._keep_limit(snapshot["limit"], now)
        run = {**self.facts, "seconds": round(now - self.began, 3), "limit": self._limit,
               "units_done": snapshot["units_done"], "units_left": snapshot["units_total"] - snapshot["units_done"],
               "bytes_done": snapshot["bytes_done"], "bytes_left": snapshot["bytes_total"] - snapshot["bytes_done"]}
        found = self._steady(samples(run, stages, look(state) if state is not None else {}, self.log.totals))
        if self.endpoint is not None:
            self.endpoint.samples = found
        if self._published is not None:
            self._published.publish(found)
        cost = self.clock() - (now if began is None else began)
        self._due = self.clock() + max(SAMPLES_S, cost / SAMPLES_SHARE)

    def _keep_limit(self, limit: str, now: float) -> None:
        same = re.sub(r"[\d.,]+", "", limit) == re.sub(r"[\d.,]+", "", self._limit)
        if not same or now - self._limit_at > LIMIT_S:
            self._limit, self._limit_at = limit, now


def _short(operator: str) -> str:
    """`a + b + c` -> `a … c`."""
    names = operator.split(" + ")
    return operator if len(names) < 3 else f"{names[0]} … {names[-1]}"


_EVENTS: dict[type, Callable[[Observer, Any], None]] = {
    ev.WorkerReady: Observer._ready, ev.WorkerLost: Observer._lost, ev.NodeUp: Observer._node_up,
    ev.NodeDown: Observer._node_down, DataLost: Observer._data_lost}
_ACTIONS: dict[type, Callable[[Observer, Any], None]] = {
    ev.StartWorker: Observer._start, ev.StopWorker: Observer._stop, ev.Submit: Observer._submit, ev.Commit: Observer._commit}
