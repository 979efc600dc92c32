"""A run: the loop that joins a scheduler, a runtime, the ledger and whoever watches."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.counts import WRITTEN, Counts
from curator.engine.events import Commit, Event, Report, StartWorker, Stop, WorkerLost, WorkerReady
from curator.engine.runtime_local import InlineRuntime, LocalRuntime
from curator.engine.scheduler import Scheduler
from curator.engine.workers import Job
from curator.errors import InputError
from curator.io.files import Folder
from curator.ledger import Ledger
from curator.machine import this_machine
from curator.observe.report import render_report
from curator.observe.stats import RunInfo, StageInfo, summarise
from curator.pipeline import Pipeline
from curator.plan import Plan, make_plan, out_folder
from curator.recipe import dump
from curator.run_lock import Lock
from curator.stage import Source, Stateful, Unit
from curator.worker.runner import UnitInfo

LEDGER_S = 1.0  # finished units are written down this often; a kill costs at most the units of this long,
LEDGER_SHARE = 0.01  # or of this share of the time so far, so that long runs do not leave a file for each second
WATCH_S = 0.2  # watchers are told this often
SHORT_S = 5.0  # a run shorter than this says little about what limits it


@dataclass(frozen=True)
class Result:
    """How a run ended. `stats` is what `stats.json` holds; `ok` says that every record was dealt with, within `max_failed`."""

    stats: dict[str, Any]
    out: str

    def __repr__(self) -> str:
        ended = ", ".join(f"{n} {end}" for end, n in self.records.items() if n)
        return f"<run {self.stats['status']}: {ended}; in {self.out}>"

    def show(self) -> None:
        """Print the funnel."""
        from curator.observe.funnel import show_funnel

        show_funnel(self.stats)

    @property
    def ok(self) -> bool:
        return self.stats["status"] == "finished"

    @property
    def records(self) -> dict[str, int]:
        return self.stats["records"]


def run(pipeline: Pipeline, *, workers: int | None = None, ray: str | bool | None = None, prune: bool = False,
        watch: Callable[[Mapping[str, Any]], None] | None = None) -> Result:
    """Run a pipeline to its end, or continue one that was interrupted.

    `workers`: cores to use; None for all, 0 to work in this process. `ray`: the address of a Ray cluster to work on; True for
    that of RAY_ADDRESS, or else one of our own on this machine; False for none; None for that of RAY_ADDRESS, or else none.
    `prune`: remove results of inputs that are no longer read. `watch`: called now and then with a snapshot of the run.

    Raises:
        RecipeError, ContractError, InputError: before anything runs.
        CuratorError: the run cannot start: another one writes there, or old results are in the way.
    """
    plan = make_plan(pipeline)
    units = _list_units(plan)
    settings = pipeline.settings
    out = Folder.open(out_folder(pipeline), dict(settings.storage_options) or None)
    lock = Lock(out)
    try:
        _check_writable(plan, out)
        return _Run(plan, units, out, workers, _ray_address(ray), prune, watch, lock.fd).go()
    finally:
        lock.release()


def _ray_address(asked: str | bool | None) -> str | None:
    """The cluster to work on; None for processes of this machine."""
    if asked is None or asked is True:
        return os.environ.get("RAY_ADDRESS") or ("local" if asked else None)
    return asked or None


def _list_units(plan: Plan) -> list[tuple[int, Unit]]:
    units: list[tuple[int, Unit]] = []
    seen: set[str] = set()
    for operator in plan.operators:
        source = operator.steps[0].stage
        if isinstance(source, Source):
            for unit in source.units():
                if unit.key in seen:
                    raise InputError(f"{unit.label} is read by two sources; read it once and branch")
                seen.add(unit.key)
                units.append((operator.index, unit))
    for step in plan.operators[-1].steps:
        folder = Folder.open(str(step.stage.path)).uri.rstrip("/") + "/"
        for _, unit in units:
            if unit.parts[0].uri.startswith(folder):
                raise InputError(f"{unit.parts[0].uri} is read, and {step.name!r} writes into its folder; write elsewhere")
    return units


def _check_writable(plan: Plan, out: Folder) -> None:
    """Find out before the work, not after it, that the output cannot be written."""
    out.sub("_run").make()
    out.sub("_run").write("manifest.json", json.dumps(_manifest(plan), indent=1).encode())


def _manifest(plan: Plan) -> dict[str, Any]:
    from importlib.metadata import version

    stages = [{"name": s.name, "class": f"{type(s.stage).__module__}.{type(s.stage).__qualname__}",
               "version": s.stage.version, "fingerprint": s.stage.fingerprint(), "key": s.key} for s in plan.steps]
    return {"curator": version("curator-core"), "python": platform.python_version(), "pyarrow": pa.__version__, "stages": stages}


def _in_memory(plan: Plan) -> bool:
    paths = [str(p) for s in plan.steps for p in _as_list(getattr(s.stage, "path", ""))]
    return any(p.startswith("memory://") for p in paths)


def _as_list(value: Any) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


class _Run:
    def __init__(self, plan: Plan, units: list[tuple[int, Unit]], out: Folder, workers: int | None, ray: str | None,
                 prune: bool, watch: Callable[[Mapping[str, Any]], None] | None, lock: int | None) -> None:
        self.plan, self.out, self.watch, self.lock, self.ray, self.cores = plan, out, watch, lock, ray, workers
        # A filesystem in memory belongs to one process: no other worker would see it.
        self.inline = workers == 0 or _in_memory(plan)
        self.nodes = {0: this_machine(None if self.inline else workers)}
        self.began = time.monotonic()
        self.ledger = Ledger(out)
        needs = self.ledger.prepare(plan, units, prune)
        self.skipped = sum(n is True for n in needs)
        todo = [(unit, need) for unit, need in zip(units, needs, strict=True) if need is not True]
        self.units = [unit for (_, unit), _ in todo] + [u for (_, u), n in zip(units, needs, strict=True) if n is True]
        self.todo = [(source, None if need is None else need) for (source, _), need in todo]
        self.keys, self.sizes = [u.key for u in self.units], [u.size_bytes for u in self.units]
        self.index_of = {key: i for i, key in enumerate(self.keys)}
        self.memory: dict[tuple[str, int], str] = {}  # sidecars by step and unit
        for step in plan.steps:
            if isinstance(step.stage, Stateful):
                for key, name in self.ledger.memories(step).items():
                    self.memory[step.name, self.index_of[key]] = name
        self.keepers = {s.name for s in plan.steps if s.keeper}
        self.log: list[dict[str, Any]] = []
        self.committed = 0
        self.workers: dict[int, int] = {}  # most at a time, by operator

    # -- from beginning to end ------------------------------------------------------------------------------

    def go(self) -> Result:
        folder = self.out.sub("_run")
        folder.write("recipe.yaml", dump(self.plan.pipeline).encode())
        try:
            stopped = self._work() if self.todo else None
        finally:
            self.ledger.flush(time.monotonic() - self.began)
        if self.todo and stopped is None and any(unit.attempt for unit in self.scheduler.state.units):
            # A unit that began again may have left files of the attempt before: whoever reads the folder must not see both.
            self.ledger.remove_unnamed(self.plan)
        stats = self._stats(stopped)
        self._tell_deaths(stats)
        folder.write("stats.json", json.dumps(stats, indent=1, ensure_ascii=False).encode())
        folder.write("report.html", render_report(stats, folder.read("recipe.yaml").decode()).encode())
        self._write_log(folder)
        return Result(stats, self.out.uri)

    def _work(self) -> str | None:
        """Do what is to do; gives why it stopped early, or None."""
        counts = self.ledger.counts()
        sources = [s.name for o in self.plan.operators if o.kind == "source" for s in o.steps]
        self.before = (sum(counts[n].rows_in for n in sources if n in counts), sum(c.failed for c in counts.values()))
        # A limit that was reached must let through again what an edit does again, so then everything is read.
        gates = frozenset(o.index for o in self.plan.operators
                          if o.kind == "stateful" and self.plan.gate(o.index) and not self.ledger.unfinished)
        job = Job(self.plan.operators, self._unit_info, self.out.sub("_run").sub("state"), self._recall)
        runtime = self._runtime(job)
        try:
            self.scheduler = Scheduler(self.plan.operators, self.todo, self.nodes, before=self.before, gates=gates,
                                       max_failed=self.plan.pipeline.settings.max_failed)
            with _interrupts() as asked:
                self._loop(runtime, asked)
        finally:
            runtime.close()
        return self.scheduler.stopped

    def _runtime(self, job: Job) -> Any:
        if self.inline:
            return InlineRuntime(job)
        if self.ray is None:
            return LocalRuntime(job, self.lock)
        from curator.engine.runtime_ray import RayRuntime

        runtime = RayRuntime(job, self.ray, self.cores, self._note)
        self.nodes = runtime.nodes
        return runtime

    def _loop(self, runtime: Any, asked: list[str]) -> None:
        scheduler = self.scheduler
        saved = watched = time.monotonic()
        actions = scheduler.start(time.monotonic())
        while True:
            for action in actions:
                if isinstance(action, Commit):
                    self._commit(action)
                elif isinstance(action, Report):
                    self._note(action.kind, action.text)
                else:
                    runtime.execute(action)
                if isinstance(action, StartWorker):
                    alive = len(scheduler.state.operators[action.operator].workers)
                    self.workers[action.operator] = max(alive, self.workers.get(action.operator, 0))
            if scheduler.finished:
                return
            now = time.monotonic()
            if self.ledger.pending and now - saved > max(LEDGER_S, LEDGER_SHARE * (now - self.began)):
                self.ledger.flush(now - self.began)
                saved = now
            if self.watch is not None and now - watched > WATCH_S:
                self.watch(self._snapshot())
                watched = now
            due = scheduler.deadline()
            events = runtime.wait(min(WATCH_S, max(0.0, due - now) if due is not None else WATCH_S))
            if asked:
                events = [Stop(asked[0])]
            self._see(events)
            actions = scheduler.handle(events, time.monotonic()) if events else []
            if due is not None and time.monotonic() >= due and not scheduler.finished:
                actions += scheduler.tick(time.monotonic())

    # -- what the runtime asks --------------------------------------------------------------------------------

    def _unit_info(self, unit: int, attempt: int) -> UnitInfo:
        return UnitInfo(self.units[unit], self.ledger.part_name(self.units[unit], attempt))

    def _recall(self, step: str, committed: Sequence[int]) -> list[tuple[int, str, bool]]:
        """Sidecars of a step: of units finished before, now, and of those that an edit has done again."""
        done = {*committed, *range(len(self.todo), len(self.units))}
        return [(unit, name, unit not in done) for (of, unit), name in self.memory.items() if of == step]

    # -- what happens -------------------------------------------------------------------------------------------

    def _commit(self, commit: Commit) -> None:
        unit = self.units[commit.unit]
        record = self.ledger.record_of(self.plan, unit, commit, self.keys)
        self.ledger.add(record)
        for step, name in commit.memory.items():
            self.memory[step, commit.unit] = name
        self.committed += 1
        self._note("committed", unit.label)

    def _see(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, WorkerReady):
                self._note("worker ready", f"worker {event.worker} in {event.setup_s:.2f} s")
            elif isinstance(event, WorkerLost):
                self._note("worker gone", f"worker {event.worker}: {event.reason}")

    def _note(self, kind: str, text: str) -> None:
        self.log.append({"t": round(time.monotonic() - self.began, 3), "run": self.ledger.run, "event": kind, "text": text})

    def _write_log(self, folder: Folder) -> None:
        lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in self.log)
        before = folder.read("events.jsonl").decode() if folder.exists("events.jsonl") else ""
        folder.write("events.jsonl", (before + lines).encode())

    # -- in numbers -----------------------------------------------------------------------------------------------

    def _snapshot(self) -> dict[str, Any]:
        state = self.scheduler.state
        totals = self._totals()
        kinds = {s.name: o.kind for o in self.plan.operators for s in o.steps}
        done = sum(size for size, u in zip(self.sizes, state.units, strict=False) if u.stage in ("committed", "unread"))
        read = sum(c.rows_in for n, c in totals.items() if kinds.get(n) == "source")
        return {"units_done": len(self.units) - state.open, "units_total": len(self.units),
                "bytes_done": done + sum(self.sizes[len(state.units):]), "bytes_total": sum(self.sizes),
                "records_in": read, "written": sum(c.out.get(WRITTEN, 0) for n, c in totals.items()
                                                   if kinds.get(n) == "sink" and n not in self.keepers),
                "dropped": sum(sum(c.dropped.values()) for c in totals.values()),
                "duplicate": sum(c.duplicate for c in totals.values()), "failed": sum(c.failed for c in totals.values()),
                "rate": (read - self.before[0]) / max(1e-3, time.monotonic() - self.began),
                "workers": len(state.workers), "limit": self._limit()}

    def _limit(self) -> str:
        """What holds the run up, in words. Empty before anything was measured."""
        operators = self.scheduler.state.operators if self.todo else []
        total = sum(o.busy_s for o in operators)
        if not total:
            return ""
        busiest = max(operators, key=lambda o: o.busy_s)
        seconds = time.monotonic() - self.began
        cores = sum(n.node.cpus for n in self.scheduler.state.nodes.values()) or 1.0  # 1.0: every node is gone
        name, busy = f"{busiest.plan.name} ({busiest.busy_s / total:.0%} of the work)", min(1.0, total / seconds / cores)
        if seconds < SHORT_S:
            return f"{name}; in so short a run, starting the workers counts most"
        if busy > 0.7:
            return f"{name} on {cores:g} cores, which are {busy:.0%} busy; more cores would make it faster"
        return f"{name}; the {cores:g} cores are only {busy:.0%} busy: too few or too small inputs to work on at once"

    def _stats(self, stopped: str | None) -> dict[str, Any]:
        counts = self.ledger.counts()
        infos = [StageInfo(s.name, "stage" if o.kind in ("map", "stateful") else o.kind, s.after, self.workers.get(o.index, 0),
                           s.stage.reasons())
                 for o in self.plan.operators for s in o.steps if not s.keeper]
        status, message = ("stopped", stopped) if stopped else ("finished", "")
        if stopped and "max_failed" in stopped:
            message += self._errors(self._totals())
        done = len(self.ledger.records) - len(self.ledger.unfinished)
        info = RunInfo(name=self.plan.pipeline.name, status=status, message=message, seconds=sum(self.ledger.elapsed.values()),
                       out=self.out.uri, limit=self._limit(), files=self._files(),
                       units={"done": done, "total": len(self.units), "skipped": self.skipped})
        counts = {n: c for n, c in counts.items() if n not in self.keepers}
        columns = {n: {c: s.to_json() for c, s in k.columns.items()} for n, k in counts.items() if k.columns}
        stats = summarise(info, infos, counts, columns)
        return stats if stopped else self._judge_failures(stats)

    def _tell_deaths(self, stats: dict[str, Any]) -> None:
        deaths = [entry["text"] for entry in self.log if entry["event"] == "lost"]
        if deaths:
            more = f" and {len(deaths) - 1} more" if len(deaths) > 1 else ""
            stats["alarms"].append({"level": "note", "stage": "", "text": f"Workers died and were replaced: {deaths[0]}{more}."})

    def _errors(self, totals: Mapping[str, Counts]) -> str:
        """What failed most, in words."""
        failed = {name: c for name, c in totals.items() if c.failed}
        if not failed:
            return ""
        name = max(failed, key=lambda n: failed[n].failed)
        errors = failed[name].errors
        told = f": {max(errors, key=lambda e: errors[e])}" if errors else ""
        return f"; most of them in stage {name}{told}"

    def _totals(self) -> dict[str, Counts]:
        """The counts of finished units and of those under way, by stage."""
        totals = self.ledger.counts()
        for unit in self.scheduler.state.units if self.todo else ():
            for (operator, step), counts in unit.counts.items():
                totals.setdefault(self.plan.operators[operator].steps[step].name, Counts()).add(counts)
        return totals

    def _judge_failures(self, stats: dict[str, Any]) -> dict[str, Any]:
        records, limit = stats["records"], self.plan.pipeline.settings.max_failed
        allowed = limit * records["in"] if limit < 1 else limit
        failed = sum(s["failed"] for s in stats["stages"])
        if failed > allowed:
            stats["status"] = "failed"
            stats["message"] = (f"{failed} of {records['in']} records failed, more than max_failed = {limit:g} allows"
                                f"{self._errors(self._totals())}; they are in {self.out.path_of('failed')}")
        return stats

    def _files(self) -> list[dict[str, Any]]:
        files = []
        for record in (r for key, r in self.ledger.records.items() if key not in self.ledger.unfinished):
            for name, stage in record.stages.items():
                port, _, of = name.partition("/") if name in self.keepers else (WRITTEN, "", name)
                files.extend({"path": f.path, "rows": f.rows, "size_bytes": f.size_bytes, "stage": of, "port": port}
                             for f in stage.files)
        return files


@contextlib.contextmanager
def _interrupts() -> Iterator[list[str]]:
    """Turns Ctrl-C and a termination into a request to stop; a second one has its usual effect."""
    asked: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {}

    def ask(number: int, frame: Any) -> None:
        by = "Ctrl-C" if number == signal.SIGINT else "a termination signal"
        asked.append(f"stopped by {by}; the same command continues it, and does again only what was under way")
        for again, handler in before.items():
            signal.signal(again, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
