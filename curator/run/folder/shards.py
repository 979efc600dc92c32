"""Shards: a run in parts that know nothing of each other, on as many machines, and one run that gathers them.

A shard is a run like any, in a folder of its own, `_run/shards/<i>-of-<n>/`: with its lock, ledger and
report, and all that holds when one is killed. It does the units whose key says so, and of the plan the first
phase, in which no stage needs to see all rows; such stages begin a phase (mode `shards`). While there is
something in it that was not gathered, `_run/shards/<i>-of-<n>.json` is there.

The run without a shard in the same folder gathers, before it does anything else: files are renamed into it,
and it has the lines of the shards' ledgers, so that all is as if it had done these units itself. Then it goes
on with what is left: later phases, units that came meanwhile, the report. For each shard in this order, so
that a kill at any moment costs nothing:

1. the ids of the shards stand in `owner.json`: their files may be removed as this run's own;
2. the files of finished units are renamed, those that were renamed before aside;
3. one file of the ledger names them, and from now on the units are this run's;
4. the ledger of the shard goes, what it left unfinished, and its `.json`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from curator.api.errors import CuratorError, FirstError
from curator.api.format import listing, plural
from curator.api.stage import Sink, Unit
from curator.io.files.folder import Folder
from curator.pipeline.graph import Graph
from curator.pipeline.layout import folder_of
from curator.pipeline.plan import Mode, Plan, make_plan
from curator.run.folder.ledger import Ledger
from curator.run.folder.lock import Lock, holder, stats_of, take
from curator.run.folder.owner import OWNER, Owner
from curator.run.folder.versions import hold, versions_of

SHARDS = "_run/shards"
NAME = re.compile(r"(\d+)-of-(\d+)\.json")
COUNT_MAX = 100_000

Units = list[tuple[int, Unit]]


@dataclass(frozen=True, order=True)
class Shard:
    """One of `count` parts, from 1."""

    count: int
    number: int

    @classmethod
    def of(cls, text: str) -> Shard:
        """That of `3/8`.

        Raises:
            CuratorError: there is no such shard.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if found is None or not 1 <= int(found[1]) <= int(found[2]) <= COUNT_MAX:
            raise CuratorError(f"shard {text!r}: write it as 3/8, the third of eight; the first is 1/8 "
                               "(Slurm: --array=1-8), the last 8/8")
        return cls(int(found[2]), int(found[1]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def has(self, unit: Unit) -> bool:
        """Whether the unit is of this shard: its key alone says so, so that inputs may come and go."""
        return int(unit.key, 16) % self.count == self.number - 1

    @property
    def name(self) -> str:
        return f"{self.number}-of-{self.count}"

    def folder(self, out: Folder) -> Folder:
        return out.sub(f"{SHARDS}/{self.name}")

    def plan(self, whole: Plan) -> Plan:
        """What the shard does: the first phase of the whole, in a folder of its own.

        Raises:
            CuratorError: a sink writes elsewhere.
        """
        plan = make_plan(whole.pipeline, "shards", self.folder(whole.out).uri)
        root = plan.out.path_of("")
        for step in (s for s in plan.steps if isinstance(s.stage, Sink)):
            if not folder_of(step.sink).startswith(root):
                raise CuratorError(f"sink {step.name!r} writes to {folder_of(step.sink)}, and shards write "
                                   f"into {whole.out.uri} only: leave its path out")
        return replace(plan, phases=plan.phases[:1])

    def begin(self, whole: Plan, units: Units) -> Units:
        """What of all units is this shard's to do. It has its lock: who gathers takes that of the whole
        first, then this one.

        Raises:
            CuratorError: a run gathers, or there is something that a shard cannot add to.
        """
        out = whole.out
        if by := holder(out):
            raise CuratorError(f"a run without a shard ({by}) works in {out.uri}: wait for its end, then run "
                               f"shard {self} again")
        if others := sorted(s for s in shards_in(out) if s.count != self.count):
            raise CuratorError(f"{out.uri} has shards of {others[0].count} that nobody has gathered: run the "
                               "recipe there without --shard first, or run these shards to their end")
        gathered, own = _ledger(out), _ledger(self.folder(out)).records
        needs = gathered.needs(whole.phases[0], units)
        if edited := sum(u.key in gathered.records and need is not True
                         for (_, u), need in zip(units, needs, strict=True)):
            raise CuratorError(f"{out.uri} has results of {plural(edited, 'unit')} that are to be done "
                               "again, by another recipe or by a run that never was in shards: run "
                               "without --shard, or write to another folder")
        out.sub(SHARDS).write(f"{self.name}.json", b"{}")  # from now on there may be something to gather
        return [(at, u) for (at, u), need in zip(units, needs, strict=True)
                if self.has(u) and (need is not True or u.key in own)]


def planned(pipeline: Graph, mode: Mode = "stream", out: str | None = None, shard: Shard | None = None,
            replay: Collection[str] = ()) -> Plan:
    """The plan of the whole, as `make_plan` makes it: with a first phase for shards, where there are or were
    some; of the versions that the run there began with.

    Raises:
        CuratorError: they would run in batch mode.
    """
    plan = make_plan(pipeline, mode, out, replay)
    before, notes = versions_of(plan), hold(plan, shard is not None)
    if shard is not None or plan.out.sub("_run").exists("shards"):
        if mode == "batch":
            raise CuratorError(f"{plan.out.uri} is run in shards, and shards stream: leave --mode batch out")
        plan = make_plan(pipeline, "shards", out, replay)
    elif versions_of(plan) != before:  # which have other columns, maybe
        plan = make_plan(pipeline, mode, out, replay)
    return replace(plan, notes=tuple(notes))


def shards_in(out: Folder) -> list[Shard]:
    """The shards of which something may not have been gathered yet."""
    found = (NAME.fullmatch(name) for name in out.sub(SHARDS).names())
    return sorted(Shard(int(name[2]), int(name[1])) for name in found if name)


def gather(plan: Plan, units: Units, lock: Lock,
           replace: bool | Callable[[str], bool]) -> dict[str, FirstError]:
    """Bring into a folder, whose lock we have, all that shards have finished. Gives what went wrong there
    first, by stage. `replace`: go on when units are left, which this run then does; a function is asked.

    Raises:
        CuratorError: a shard works, or units are left.
    """
    shards = shards_in(plan.out)
    if not shards:
        return {}
    stats = {shard: stats_of(shard.folder(plan.out)) for shard in shards}
    if working := [shard for shard in shards if stats[shard].get("status") == "running"]:
        alive = stats[working[0]]["alive"]
        raise CuratorError(f"{plural(len(working), 'shard')} of {plan.out.uri} still "
                           f"{'works' if len(working) == 1 else 'work'}: {listing(working)} (process "
                           f"{alive['pid']} on {alive['host']}); wait for it, or end it")
    left = _left(plan.out, units, shards, stats)
    in_one = f"{left}; here they are done by one run"
    if left and not (replace is True or (callable(replace) and replace(in_one))):
        raise CuratorError(f"{left}. Run these shards (again), or go on with --yes (in Python "
                           "replace=True), and the run that gathers does their units too")
    owners = [Owner.of(folder, make=False) for shard in shards
              if (folder := shard.folder(plan.out)).sub("_run").exists(OWNER)]
    ledger = Ledger(plan.out, owner=Owner.of(plan.out).knows(plan.out, owners), confirm=lock.confirm)
    for shard in shards:
        _take_in(shard, ledger)
    return {error["stage"]: FirstError(**error) for shard in reversed(shards)
            for error in reversed(stats[shard].get("first_errors", ()))}


def _take_in(shard: Shard, ledger: Ledger) -> None:
    folder = shard.folder(ledger.out)
    lock = take(folder)
    try:
        own = Ledger(folder, owner=Owner.of(folder), confirm=lock.confirm)
        folder.move((path for record in ledger.lacks(own) for stage in record.stages.values()
                     for path in stage.named()), ledger.out)
        ledger.take_over(own)
        own.give_up()
        ledger.out.sub(SHARDS).delete(f"{shard.name}.json")
    finally:
        lock.release()


def _left(out: Folder, units: Units, shards: Sequence[Shard], stats: dict[Shard, dict[str, Any]]) -> str:
    """Which units nobody has finished, by whose they are, in words; empty if there are none."""
    done = {unit for ledger in map(_ledger, (out, *(shard.folder(out) for shard in shards)))
            for unit, brief in ledger.records.items() if not brief.redo}
    missing = [unit for _, unit in units if unit.key not in done]
    if not missing:
        return ""
    count = max(Counter(shard.count for shard in shards).items(), key=lambda item: item[1])[0]
    whose = sorted({Shard(count, int(unit.key, 16) % count + 1) for unit in missing})
    return (f"{len(missing):,} of {plural(len(units), 'unit')} are not done yet: "
            + listing(f"shard {shard} {_how(stats.get(shard, {}))}" for shard in whose))


def _ledger(out: Folder) -> Ledger:
    """That of the first phase, to look at."""
    return Ledger(out, owner=Owner.of(out, make=False))


def _how(stats: dict[str, Any]) -> str:
    """What became of a shard that has not done all of its units."""
    if not stats:
        return "never ran"
    if stats["status"] == "finished":
        return "had ended when some came"
    why = stats["message"].partition("\n")[0]
    return f"is {stats['status']}" + (f" ({why})" if why else "")


def each_shard(out: Folder) -> Iterator[tuple[Shard, dict[str, Any]]]:
    """The shards that were not gathered yet, with their stats; {} of one that has none."""
    return ((shard, stats_of(shard.folder(out))) for shard in shards_in(out))
