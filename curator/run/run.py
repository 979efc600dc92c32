"""A run from its first to its last moment: what is in the way, phase after phase, the report."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from curator import sql
from curator.api.errors import CuratorError, FirstError, RunStopped, in_words
from curator.api.stage import Sink, Unit, WrittenFile
from curator.engine.events import Stop
from curator.engine.scheduler import SHARE_OF, failures_allowed, too_many_failed
from curator.engine.snapshot import snapshot_of
from curator.io.files.listing import CARD
from curator.machine.detect import this_machine
from curator.observe.live.metrics import Endpoint
from curator.observe.live.observer import Observer
from curator.observe.report.card import may_replace, render_card, render_published
from curator.observe.report.page import render_report
from curator.pipeline.graph import Graph
from curator.pipeline.plan import SPOOLS, Mode, Phase, Plan
from curator.recipe import dump
from curator.run.folder import guard
from curator.run.folder.edits import later_units, spooled
from curator.run.folder.ledger import Ledger, ledgers_of
from curator.run.folder.lock import take
from curator.run.folder.owner import remove_half_written
from curator.run.folder.shards import Shard, gather, planned
from curator.run.folder.versions import forget, keep
from curator.run.loop import Loop, RunContext, collecting_rarely
from curator.run.manifest import about_of, manifest_of
from curator.run.numbers import Numbers
from curator.run.replay import Replay
from curator.worker.imports import modules_of
from curator.worker.main import trim_heap

Engine = Literal["curator", "ray-data"]
LOG = logging.getLogger("curator")  # without anybody's settings it writes warnings to the terminal
WATCH_S = 0.2  # watchers are told this often, and
STATS_S = 2.0  # the numbers of a run are written this often, for `curator show` or after a kill,
STATS_SHARE = 0.01  # or so seldom that each costs no more than this share of the time


@dataclass(frozen=True)
class Result:
    """How a run ended. `stats` is what `stats.json` holds; `ok` says that every record was dealt with, within
    `max_failed`. `out`: the folder of the run; "" of a run for its counts, which keeps none."""

    stats: dict[str, Any]
    out: str

    def __repr__(self) -> str:
        ended = ", ".join(f"{n} {end}" for end, n in self.records.items() if n)
        return f"<run {self.stats['status']}: {ended}{self.out and f'; in {self.out}'}>"

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

    @property
    def error(self) -> RunStopped:
        """What to raise of a run that did not end well."""
        return RunStopped("\n".join(map(str, (self.stats["message"], *self.first_errors[:1]))))


def run(pipeline: Graph, *, out: str | None = None, workers: int | None = None, ray: str | bool | None = None,
        prune: bool | Callable[[str], Any] = False, replace: bool | Callable[[str], bool] = False,
        mode: Mode = "stream", engine: Engine = "curator",
        watch: Callable[[Mapping[str, Any]], None] | None = None,
        metrics_port: int | str | None = None, replay: Replay | None = None,
        shard: str | None = None) -> Result:
    """Run a pipeline to its end, or continue one that was interrupted.

    `out`: the folder of the run, instead of the one that the pipeline says. `workers`: cores to use; None for
    all, 0 to work in this process. `ray`: the address of a Ray cluster to work on; True for that of
    RAY_ADDRESS, or else one of our own on this machine; False for none; None for that of RAY_ADDRESS, or else
    none. `prune`: remove results of inputs that are no longer read, and make again what was written and
    is gone; a function is told before what that is.
    `replace`: go on when that removes results which the recipe was edited away from, or another recipe's; a
    function is asked, for an edit only, and told what would be done again and removed. `mode`: "batch"
    finishes each operator before the next one begins, and spools what is between them. `engine`: "ray-data"
    has Ray Data run the operators, on the cluster that `ray` says or one of our own. `watch`: called now
    and then with a snapshot of the run. `metrics_port`: serve its numbers to Prometheus while it runs, on
    this port of this machine (0: any free one), or "HOST:PORT" to let others in. `replay`: records that
    failed before run again. `shard`: "3/8" to do the third of eight parts, beside the others; the run
    without it gathers what they did, and does the rest (`curator.run.folder.shards`).

    Raises:
        RecipeError, ContractError, InputError: before anything runs.
        CuratorError: the run cannot start: another one writes there, old results or files of others are in
        the way, or the port is taken.
    """
    part = None if shard is None else Shard.of(shard)
    plan = whole = planned(pipeline, mode, out, part)
    make_loop = _loop_of(engine, plan, workers, replay)
    if replay is not None:
        plan = planned(pipeline, mode, out, None, replay.stages(plan.out))
    units = guard.list_units(plan)
    guard.check_free(plan)
    if part is not None:
        plan = part.plan(whole)
    with contextlib.ExitStack() as stack:
        lock = take(plan.out)
        stack.callback(lock.release)
        errors = {}
        if part is not None:
            units = part.begin(whole, units)
        else:
            errors = gather(plan, units, lock, replace)
        endpoint = None if metrics_port is None else stack.enter_context(contextlib.closing(
            Endpoint(metrics_port)))
        ledgers = ledgers_of(plan, lock)
        plan = guard.check(plan, ledgers, units, prune)
        if lock.after_kill:
            remove_half_written(plan.out)
        if replay is not None:
            replay.check(plan)
            replace = replay.refuse
            for phase, ledger in zip(plan.phases, ledgers, strict=False) if replay.keep_passed else ():
                ledger.adopt(phase)
        # A filesystem in memory belongs to one process: no other worker would see it.
        inline = workers == 0 or _in_memory(plan)
        address = None if inline else _ray_address(ray, engine)
        plan = guard.check_installed(plan, ledgers, units, address in (None, "local"), replay is not None)
        guard.check_edit(plan, ledgers, units, replace)
        folder = plan.out.sub("_run")
        folder.make()  # that it cannot be written is found before the work, not after it
        if part is None:
            keep(plan)
        for said in dict.fromkeys((*guard.remarks(whole), *plan.notes)):
            LOG.warning("%s", said)
        machine = this_machine(workers or None)
        manifest = manifest_of(plan, machine)
        folder.write("manifest.json", json.dumps(manifest, indent=1).encode())
        observer = stack.enter_context(Observer(folder, pipeline.name, ledgers[0].run, endpoint))
        context = RunContext(this_machine() if inline else machine, observer, make_loop, inline, lock,
                             modules_of(o for phase in plan.phases for o in phase.operators),
                             address, workers)
        stack.callback(context.close)
        about = {name: manifest[name] for name in ("began", "command", "versions", "machine")}
        if part is not None:
            about["shard"] = str(part)
        begun = _Run(plan, units, ledgers, context, watch, about, replay)
        begun.numbers.errors_before = errors | begun.numbers.errors_before
        if not inline:  # what making the plan took is the workers'
            sql.let_go()
            trim_heap()
            stack.enter_context(collecting_rarely())
        return begun.go()


def _ray_address(asked: str | bool | None, engine: Engine) -> str | None:
    """The cluster to work on; None for processes of this machine."""
    if engine == "ray-data" and not asked:
        asked = True
    if asked is None or asked is True:
        return os.environ.get("RAY_ADDRESS") or ("local" if asked else None)
    return asked or None


def _in_memory(plan: Plan) -> bool:
    """Whether something lies in a filesystem in memory, which no other process would see."""
    return any(p.startswith("memory://") for step in plan.steps for p in guard.paths_of(step.stage))


def _loop_of(engine: Engine, plan: Plan, workers: int | None, replay: Replay | None) -> Callable[..., Loop]:
    """What works through a phase.

    Raises:
        CuratorError: another engine cannot do it.
    """
    if engine == "curator":
        return Loop
    if engine != "ray-data":
        raise CuratorError(f"there is no engine {engine!r}: curator, ray-data")
    if replay is not None:
        raise CuratorError("what failed is replayed by our own engine, whatever the run was made with: leave "
                           "out --engine ray-data")
    if workers == 0:
        raise CuratorError("workers=0 works in this process, and Ray Data works in its own: leave out one of "
                           "them")
    if _in_memory(plan):
        raise CuratorError("Ray Data works in processes of its own, which do not see memory://: write to a "
                           "folder, or leave out --engine ray-data")
    from curator.run.raydata.loop import RayDataLoop

    RayDataLoop.check(plan)
    return RayDataLoop


class _Run:
    """A run that nothing is in the way of. `ledgers`: as `ledgers_of` gives them."""

    def __init__(self, plan: Plan, units: list[tuple[int, Unit]], ledgers: list[Ledger], context: RunContext,
                 watch: Callable[[Mapping[str, Any]], None] | None, about: Mapping[str, Any],
                 replay: Replay | None = None) -> None:
        self.plan, self.units, self.out, self.ledgers = plan, units, plan.out, ledgers
        self.context, self.watch, self.replay = context, watch, replay
        self.loops: list[Loop] = []  # of the phases that were begun
        self.numbers = Numbers(plan, self.loops, context.machine.cpus, about)
        self.watch_at = self.saved_until = 0.0
        self.save_s = STATS_S

    def go(self) -> Result:
        folder, observer = self.out.sub("_run"), self.context.observer
        folder.write("recipe.yaml", dump(self.plan.pipeline).encode())
        self.context.tell = self._tell
        try:
            with _interrupts() as self.context.asked:
                stopped = self._work()
        except BaseException as error:
            self._keep_what_is_known(error)
            raise
        stats = self.numbers.final(stopped)
        if observer.deaths:
            more = f" and {observer.dead - 1} more" if observer.dead > 1 else ""
            _note(stats, f"Workers were lost: {observer.deaths[0]}{more}.")
        for said in guard.remarks(self.plan):
            _note(stats, said)
        self._write_card(stats)
        self._save(stats)
        report = render_report(stats, folder.read("recipe.yaml").decode(), self.out)
        folder.write("report.html", report.encode())
        observer.end(stats["status"], stats["message"], stats["records"])
        if stats["status"] == "finished" and "shard" not in stats["about"]:
            self._publish(stats)
            forget(self.plan)
        return Result(stats, self.out.uri)

    # -- phase after phase -----------------------------------------------------------------------------------

    def _work(self) -> Stop | None:
        """Gives why it stopped early, or None."""
        # Results of later phases that an edit made untrue are cleared before any work begins.
        for phase in self.plan.phases[1:]:
            self.ledgers[phase.number].expire(phase)
        while len(self.ledgers) > len(self.plan.phases):
            self.ledgers.pop().abolish()
        begun = False
        while len(self.loops) < len(self.plan.phases):
            phase = self.plan.phases[len(self.loops)]
            units = later_units(self.plan, phase, self.ledgers) if phase.number else self.units
            loop = self.context.make_loop(phase, self.ledgers[phase.number], units, self.out, self.replay)
            if loop.todo and phase.number and (lost := self._lost_files(phase)):
                first = min(lost)
                self.ledgers[first].lose(lost[first])
                del self.loops[first:]
                continue
            if self.loops:
                self.loops[-1].end()
            self.loops.append(loop)
            observer, machine = self.context.observer, self.context.machine
            if not begun:  # the first phase may come again, when a spool is gone
                observer.begin(units=len(loop.units), skipped=loop.skipped, bytes=loop.reading.total,
                               cores=machine.cpus, gpus=machine.gpus)
                begun = True
            observer.phase(phase.operators, loop.units, phase.number + 1, len(self.plan.phases))
            if loop.todo and (stopped := self._go_through(loop)):
                return stopped
        return None

    def _go_through(self, loop: Loop) -> Stop | None:
        limit, (read, failed) = self.plan.pipeline.settings.max_failed, self.numbers.read_and_failed()
        before = read, failed - loop.failed_before
        if not loop.phase.number:
            return loop.go(self.context, before, limit)
        # From here on nothing is read that was not counted, so a share of the records is a number.
        stopped = loop.go(self.context, before, failures_allowed(limit, max(before[0], SHARE_OF)))
        if stopped and stopped.kind == "max_failed":
            failed = self.numbers.read_and_failed()[1]
            return replace(stopped, message=too_many_failed(failed, before[0], limit))
        return stopped

    def _lost_files(self, phase: Phase) -> dict[int, set[str]]:
        """Spooled files that a phase needs and somebody has removed, by the phase that wrote them."""
        there = set(self.out.sub(SPOOLS).names(recursive=True))
        lost: dict[int, set[str]] = {}
        for name in {name for o in phase.operators for name in o.spools}:
            number, files = spooled(self.plan, self.ledgers, name)
            if gone := {f"{SPOOLS}/{f.uri}" for f in files if f.uri not in there}:
                lost.setdefault(number, set()).update(gone)
        return lost

    # -- what is told and kept -------------------------------------------------------------------------------

    def _tell(self, now: float | None) -> None:
        """Tell who watches how far it is, each in its time. `now` None: a phase has ended, which all hear."""
        observer, state = self.context.observer, self.loops[-1].state
        if self.watch is not None and (now is None or now >= self.watch_at):
            began = time.monotonic()
            self.watch(self.numbers.snapshot())
            self.watch_at = began + max(WATCH_S, (time.monotonic() - began) / STATS_SHARE)
        if state is not None and (now is None or observer.due()):
            began = time.monotonic()
            observer.update(self.numbers.snapshot(), self.numbers.rows(), snapshot_of(state), began)
        if now is not None and now >= self.saved_until:
            stats = self.numbers.running(self.save_s)
            stats["live"]["events"] = list(observer.log.recent)
            self._save(stats)
            self.save_s = max(STATS_S, (time.monotonic() - now) / STATS_SHARE)
            self.saved_until = now + self.save_s

    def _save(self, stats: dict[str, Any]) -> None:
        self.context.lock.confirm()
        self.out.sub("_run").write("stats.json", json.dumps(stats, indent=1, ensure_ascii=False).encode())

    def _keep_what_is_known(self, error: BaseException) -> None:
        """Of a run that an error of its own ended, if it had begun, or nothing is known of one before it."""
        with contextlib.suppress(CuratorError):  # it may be what the error is about
            if self.loops or not self.out.sub("_run").exists("stats.json"):
                stats = self.numbers.final(Stop("broken", in_words(error)))
                for first in stats["first_errors"][:1]:
                    error.add_note(str(FirstError(**first)))
                self._save(stats)
                self._write_card(stats)

    def _write_card(self, stats: dict[str, Any]) -> None:
        """`README.md`; one that somebody has edited stays, and the stats say so."""
        if not may_replace(self.out):
            return _note(stats, f"{CARD} was edited, so it is left as it is. Remove it, and the next run "
                                "writes a new one.")
        self.context.lock.confirm()
        # first in `_run/`, where the next run may remove what is half-written
        begun = self.out.sub("_run") if self.out.is_local else self.out
        begun.write(CARD, render_card(stats, about_of(self.plan, self.units), self.out).encode())
        if self.out.is_local:
            begun.move([CARD], self.out)

    def _publish(self, stats: dict[str, Any]) -> None:
        """What sinks do with the whole of what they wrote."""
        sinks = {step.name: step.stage for step in self.plan.steps if isinstance(step.stage, Sink)
                 and type(step.stage).publish is not Sink.publish}
        order = {unit.key: at for at, (_, unit) in enumerate(self.units)}  # behind a barrier there are others
        for name, sink in sinks.items():
            files = [WrittenFile(self.out.full_path(file.path), file.rows, file.size_bytes)
                     for ledger in self.ledgers for writer, file in ledger.written() if writer == name]
            about = render_published(stats, about_of(self.plan, self.units), dump(self.plan.pipeline))
            files.sort(key=lambda file: (
                order.get(file.path.rpartition("/part-")[2][:16], len(order)), file.path))
            self.context.lock.confirm()
            try:
                _note(stats, sink.publish(files, about))
            except CuratorError as error:
                _note(stats, f"{name} has published nothing, or not all: {error}")
                self._save(stats)
                raise
        if sinks:
            self._save(stats)


def _note(stats: dict[str, Any], text: str) -> None:
    stats["alarms"].append({"level": "note", "stage": None, "text": text})


@contextlib.contextmanager
def _interrupts() -> Iterator[list[Stop]]:
    """Turns Ctrl-C and a termination into a request to stop; a second one has its usual effect."""
    asked: list[Stop] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[int, Any] = {}

    def ask(number: int, frame: Any) -> None:
        said = "the same command continues it, and does again only what was under way"
        asked.append(Stop("interrupted", f"stopped by Ctrl-C; {said}") if number == signal.SIGINT
                     else Stop("terminated", f"stopped by a termination signal; {said}"))
        leave_it()

    def leave_it() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        leave_it()
