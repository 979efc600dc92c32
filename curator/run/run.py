"""A run: phase after phase, and what came of it in numbers."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from curator.api.counts import WRITTEN, Counts
from curator.api.errors import CuratorError, FirstError, InputError
from curator.api.findings import Finding
from curator.api.format import listing, plural, short_path, size
from curator.api.stage import Reduce, Sink, Source, Unit
from curator.engine.balance.allocation import Allocation, in_words
from curator.engine.events import Stop, Stopped
from curator.engine.scheduler import SHARE_OF
from curator.engine.seats import allocation_of
from curator.io.files.folder import FileInfo, Folder
from curator.io.files.listing import CARD, DATA
from curator.io.spool import shard_units, spool_units
from curator.machine.detect import this_machine
from curator.observe.live.metrics import Endpoint
from curator.observe.live.observer import Observer
from curator.observe.report.card import About, may_replace, render_card
from curator.observe.report.examples import find_examples
from curator.observe.report.page import render_report
from curator.observe.stats import RunInfo, StageInfo, findings_of, stage_rows, summarise, with_parts
from curator.pipeline.graph import Graph
from curator.pipeline.layout import ASIDE, folder_of
from curator.pipeline.plan import READ, SPOOLS, Mode, Phase, Plan, make_plan
from curator.recipe import dump, without_secrets
from curator.run.folder.guard import check_free, check_sinks, describe_lost, find_changes
from curator.run.folder.ledger import FOLDER, Ledger
from curator.run.folder.lock import Lock, take
from curator.run.folder.owner import Owner
from curator.run.loop import Labels, Loop, RunContext
from curator.worker.imports import modules_of

LOOK_S = 2.0  # the best allocation is asked for this often, to tell what limits the run
STATS_S = 2.0  # the numbers of a run that works are written this often, for who looks at it or after a kill,
STATS_SHARE = 0.01  # or so seldom that it costs no more than this share of the time
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
        from curator.observe.report.funnel import show_funnel

        show_funnel(self.stats)

    @property
    def ok(self) -> bool:
        return self.stats["status"] == "finished"

    @property
    def records(self) -> dict[str, int]:
        return self.stats["records"]

    @property
    def first_errors(self) -> list[FirstError]:
        """The first error of each stage, the one that matters most first."""
        return [FirstError(**error) for error in self.stats["first_errors"]]


def run(pipeline: Graph, *, out: str | None = None, workers: int | None = None, ray: str | bool | None = None,
        prune: bool | Callable[[str], Any] = False, replace: bool | Callable[[str], bool] = False, mode: Mode = "stream",
        watch: Callable[[Mapping[str, Any]], None] | None = None, metrics_port: int | str | None = None) -> Result:
    """Run a pipeline to its end, or continue one that was interrupted.

    `out`: the folder of the run, instead of the one that the pipeline says. `workers`: cores to use; None for all, 0 to work
    in this process. `ray`: the address of a Ray cluster to work on; True for that of RAY_ADDRESS, or else one of our own on
    this machine; False for none; None for that of RAY_ADDRESS, or else none. `prune`: remove results of inputs that are no
    longer read; a function is told before what that is. `replace`: go on when that removes results which the recipe was
    edited away from, or another recipe's; a function is asked, for an edit only, and told what would be done again and
    removed. `mode`: "batch" finishes each operator before the next one begins, and spools what is between them. `watch`:
    called now and then with a snapshot of the run. `metrics_port`: serve its numbers to Prometheus while it runs, on this
    port of this machine (0: any free one), or "HOST:PORT" to let others in.

    Raises:
        RecipeError, ContractError, InputError: before anything runs.
        CuratorError: the run cannot start: another one writes there, old results or files of others are in the way, or the
            port is taken.
    """
    plan = make_plan(pipeline, mode, out)
    units = _list_units(plan)
    check_free(plan.out)
    with contextlib.ExitStack() as held:
        lock = take(plan.out)
        held.callback(lock.release)
        endpoint = None if metrics_port is None else Endpoint(metrics_port)
        if endpoint is not None:
            held.callback(endpoint.close)
        # A filesystem in memory belongs to one process: no other worker would see it.
        inline = workers == 0 or _in_memory(plan)
        work = _Run(plan, units, lock, prune, watch)
        work.check(replace)
        _check_writable(plan)
        observer = held.enter_context(Observer(plan.out.sub("_run"), pipeline.name, work.ledgers[0].run, endpoint))
        means = RunContext(this_machine(None if inline else workers), observer, work.tell_numbers, work.save_numbers, inline, lock,
                      modules_of(o for phase in plan.phases for o in phase.operators),
                      None if inline else _ray_address(ray), workers)
        held.callback(means.close)
        return work.go(means)


def _ray_address(asked: str | bool | None) -> str | None:
    """The cluster to work on; None for processes of this machine."""
    if asked is None or asked is True:
        return os.environ.get("RAY_ADDRESS") or ("local" if asked else None)
    return asked or None


def _list_units(plan: Plan) -> list[tuple[int, Unit]]:
    units: list[tuple[int, Unit]] = []
    seen: set[str] = set()
    for operator in plan.phases[0].operators:
        source = operator.steps[0].stage
        if isinstance(source, Source):
            for unit in source.units():
                if unit.key in seen:
                    raise InputError(f"{unit.label} is read by two sources; read it once and branch")
                seen.add(unit.key)
                units.append((operator.index, unit))
    written = {plan.out.path_of(name) + "/" for name in (DATA, *ASIDE)}
    written |= {folder_of(s.stage) + "/" for s in plan.steps if isinstance(s.stage, Sink)}
    outputs = tuple(written)
    inside = next((part.uri for _, unit in units for part in unit.parts if part.uri.startswith(outputs)), None)
    if inside is not None:
        folder = max((f for f in outputs if inside.startswith(f)), key=len)
        raise InputError(f"{inside} is read, and {folder} is where this run writes: a run does not read its own output; "
                         "write elsewhere, or name what is to be read more closely")
    return units


def _check_writable(plan: Plan) -> None:
    """Find out before the work, not after it, that the output cannot be written."""
    plan.out.sub("_run").make()
    plan.out.sub("_run").write("manifest.json", json.dumps(_manifest(plan), indent=1).encode())


def _manifest(plan: Plan) -> dict[str, Any]:
    stages = [{"name": s.name, "class": f"{type(s.stage).__module__}.{type(s.stage).__qualname__}",
               "version": s.stage.version, "fingerprint": s.fingerprint, "key": s.key} for s in plan.steps]
    return {"name": plan.pipeline.name, "curator": version("curator-core"), "python": platform.python_version(),
            "pyarrow": pa.__version__, "stages": stages}


def _errors_in(folder: Folder) -> dict[str, FirstError]:
    """What an earlier attempt said went wrong first, by stage."""
    try:
        stats = json.loads(folder.read("stats.json")) if folder.exists("stats.json") else {}
        return {error["stage"]: FirstError(**error) for error in stats.get("first_errors", ())}
    except (ValueError, TypeError, KeyError):  # of another version
        return {}


def _in_memory(plan: Plan) -> bool:
    paths = [str(p) for s in plan.steps for p in _as_list(getattr(s.stage, "path", ""))]
    return any(p.startswith("memory://") for p in paths)


def _as_list(value: Any) -> list:
    return list(value) if isinstance(value, (list, tuple)) else [value]


class _Run:
    def __init__(self, plan: Plan, units: list[tuple[int, Unit]], lock: Lock,
                 prune: bool | Callable[[str], Any],
                 watch: Callable[[Mapping[str, Any]], None] | None) -> None:
        self.plan, self.units, self.out, self.lock, self.prune, self.watch = plan, units, plan.out, lock, bool(prune), watch
        self.tell_pruned = prune if callable(prune) else None
        self.began = time.monotonic()
        steps = plan.steps
        self.implicit_sinks = {s.name for s in steps if s.implicit}
        self.sources = {s.name for s in steps if isinstance(s.stage, Source)}
        self.sinks = {s.name for s in steps if isinstance(s.stage, Sink) and not s.implicit}
        self.reasons = {s.name: s.stage.reasons() for s in steps}  # asked once: a stage may have to look for them in files
        self.part_of = {s.name: s.part_of for s in steps if s.part_of}
        self.reports = {s.name: s.stage.reports for s in steps if s.part_of}
        self.spools = {s.name: (phase.number, s) for phase in plan.phases for s in phase.operators[-1].steps if s.spool}
        self.owner = Owner.of(plan.out)
        sinks = [s for s in steps if isinstance(s.stage, Sink)]
        self.ledgers = [Ledger(plan.out, phase.number, sinks, self.owner, lock.confirm) for phase in plan.phases]
        self.loops: list[Loop] = []  # of the phases that were begun
        self.read_before = 0
        self.best: Allocation | None = None  # the best allocation, when it was looked at last,
        self.operators: list[str] = []  # of these operators,
        self.look_at = 0.0  # and when to look again
        self.begun = False
        self.errors_before: dict[str, FirstError] = {}  # of earlier attempts, by stage

    # -- from beginning to end ------------------------------------------------------------------------------

    def check(self, replace: bool | Callable[[str], bool]) -> None:
        """Raise if results or files are in the way, before anything is touched."""
        check_sinks(self.plan, self.owner, self.ledgers)
        changes = find_changes(self.plan, [*self.ledgers, *self._later()], self.units)
        if changes.strange:
            raise CuratorError(f"{changes.strange[0]} was made when {self.out.uri} lay elsewhere, and outside of a folder "
                               "that was moved or copied an edit removes nothing. Write to another folder, or give the sink "
                               "another path")
        if lost := describe_lost(self.plan, self.ledgers[0], self.units):
            if not self.prune:
                raise CuratorError(f"{lost}. Remove them with --prune (prune=True), or write to another folder.")
            if self.tell_pruned is not None:
                self.tell_pruned(f"{lost} are removed")
        if not changes.files or replace is True:
            return
        told = changes.describe(self.out.uri)
        if changes.other is not None:
            raise CuratorError(f"{told}. Write to another folder (--out, out=), or say --replace (replace=True)")
        if not (callable(replace) and replace(told)):
            raise CuratorError(f"{told}. Go on with --yes (in Python replace=True), or write to another folder (--out, out=)")

    def _later(self) -> Iterator[Ledger]:
        """The ledgers of phases that the plan does not have any more."""
        number = len(self.plan.phases)
        while self.out.sub("_run").exists(f"{FOLDER}-{number + 1}"):
            yield Ledger(self.out, number, self.ledgers[0].sinks, self.owner, self.lock.confirm)
            number += 1

    def go(self, means: RunContext) -> Result:
        self.means, watch = means, self.watch
        means.watch = None if watch is None else lambda: watch(self._snapshot())
        folder = self.out.sub("_run")
        self.errors_before = _errors_in(folder)
        folder.write("recipe.yaml", dump(self.plan.pipeline).encode())
        try:
            with _interrupts() as self.means.asked:
                stopped = self._work()
        except BaseException as error:
            self._break_off(error)
            raise
        stats = self._stats(stopped)
        self._tell_deaths(stats)
        self._write_card(stats)
        self._save(stats)
        report = render_report(stats, folder.read("recipe.yaml").decode(), find_examples(stats, self.out))
        folder.write("report.html", report.encode())
        means.observer.end(stats["status"], stats["message"], stats["records"])
        return Result(stats, self.out.uri)

    def _break_off(self, error: BaseException) -> None:
        """Keep what is known of a run that an error of its own ended, if it had begun, or nothing is known of one before it."""
        folder = self.out.sub("_run")
        with contextlib.suppress(CuratorError):  # it may be what the error is about
            if self.loops or not folder.exists("stats.json"):
                stopped = Stopped("broken", f"{error}" if isinstance(error, CuratorError) else f"{type(error).__name__}: {error}")
                stats = self._stats(stopped)
                for first in stats["first_errors"][:1]:
                    error.add_note(str(FirstError(**first)))
                self._save(stats)
                self._write_card(stats)

    def _write_card(self, stats: dict[str, Any]) -> None:
        """`README.md`; one that somebody has edited stays, and the stats say so."""
        if may_replace(self.out):
            self.lock.confirm()
            self.out.write(CARD, render_card(stats, self._about(), self.out).encode())
        else:
            stats["alarms"].append({"level": "note", "stage": "", "text":
                                    f"{CARD} was edited, so it is left as it is. Remove it, and the next run writes a new one."})

    def _about(self) -> About:
        sources, sinks = [], {}
        files, sizes = Counter[int](), Counter[int]()
        for operator, unit in self.units:
            files[operator] += len(unit.parts)
            sizes[operator] += unit.size_bytes
        for operator in self.plan.phases[0].operators:
            stage = operator.steps[0].stage
            if isinstance(stage, Source):
                paths = listing(short_path(without_secrets(str(p)), 100) for p in _as_list(getattr(stage, "path", ())))
                many = f"{plural(files[operator.index], 'part')}, {size(sizes[operator.index])}"
                sources.append(f"{operator.steps[0].name}: {paths} ({many})")
        for step in (s for s in self.plan.steps if s.name in self.sinks and not s.part_of):
            folder = folder_of(step.stage)
            if folder.startswith(self.out.path_of("")):
                sinks[step.name] = folder.removeprefix(self.out.path_of(""))
        settings = self.plan.pipeline.settings
        return About(version=version("curator-core"), description=settings.description, license=settings.license,
                     sources=sources, sinks=sinks)

    def _work(self) -> Stopped | None:
        """Phase after phase; gives why it stopped early, or None."""
        self._clear_later()
        while len(self.loops) < len(self.plan.phases):
            phase = self.plan.phases[len(self.loops)]
            ledger, units = self.ledgers[phase.number], self._units(phase)
            loop = Loop(phase, ledger, units, self.out, self.prune or bool(phase.number))
            if loop.todo and phase.number and (lost := self._lost_files(phase)):
                first = min(lost)
                self.ledgers[first].lose(lost[first])
                del self.loops[first:]
                continue
            if self.loops:
                self.loops[-1].end()
            self.loops.append(loop)
            self._tell_phase(loop)
            stopped = self._do(loop) if loop.todo else None
            if stopped:
                return stopped
        return None

    def _tell_phase(self, loop: Loop) -> None:
        observer, number = self.means.observer, loop.phase.number
        if not number and not self.begun:  # it may come back here, for a spool that is gone
            self.begun = True
            observer.begin(units=len(loop.units), skipped=loop.skipped, bytes=loop.bytes_total, cores=self.means.machine.cpus,
                           gpus=self.means.machine.gpus)
        observer.phase(loop.phase.operators, Labels(loop.units), number + 1, len(self.plan.phases))

    def _do(self, loop: Loop) -> Stopped | None:
        totals, limit = self._totals(), self.plan.pipeline.settings.max_failed
        before = (sum(totals[n].rows_in for n in self.sources if n in totals), sum(c.failed for c in totals.values()))
        if not loop.phase.number:
            self.read_before = before[0]
            return loop.go(self.means, before, limit)
        # From here on nothing is read that was not counted, so a share of the records is a number.
        stopped = loop.go(self.means, before, limit * max(before[0], SHARE_OF) if limit < 1 else limit)
        if stopped and stopped.kind == "max_failed":
            failed = sum(c.failed for c in self._totals().values())
            return replace(stopped, message=f"{failed} of {before[0]} records failed, more than max_failed = {limit:g} allows")
        return stopped

    def _clear_later(self) -> None:
        """Results of later phases that an edit has made untrue, and those of phases that the plan does not have any more."""
        for phase in self.plan.phases[1:]:
            self.ledgers[phase.number].expire(phase)
        for old in self._later():
            if not old.abolish():
                break

    def _units(self, phase: Phase) -> list[tuple[int, Unit]]:
        """What there is to read: of the first phase the sources' units, of a later one what is spooled for it."""
        if not phase.number:
            return self.units
        units: list[tuple[int, Unit]] = []
        for operator in phase.operators:
            if operator.derived:
                files = [f for name in operator.spools for f in self._spooled(name)]
                stage = operator.steps[0].stage
                sharded = isinstance(stage, Reduce)
                made = shard_units(files, stage.shards if stage.key is not None else 1) if sharded else spool_units(files)
                units += [(operator.index, unit) for unit in made]
        return units

    def _spooled(self, name: str) -> list[FileInfo]:
        number, step = self.spools[name]
        return self.ledgers[number].spooled(step)

    def _lost_files(self, phase: Phase) -> dict[int, set[str]]:
        """Spooled files that a phase needs and somebody has removed, as their ledger names them, by the phase that wrote them."""
        there = set(self.out.sub(SPOOLS).names(recursive=True))
        lost: dict[int, set[str]] = {}
        for name in {name for o in phase.operators for name in o.spools}:
            gone = {f"{SPOOLS}/{f.uri}" for f in self._spooled(name) if f.uri not in there}
            if gone:
                lost.setdefault(self.spools[name][0], set()).update(gone)
        return lost

    # -- in numbers -----------------------------------------------------------------------------------------------

    def _totals(self) -> dict[str, Counts]:
        """The counts of finished units and of those under way, by stage."""
        return with_parts(self._by_step(), self.part_of, self.reports)

    def _by_step(self, lasting: bool = False) -> dict[str, Counts]:
        """The same by step. `lasting`: what open units wrote does not count."""
        return {name: counts for loop in self.loops for name, counts in loop.totals(lasting).items()
                if name not in self.implicit_sinks and not self._is_spool(name)}

    def _is_spool(self, name: str) -> bool:
        return name.removeprefix(READ) in self.spools

    def _snapshot(self) -> dict[str, Any]:
        totals, loop = self._totals(), self.loops[-1]
        read = sum(c.rows_in for n, c in totals.items() if n in self.sources)
        return {**loop.progress(), "phase": loop.phase.number + 1, "phases": len(self.plan.phases),
                "records_in": read, "written": sum(c.out.get(WRITTEN, 0) for n, c in totals.items() if n in self.sinks),
                "dropped": sum(sum(c.dropped.values()) for c in totals.values()),
                "duplicate": sum(c.duplicate for c in totals.values()), "failed": sum(c.failed for c in totals.values()),
                "rate": None if loop.phase.number else (read - self.read_before) / max(1e-3, time.monotonic() - self.began),
                "workers": len(loop.scheduler.state.workers), "limit": self._limit()}

    def tell_numbers(self) -> None:
        """Give the observer the numbers of the run as they stand."""
        scheduler = self.loops[-1].scheduler
        if scheduler is not None:
            rows = stage_rows(self._infos(), self._totals())
            self.means.observer.update(self._snapshot(), rows, scheduler.state, time.monotonic())

    def save_numbers(self) -> float:
        """Write down how far it is, for `curator show`; gives when to do so again."""
        began, loop = time.monotonic(), self.loops[-1]
        loop.ledger.elapsed[loop.ledger.run] = began - loop.began
        stats = self._stats(None, status="running")
        stats["alive"] = {"host": socket.gethostname(), "pid": os.getpid(), "time": round(time.time(), 3)}
        self._save(stats)
        return began + max(STATS_S, (time.monotonic() - began) / STATS_SHARE)

    def _save(self, stats: dict[str, Any]) -> None:
        self.lock.confirm()
        self.out.sub("_run").write("stats.json", json.dumps(stats, indent=1, ensure_ascii=False).encode())

    def _limit(self) -> str:
        """What holds the run up, in words. Empty before anything was measured."""
        busy = {(loop.phase.number, name): s for loop in self.loops for name, s in loop.busy_s().items()}
        total = sum(busy.values())
        if not total:
            return ""
        busiest = max(busy, key=lambda o: busy[o])
        seconds, cores = time.monotonic() - self.began, self._look_at_workers()
        name, share = f"{busiest[1]} ({busy[busiest] / total:.0%} of the work)", min(1.0, total / seconds / cores)
        if seconds < SHORT_S:
            return f"{name}; in so short a run, starting the workers counts most"
        if self.best is not None and (self.best.turns or self.best.binding == "gpus"):
            return in_words(self.best, self.operators)
        if share > 0.7:
            gain = self.best.gains.get("cpu", 0.0) if self.best is not None else 0.0
            more = f"one more would make the run {gain:.0%} faster" if gain >= 0.01 else "more would make it faster"
            return f"{name} on {cores:g} cores, which are {share:.0%} busy; {more}"
        return f"{name}; the {cores:g} cores are only {share:.0%} busy: too few or too small inputs to work on at once"

    def _look_at_workers(self) -> float:
        """The cores that there are. Asks now and then, while everything works, what the best allocation would be."""
        scheduler, now = self.loops[-1].scheduler, time.monotonic()
        if scheduler is None or not scheduler.state.nodes:
            return self.means.machine.cpus
        if not scheduler.finished and now > self.look_at:
            best = allocation_of(scheduler.state)
            self.best = best if best.slowest >= 0 or best.turns else self.best
            self.operators = [o.plan.name for o in scheduler.state.operators]
            self.look_at = time.monotonic() + LOOK_S + 50 * (time.monotonic() - now)
        return sum(n.node.cpus for n in scheduler.state.nodes.values())

    def _stats(self, stopped: Stopped | None, status: str = "finished") -> dict[str, Any]:
        by_step, running = self._by_step(lasting=True), status == "running"
        counts = with_parts(by_step, self.part_of, self.reports)
        status, message = ("stopped", stopped.message) if stopped else (status, "")
        units = [{"done": loop.ledger.done, "total": len(loop.units),
                  "skipped": loop.skipped} for loop in self.loops]
        seconds = [sum(loop.ledger.elapsed.values()) for loop in self.loops]
        info = RunInfo(name=self.plan.pipeline.name, status=status, message=message, seconds=sum(seconds), out=self.out.uri,
                       limit=self._limit(), files=[] if running else self._files(), units=units[0] if units else {},
                       example_columns={c: kind for s in self.plan.steps for c, kind in s.stage.example_columns().items()})
        columns = {n: {c: s.to_json() for c, s in k.columns.items()} for n, k in counts.items() if k.columns}
        stats = summarise(info, self._infos(), counts, columns, self._findings(by_step | counts))
        if len(self.plan.phases) > 1:
            stats["phases"] = [{"units": u, "seconds": round(s, 3)} for u, s in zip(units, seconds, strict=True)]
        if stopped:
            stats["stopped_by"] = stopped.kind
            if stopped.kind == "max_failed":
                stats["message"] += self._where_failed(stats)
        elif not running:
            self._judge_failures(stats)
        stats["first_errors"] = [asdict(error) for error in self._first_errors(stats, stopped)]
        return stats

    def _first_errors(self, stats: dict[str, Any], stopped: Stopped | None) -> list[FirstError]:
        """The first error of each stage; before all others what stopped the run, then by the number of records that failed."""
        known = self.errors_before | {name: e for loop in self.loops for name, e in loop.errors.items()}
        failed = {s["name"]: s["failed"] for s in stats["stages"] if s["failed"]}
        errors = [replace(e, stage=self.part_of.get(name, name)) for name, e in known.items()]
        found = sorted((e for e in errors if e.stage in failed), key=lambda e: -failed[e.stage])
        first = [stopped.first] if stopped and stopped.first else []
        return [*first, *(e for e in found if not first or e.stage != first[0].stage)]

    def _infos(self) -> list[StageInfo]:
        workers = {s.name: loop.workers.get(o.index, 0) for loop in self.loops for o in loop.phase.operators for s in o.steps}
        return [StageInfo(s.name, "source" if s.name in self.sources else "sink" if s.name in self.sinks else "stage",
                          tuple(end for end in s.after if end[0] not in self.part_of), workers.get(s.name, 0),
                          self.reasons[s.name])
                for s in self.plan.steps if not s.implicit and not s.part_of]

    def _findings(self, counts: Mapping[str, Counts]) -> dict[str, list[Finding]]:
        """What stages say of themselves; parts of a composite speak in its name."""
        found: dict[str, list[Finding]] = {}
        for step in self.plan.steps:
            if step.name in counts:
                whole = self.part_of.get(step.name, step.name)
                found.setdefault(whole, []).extend(findings_of(step.stage, whole, counts[step.name]))
        return found

    def _tell_deaths(self, stats: dict[str, Any]) -> None:
        deaths, dead = self.means.observer.deaths, self.means.observer.dead
        if deaths:
            more = f" and {dead - 1} more" if dead > 1 else ""
            stats["alarms"].append({"level": "note", "stage": "", "text": f"Workers died and were replaced: {deaths[0]}{more}."})

    def _where_failed(self, stats: dict[str, Any]) -> str:
        """Where most records failed, and where they are, in words."""
        failed = [stage for stage in stats["stages"] if stage["failed"]]
        if not failed:
            return ""
        kept = f"; they are in {self.out.path_of('failed')}" if any(f["port"] == "failed" for f in stats["files"]) else ""
        return f"; most of them in stage {max(failed, key=lambda stage: stage['failed'])['name']}{kept}"

    def _judge_failures(self, stats: dict[str, Any]) -> None:
        records, limit = stats["records"], self.plan.pipeline.settings.max_failed
        allowed = limit * records["in"] if limit < 1 else limit
        failed = sum(s["failed"] for s in stats["stages"])
        if failed > allowed:
            stats["status"], stats["stopped_by"] = "failed", "max_failed"
            stats["message"] = (f"{failed} of {records['in']} records failed, more than max_failed = {limit:g} allows"
                                f"{self._where_failed(stats)}")

    def _files(self) -> list[dict[str, Any]]:
        files = []
        for name, file in (found for loop in self.loops for found in (*loop.ledger.written(), *loop.ledger.evidence)):
            if name not in self.spools:
                port, _, of = (name.partition("/") if name in self.implicit_sinks else ("clusters", "", self.part_of[name])
                               if name in self.part_of else (WRITTEN, "", name))
                files.append({"path": file.path, "rows": file.rows, "size_bytes": file.size_bytes, "stage": of, "port": port})
        return files


@contextlib.contextmanager
def _interrupts() -> Iterator[list[Stop]]:
    """Turns Ctrl-C and a termination into a request to stop; a second one has its usual effect."""
    asked: list[Stop] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {}

    def ask(number: int, frame: Any) -> None:
        by, kind = ("Ctrl-C", "interrupted") if number == signal.SIGINT else ("a termination signal", "terminated")
        asked.append(Stop(f"stopped by {by}; the same command continues it, and does again only what was under way", kind))
        for replay, handler in before.items():
            signal.signal(replay, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
