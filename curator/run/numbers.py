"""A run in numbers: for who watches it, for `stats.json` while it works, and at its end."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from curator.api.counts import WRITTEN, Counts
from curator.api.errors import CuratorError, FirstError
from curator.api.findings import Finding
from curator.api.format import listing, plural
from curator.api.stage import Sink, Source
from curator.engine.balance.allocation import Allocation, in_words
from curator.engine.events import Stop
from curator.engine.placement import allocation_of
from curator.engine.scheduler import failures_allowed, too_many_failed
from curator.engine.snapshot import running_s, snapshot_of
from curator.io.files.folder import Folder
from curator.io.files.listing import CLUSTERS
from curator.observe.stats import (
    CHECKPOINT,
    RunInfo,
    StageInfo,
    findings_of,
    stage_rows,
    summarise,
    with_parts,
)
from curator.pipeline.plan import Operator, Plan, Step
from curator.run.folder.lock import read_stats
from curator.run.loop import Loop
from curator.run.pace import Pace

ALLOCATE_S = 2.0  # the best allocation is asked for this often, to tell what limits the run
SHORT_S = 5.0  # a run shorter than this says little about what limits it


class Numbers:
    """What the loops of a run have counted. `loops`: of the phases that were begun; the run adds to them.

    `cores`: of this machine, for when no scheduler knows better. `about`: as in `stats.json`.
    """

    def __init__(self, plan: Plan, loops: Sequence[Loop], cores: float, about: Mapping[str, Any]) -> None:
        self.plan, self.loops, self.cores, self.about = plan, loops, cores, about
        self.pace = Pace(plan, loops)
        self.began = time.monotonic()
        steps = plan.steps
        self.steps = {step.name: step for phase in plan.phases for step in phase.steps}
        self.sources = {s.name for s in steps if isinstance(s.stage, Source)}
        self.sinks = {s.name for s in steps if isinstance(s.stage, Sink) and not s.implicit}
        self.part_of = {s.name: s.part_of for s in steps if s.part_of}
        self.reports = {s.name: s.stage.reports for s in steps if s.part_of}
        # asked once: a stage may read them from files
        self.reasons = {s.name: s.stage.reasons() for s in steps}
        self.errors_before = _errors_in(plan.out)
        self.best: Allocation | None = None  # the best allocation, when it was asked for last,
        self.operators: Sequence[Operator] = ()  # of these operators,
        self.allocate_at = 0.0  # and when to ask again

    def totals(self) -> dict[str, Counts]:
        """Counts of finished units and of those under way, by stage."""
        return self._whole(self._shown(self._by_step()))

    def _whole(self, by_step: Mapping[str, Counts]) -> dict[str, Counts]:
        """The same with parts of composites in their main steps."""
        behind = {s.name for s in self.plan.steps
                  if s.after and all(name in self.part_of for name, _ in s.after)}
        taken = {end for s in self.plan.steps if not s.implicit for end in s.after}
        return with_parts(by_step, self.part_of, self.reports, behind, taken)

    def _by_step(self, lasting: bool = False) -> dict[str, Counts]:
        """The same by step, with the sinks that the plan added. `lasting`: not what open units wrote."""
        return {name: counts for loop in self.loops for name, counts in loop.totals(lasting).items()}

    def _shown(self, by_step: Mapping[str, Counts]) -> dict[str, Counts]:
        return {n: c for n, c in by_step.items() if not (self.steps[n].implicit or self.steps[n].spool)}

    def read_and_failed(self) -> tuple[int, int]:
        """Records so far."""
        totals = self.totals()
        read = sum(c.rows_in for n, c in totals.items() if n in self.sources)
        return read, sum(c.failed for c in totals.values())

    def rows(self) -> list[dict[str, Any]]:
        """The stages as `stats.json` has them."""
        return stage_rows(self._infos(), self.totals())

    def snapshot(self) -> dict[str, Any]:
        """The run at this moment, for who watches it."""
        by_step, loop = self._by_step(), self.loops[-1]
        totals = self._whole(self._shown(by_step))
        return {**self.pace.look(by_step, self._cores(), self.sources),
                "phase": loop.phase.number + 1, "phases": len(self.plan.phases),
                "seconds": time.monotonic() - self.began,
                "records_in": sum(c.rows_in for n, c in totals.items() if n in self.sources),
                "written": sum(c.out.get(WRITTEN, 0) for n, c in totals.items() if n in self.sinks),
                "dropped": sum(sum(c.dropped.values()) for c in totals.values()),
                "duplicate": sum(c.duplicate for c in totals.values()),
                "failed": sum(c.failed for c in totals.values()),
                "workers": loop.alive, "limit": self._limit(by_step)}

    def running(self, every_s: float) -> dict[str, Any]:
        """The stats of a run that works, without files. `every_s`: so often they are written."""
        loop = self.loops[-1]
        loop.ledger.elapsed[loop.ledger.run] = time.monotonic() - loop.began
        stats = self._summary("running", "", ())
        stats["first_errors"] = self._first_errors(stats, None)
        stats["live"] = self.snapshot() | {"engine": snapshot_of(loop.state) if loop.state else {}}
        stats["alive"] = {"host": socket.gethostname(), "pid": os.getpid(), "time": round(time.time(), 3),
                          "every_s": round(every_s, 1)}
        return stats

    def final(self, stopped: Stop | None) -> dict[str, Any]:
        """The stats at the end. `stopped`: why it did not come to the end of its input."""
        if stopped:
            stats = self._summary("stopped", stopped.message, self._files())
            stats["stopped_by"] = stopped.kind
            if stopped.kind == "max_failed":
                stats["message"] += self._where_failed(stats)
        else:
            stats = self._summary("finished", "", self._files())
            self._judge_failures(stats)
        stats["first_errors"] = self._first_errors(stats, stopped)
        return stats

    def _summary(self, status: str, message: str,
                 files: Iterator[dict[str, Any]] | tuple[()]) -> dict[str, Any]:
        found = self._by_step(lasting=True)
        by_step = self._shown(found)
        counts = self._whole(by_step)
        shown = {name: kind for step in self.plan.steps
                 for name, kind in step.stage.example_columns().items()}
        summed = {name: kind for step in self.plan.steps for name, kind in step.stage.amounts().items()}
        units = [{"done": loop.ledger.done, "total": len(loop.units), "skipped": loop.skipped}
                 for loop in self.loops]
        seconds = [sum(loop.ledger.elapsed.values()) for loop in self.loops]
        info = RunInfo(name=self.plan.pipeline.name, status=status, message=message, seconds=sum(seconds),
                       out=self.plan.out.uri, limit=self._limit(found), files=files,
                       units=units[0] if units else {}, example_columns=shown, amounts=summed,
                       about=self.about)
        stats = summarise(info, self._infos(), counts, self._findings(by_step | counts))
        own = sum(loop.ledger.elapsed.get(loop.ledger.run, 0.0) for loop in self.loops)
        if (latest := round(own, 3)) < stats["seconds"]:
            stats["latest_seconds"] = latest
        if len(self.plan.phases) > 1:
            stats["phases"] = [{"units": u, "seconds": round(s, 3)}
                               for u, s in zip(units, seconds, strict=True)]
        return stats

    def _given(self, step: Step) -> tuple[tuple[str, str], ...]:
        """The ports whose records it takes: those that its parts do, where it takes none beside them."""
        own = tuple(end for end in step.after if end[0] not in self.part_of)
        parts = (self.steps[name] for name, _ in step.after)
        return own or tuple(dict.fromkeys(given for part in parts for given in self._given(part)))

    def _infos(self) -> list[StageInfo]:
        workers = {s.name: loop.workers.get(o.index, 0)
                   for loop in self.loops for o in loop.phase.operators for s in o.steps}
        return [StageInfo(s.name, "source" if s.name in self.sources else "sink" if s.name in self.sinks
                          else "stage", self._given(s), workers.get(s.name, 0), self.reasons[s.name],
                          s.stage.sparse)
                for s in self.plan.steps if not s.implicit and not s.part_of]

    def _findings(self, counts: Mapping[str, Counts]) -> dict[str, list[Finding]]:
        """What stages say of themselves; parts of a composite speak in its name."""
        found: dict[str, list[Finding]] = {}
        for step in self.plan.steps:
            if step.name in counts:
                whole = self.part_of.get(step.name, step.name)
                found.setdefault(whole, []).extend(findings_of(step.stage, whole, counts[step.name]))
        return found

    def _files(self) -> Iterator[dict[str, Any]]:
        """All that was written for the user: an implicit sink's files are its stage's, on the port that it
        keeps; and what checkpoints keep."""
        for loop in self.loops:
            for name, file in (*loop.ledger.written(), *loop.ledger.evidence):
                step = self.steps[name]
                if step.spool and not step.checkpoint:
                    continue
                stage, port = step.after[0] if step.implicit else (name, WRITTEN)
                if step.checkpoint:
                    stage, port = step.after[0][0], CHECKPOINT
                if step.part_of:
                    stage, port = step.part_of, CLUSTERS
                yield {"path": file.path, "rows": file.rows, "size_bytes": file.size_bytes, "stage": stage,
                       "port": port}

    def _judge_failures(self, stats: dict[str, Any]) -> None:
        records, limit = stats["records"], self.plan.pipeline.settings.max_failed
        failed = sum(s["failed"] for s in stats["stages"])
        if failed > failures_allowed(limit, records["in"]):
            stats["status"], stats["stopped_by"] = "failed", "max_failed"
            stats["message"] = too_many_failed(failed, records["in"], limit) + self._where_failed(stats)

    def _where_failed(self, stats: dict[str, Any]) -> str:
        """Where most records failed, and where they are, in words."""
        failed = [stage for stage in stats["stages"] if stage["failed"]]
        if not failed:
            return ""
        kept = any(output["port"] == "failed" for output in stats["outputs"])
        return (f"; most of them in stage {max(failed, key=lambda stage: stage['failed'])['name']}"
                + (f"; they are in {self.plan.out.path_of('failed')}" if kept else ""))

    def _first_errors(self, stats: dict[str, Any], stopped: Stop | None) -> list[dict[str, Any]]:
        """The first error of each stage: what stopped the run first, then by the records that failed."""
        known = self.errors_before | {name: e for loop in self.loops for name, e in loop.errors.items()}
        failed = {s["name"]: s["failed"] for s in stats["stages"] if s["failed"]}
        errors = [replace(e, stage=self.part_of.get(name, name)) for name, e in known.items()]
        found = sorted((e for e in errors if e.stage in failed), key=lambda e: -failed[e.stage])
        first = [stopped.first] if stopped and stopped.first else []
        return [asdict(e) for e in (*first, *(e for e in found if not first or e.stage != first[0].stage))]

    def _busy_s(self, by_step: Mapping[str, Counts]) -> dict[str, float]:
        """Seconds of work by stage: parts count for their composite, and all that is written is one."""
        busy: dict[str, float] = {}
        for name, counts in by_step.items():
            writes = isinstance(self.steps[name].stage, Sink) and name not in self.part_of
            stage = "write" if writes else self.part_of.get(name, name)
            busy[stage] = busy.get(stage, 0.0) + counts.busy_s
        return busy

    def _name(self, operator: Operator, by_step: Mapping[str, Counts]) -> str:
        """An operator by the step that works most."""
        busy = {step.name: by_step.get(step.name, Counts()).busy_s for step in operator.steps}
        return operator.name if operator.kind == "sink" else max(busy, key=lambda name: busy[name])

    def _limit(self, by_step: Mapping[str, Counts]) -> str:
        """What holds the run up, in words. Empty before anything was measured. `by_step`: counts."""
        total = sum(sum(loop.busy_s().values()) for loop in self.loops)
        state = self.loops[-1].state if self.loops else None
        waits = [o for o in (state.operators if state else ()) if o.rows]
        if late := [o for o in waits if o.workers and not any(w.ready for w in o.workers.values())]:
            return (f"setting up {listing(step.name for o in late for step in o.plan.steps)}; "
                    f"{plural(sum(o.rows for o in late), 'row')} wait")
        busy = self._busy_s(by_step)
        if not total or not any(busy.values()):
            return ""
        busiest = max(busy, key=lambda name: busy[name])
        seconds, cores = time.monotonic() - self.began, self._ask_allocation()
        name = f"{busiest} ({busy[busiest] / sum(busy.values()):.0%} of the work)"
        total += running_s(state, time.monotonic()) if state else 0.0
        share = min(1.0, total / seconds / cores)
        if seconds < SHORT_S:
            return f"{name}; in so short a run, starting the workers counts most"
        if self.best is not None and (self.best.sharing or self.best.binding == "gpus"):
            return in_words(self.best, [self._name(operator, by_step) for operator in self.operators])
        if share > 0.7:
            gain = self.best.gains.get("cpu", 0.0) if self.best is not None else 0.0
            more = (f"one more would make the run {gain:.0%} faster" if gain >= 0.01
                    else "more would make it faster")
            return f"{name} on {cores:g} cores, which are {share:.0%} busy; {more}"
        why = " so far" if waits else ": too few or too small inputs to work on at once, or slow starts"
        return f"{name}; the {cores:g} cores are only {share:.0%} busy{why}"

    def _ask_allocation(self) -> float:
        """The cores that there are. Now and then, while everything works, finds the best allocation too."""
        state, now = self.loops[-1].state, time.monotonic()
        if state and state.nodes and state.open and not state.stopped and now > self.allocate_at:
            best = allocation_of(state)
            self.best = best if best.slowest >= 0 or best.sharing else self.best
            self.operators = [o.plan for o in state.operators]
            self.allocate_at = time.monotonic() + ALLOCATE_S + 50 * (time.monotonic() - now)
        return self._cores()

    def _cores(self) -> float:
        state = self.loops[-1].state if self.loops else None
        nodes = state.nodes.values() if state else ()
        return sum(n.node.cpus for n in nodes) or self.cores


def _errors_in(out: Folder) -> dict[str, FirstError]:
    """What an earlier attempt said went wrong first, by stage."""
    try:
        stats = read_stats(out)
        return {error["stage"]: FirstError(**error) for error in stats.get("first_errors", ())}
    except (CuratorError, TypeError, KeyError):  # damaged, or of another version
        return {}
