"""Watches a run: what happens goes to `events.jsonl`, how much of it to the metrics. Events and fields:
docs/observe.md."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from curator.api.errors import CuratorError
from curator.api.format import count, plural
from curator.api.stage import Unit
from curator.engine import events as ev
from curator.engine.protocol import Call, DataLost
from curator.io.files.folder import Folder
from curator.observe.live.events_log import EventLog
from curator.observe.live.metrics import Endpoint, Published, Steady, samples
from curator.pipeline.plan import Operator

SAMPLES_S = 0.5  # numbers are taken so often, or
SAMPLES_SHARE = 0.01  # so seldom that it costs no more than this share of the time
# the same sentence with other numbers is shown anew after so long: each one is a new series in Prometheus
LIMIT_S = 60.0

# What the scheduler reports, as it is called in the log. A kind that is not here keeps its name.
REPORTS = {"retry": "call_failed", "restart": "unit_restart", "failed": "record_failed", "stopped": "stop",
           "lost": "worker_lost"}

# Of all that is seen only these have lines, and the calls that `_submit` looks for; the others come by the
# thousand.
LOGGED = frozenset({ev.WorkerReady, ev.WorkerLost, ev.NodeUp, ev.NodeDown, DataLost, ev.StartWorker,
                    ev.StopWorker, ev.Commit, ev.Report})


class Observer:
    """Is shown by the loop of a run what came in and what was decided. `folder`: the run's `_run`; `run`: the
    attempt's number.

    A context: it writes `run_end` also when the run breaks off with an exception.
    """

    def __init__(self, folder: Folder, name: str, run: int, endpoint: Endpoint | None = None) -> None:
        self.log = EventLog(folder, run)
        self.began, self.endpoint = time.monotonic(), endpoint
        self.facts = {"name": name, "out": folder.uri.rstrip("/").removesuffix("/_run"), "attempt": run,
                      "version": version("curator-core")}
        # what the first worker that died died of, and how often it happened: `dead`
        self.deaths: list[str] = []
        self.dead = 0
        self._published: Published | None = None
        self._steady, self._due = Steady(), 0.0
        self._limit, self._limit_at = "", 0.0
        self._ended = False
        self._number((), ())

    def begin(self, *, units: int, skipped: int = 0, **fields: Any) -> None:
        """The first line of an attempt. `skipped`: of the units, those that earlier ones have done."""
        name, url = self.facts["name"], self.endpoint.url if self.endpoint else None
        text = f"attempt {self.log.run} of {name} begins: {units - skipped} of {plural(units, 'unit')} to do"
        self.log.add("run_begin", text, name=name, version=self.facts["version"], host=socket.gethostname(),
                     pid=os.getpid(), metrics=url, units=units, skipped=skipped, **fields)
        self.log.flush()

    def phase(self, operators: Sequence[Operator], units: Sequence[Unit], number: int = 1,
              of: int = 1) -> None:
        """From now on operators, units and workers are numbered as here."""
        self._number(operators, units)
        if of > 1:
            self.log.add("phase_begin", f"phase {number} of {of} begins: {plural(len(units), 'unit')}",
                         phase=number, phases=of, units=len(units))
            self.log.flush()

    def _number(self, operators: Sequence[Operator], units: Sequence[Unit]) -> None:
        self._operators, self._units = operators, units
        self._workers: dict[int, int] = {}  # the operator of each worker that was started and has not ended
        self._asked: set[int] = set()  # of these, those that were told to end

    def end(self, status: str, message: str, records: Mapping[str, int] | None = None) -> None:
        """The last line. With it the log is closed. `records`: as in `stats.json`.

        Raises:
            CuratorError: the log cannot be written.
        """
        self._ended = True
        text = message or ", ".join(f"{count(n)} {end}" for end, n in (records or {}).items() if n)
        seconds = round(time.monotonic() - self.began, 3)
        self.log.add("run_end", f"{status}: {text}" if text else status, status=status,
                     message=message or None, seconds=seconds, records=records)
        self.log.close()

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if not self._ended:
            with suppress(CuratorError):  # what broke the run off is the error to show
                self.end("error", f"{type(error).__name__}: {error}" if error else "")

    def see(self, events: Sequence[ev.Event], actions: Sequence[ev.Action]) -> None:
        """What came in, and what the scheduler made of it."""
        for event in events:
            if type(event) in LOGGED:
                self._event(event)
        lost = {event.worker for event in events if type(event) is ev.WorkerLost}
        for action in actions:
            if type(action) is ev.Submit:  # one for every call
                self._submit(action.call)
            elif type(action) in LOGGED:
                self._action(action, lost)
        self.log.flush()

    def _event(self, event: ev.Event) -> None:
        add = self.log.add
        match event:
            case ev.WorkerReady():
                add("worker_ready", f"{self._worker(event.worker)} is ready after {event.setup_s:.2f} s",
                    worker=event.worker, operator=self._operator_of(event.worker),
                    setup_s=round(event.setup_s, 3))
            case ev.WorkerLost() if event.worker in self._workers:
                self._lost(event)
            case ev.NodeUp(number=number, node=node):
                add("node_up", f"node {number} ({node.name}) has joined: {node.cpus:g} cores, "
                               f"{plural(node.gpus, 'GPU')}",
                    node=number, name=node.name, cores=node.cpus, gpus=node.gpus)
            case ev.NodeDown():
                add("node_down", f"node {event.number} is gone: {event.reason}", node=event.number,
                    reason=event.reason)
            case DataLost():
                add("data_lost", f"a call could not begin: {event.reason}", reason=event.reason)

    def _action(self, action: ev.Action, lost: Collection[int]) -> None:
        """`lost`: workers of which there is a line already."""
        match action:
            case ev.StartWorker():
                self._start(action)
            case ev.StopWorker(worker=worker, kill=kill):
                name, who = self._operator_of(worker), self._worker(worker)
                self.log.add("worker_stop", f"{who} is {'killed' if kill else 'told to end'}", worker=worker,
                             operator=name, kill=kill or None)
                if kill:
                    self._workers.pop(worker, None)
                else:
                    self._asked.add(worker)
            case ev.Commit():
                unit, files = self._units[action.unit].label, sum(map(len, action.files.values()))
                failed = sum(c.failed for c in action.counts.values())
                text = f"{unit} is done: {plural(files, 'file')}{f', {failed} failed' if failed else ''}"
                self.log.add("unit_commit", text, unit=unit, attempt=action.attempt + 1, files=files,
                             failed=failed or None)
            case ev.Report():
                self._report(action, lost)

    def _operator_of(self, worker: int) -> str | None:
        return self._operators[self._workers[worker]].name if worker in self._workers else None

    def _worker(self, worker: int) -> str:
        """A worker in a sentence: the field `operator` has the name in full."""
        name = self._operator_of(worker)
        return f"worker {worker}" if name is None else f"worker {worker} ({_short(name)})"

    def _lost(self, event: ev.WorkerLost) -> None:
        worker, who = event.worker, self._worker(event.worker)
        operator = self._operators[self._workers.pop(worker)]
        if worker in self._asked:
            self._asked.discard(worker)
            self.log.add("worker_end", f"{who} has ended", worker=worker, operator=operator.name)
            return
        stage = operator.steps[event.step].name if len(operator.steps) > 1 and not event.setup else None
        self.log.add("worker_lost", f"{who} died{' in its setup' if event.setup else ''}: {event.reason}",
                     worker=worker, operator=operator.name, stage=stage, setup=event.setup or None,
                     reason=event.reason)

    def _start(self, action: ev.StartWorker) -> None:
        self._workers[action.worker] = action.operator
        first, gang = action.places[0], len(action.places) > 1
        where = f"node {first.node}" + (f", GPU {', '.join(map(str, first.gpus))}" if first.gpus else "")
        where = f"{plural(len(action.places), 'place')} from {where}" if gang else where
        self.log.add("worker_start", f"{self._worker(action.worker)} starts on {where}", worker=action.worker,
                     operator=self._operator_of(action.worker), node=first.node,
                     gpus=list(first.gpus) or None,
                     places=[[p.node, *p.gpus] for p in action.places] if gang else None)

    def _submit(self, call: Call) -> None:
        name = self._operators[call.operator].name
        if call.kind == "read":
            unit, attempt = self._units[call.units[0][0]].label, call.units[0][1]
            self.log.add("unit_read", f"{unit} is read{f', attempt {attempt + 1}' if attempt else ''}",
                         unit=unit, attempt=attempt + 1, operator=name, worker=call.worker)
        elif call.crashes:
            text = (f"{plural(call.rows, 'row')} with {plural(call.crashes, 'death')} go alone through "
                    f"{_short(name)}")
            self.log.add("isolate", text, operator=name, worker=call.worker, rows=call.rows,
                         deaths=call.crashes, units=[self._units[unit].label for unit, _ in call.units])

    def _report(self, report: ev.Report, lost: Collection[int]) -> None:
        if report.kind == "lost":
            self.dead += 1
            self.deaths = self.deaths or [report.text]
        if report.details.get("worker") in lost or report.kind in ("node up", "node down"):
            return  # its event has a line, which says more
        operator = None if report.operator is None else self._operators[report.operator].name
        unit = None if report.unit is None else self._units[report.unit].label
        self.log.add(REPORTS.get(report.kind, report.kind), report.text, operator=operator, unit=unit,
                     **report.details)

    def publish_to(self, gauge: Callable[[str, str, tuple[str, ...]], Any]) -> None:
        """From now on numbers go to gauges of another library too, such as `ray.util.metrics.Gauge`."""
        self._published = Published(gauge)

    def due(self) -> bool:
        """Whether somebody waits for new numbers. It also gives lines that were held back their chance."""
        self.log.flush()
        return (self.endpoint is not None or self._published is not None) and time.monotonic() >= self._due

    def update(self, snapshot: Mapping[str, Any], stages: Sequence[Mapping[str, Any]],
               engine: Mapping[str, Any], began: float | None = None) -> None:
        """New numbers: `snapshot` as watchers get it, `stages` as in `stats.json`, `engine` as `snapshot_of`
        gives it, {} when nothing works. `began`: when the caller began to collect them, so that their cost
        counts."""
        if self.endpoint is None and self._published is None:
            return
        now, limit = time.monotonic(), snapshot["limit"]
        same = re.sub(r"[\d.,]+", "", limit) == re.sub(r"[\d.,]+", "", self._limit)
        if not same or now - self._limit_at > LIMIT_S:
            self._limit, self._limit_at = limit, now
        run = {**self.facts, "seconds": round(now - self.began, 3), "limit": self._limit}
        for kind in ("units", "bytes"):
            done, total = snapshot[f"{kind}_done"], snapshot[f"{kind}_total"]
            run |= {f"{kind}_done": done, f"{kind}_left": total - done}
        found = self._steady(samples(run, stages, engine, self.log.totals))
        if self.endpoint is not None:
            self.endpoint.samples = found
        if self._published is not None:
            self._published.publish(found)
        cost = time.monotonic() - (now if began is None else began)
        self._due = time.monotonic() + max(SAMPLES_S, cost / SAMPLES_SHARE)


def _short(operator: str) -> str:
    """`a + b + c` -> `a … c`."""
    names = operator.split(" + ")
    return operator if len(names) < 3 else f"{names[0]} … {names[-1]}"
