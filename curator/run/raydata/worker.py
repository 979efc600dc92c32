"""What an actor does: the operators of a group, one after the other, on all rows of a unit.

An actor may die, and Ray gives its task to the one that takes its place. So nothing is done twice that would
count twice: files have a name that is new each time and are nobody's until the ledger names them, and a
stateful stage is told when it sees a unit again. Rows over which actors die are halved, as `engine.failures`
does it, and the row that kills goes to `failed`; what was tried stands in the `Notes`, which outlive actors.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.errors import CuratorError, FirstError, first_error, in_words
from curator.api.stage import Context
from curator.engine.events import Stop
from curator.engine.failures import TRIES
from curator.engine.protocol import Call, Done, Emitted, Failed, Output, Ref, Restored, Slice, UnitInfo
from curator.io.files.folder import Folder
from curator.pipeline.plan import Operator, Target
from curator.run.raydata.notes import Notes
from curator.run.raydata.work import Parcel, Work
from curator.worker.device import DeviceLost
from curator.worker.rows import failed_unit, joined
from curator.worker.runner import Runner

WATCH_S = 0.25  # calls under a time limit are looked at this often
ONCE_S = 0.2  # who waits for another's `setup_node` asks this often


class Group:
    """Operators in one process. `who`: the actor, also after it was started again, on which `node`;
    `restored`: for stateful stages, what the ledger has."""

    def __init__(self, operators: Sequence[Operator], sidecars: Folder,
                 restored: Mapping[int, Sequence[Restored]], notes: Notes, who: str, node: str) -> None:
        self.notes, self.who, self.node, self.broken = notes, who, node, None
        self.careful = notes.begin(f"life {who}")[0] > 0  # it died before; this never ends
        if self.careful:
            notes.died(who)
        self.what = ""  # is done now, and may kill
        self.due: float | None = None  # when a call is over its time limit
        self.limit_s: float | None = min((o.timeout_s for o in operators if o.timeout_s), default=None)
        self.runners = [Runner(operator, lambda batch: batch, lambda batch: batch, sidecars, self._progress,
                               self._at) for operator in operators]
        self.seen: dict[int, set[int]] = {}  # units, by stateful operator
        self.calls = 0
        try:
            self._set_up(restored)
        except Exception as error:  # told with the first unit that comes
            self.broken = Stop("broken", f"{operators[0].name} cannot be set up: {in_words(error)}",
                               first_error(operators[0].steps[0].name, error))
        if self.limit_s is not None:
            threading.Thread(target=self._watch, daemon=True).start()

    def _set_up(self, restored: Mapping[int, Sequence[Restored]]) -> None:
        deaths, _, _ = self.notes.begin(f"setup {self.who}")
        if deaths >= TRIES:
            raise CuratorError(f"its process died {deaths} times")
        for runner in self.runners:
            operator = runner.operator
            index, known = operator.index, list(restored.get(operator.index, ()))
            if operator.kind == "stateful":
                # Units that are not finished may come again, or what was answered them is on its way.
                taught = self.notes.taught(index)
                known = [one for one in known if one[0] not in taught]
                known += [(unit, name, True) for unit, name in taught.items() if name is not None]
                self.seen[index] = set(taught)
            needs = operator.resources
            seen = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
            gpus = tuple(range(len(seen))) if needs.gpus or needs.gpu_memory_gb else ()
            runner.setup(Context(cpus=needs.cpus, gpus=gpus), known, self._once)
            self._exhausted(runner)
        self.notes.end(f"setup {self.who}")

    def _once(self, name: str, do: Callable[[], None]) -> None:
        while (mine := self.notes.claim(name, self.who, self.node)) is None:
            time.sleep(ONCE_S)
        if not mine:
            return
        try:
            do()
        except Exception as error:
            self.notes.did(name, self.node, str(error))
            raise
        self.notes.did(name, self.node, None)

    # -- time limits, and what killed ------------------------------------------------------------------------

    def _progress(self) -> None:
        if self.limit_s is not None:
            self.due = time.monotonic() + self.limit_s

    def _at(self, step: int) -> None:
        if self.careful and self.what:
            self.notes.at(self.what, step)

    def _watch(self) -> None:
        while True:
            time.sleep(WATCH_S)
            if self.due is not None and time.monotonic() > self.due:
                if self.what:
                    step = next((r.step for r in self.runners if r.operator.timeout_s), 0)
                    self.notes.at(self.what, step, f"a call took longer than its limit of {self.limit_s:g} s")
                os._exit(1)

    # -- a unit ----------------------------------------------------------------------------------------------

    def work(self, works: Sequence[Work]) -> None:
        """Take the units of a row through the operators; what goes wrong stands in them."""
        sources = {runner.operator.index for runner in self.runners}
        if begin := [work for work in works if work.source in sources]:
            skipped = self.notes.skips([work.unit for work in begin])
            for work in begin:
                work.unread = work.unit in skipped
        for work in works:
            self._work(work)
        for runner in self.runners:
            index = runner.operator.index
            taught = {work.unit: work.flushed[index].snapshot for work in works if index in work.flushed}
            if runner.operator.kind == "stateful" and taught:
                self.notes.teach(index, taught)
                self._exhausted(runner)

    def _work(self, work: Work) -> None:
        for runner in self.runners:
            operator = runner.operator
            if work.unread or (operator.kind == "source" and operator.index != work.source):
                continue
            if self.broken is not None:
                work.stop = work.stop or self.broken
                return
            if operator.kind == "sink":
                self._write(runner, work)
            elif work.stop is None:
                do = {"source": self._read, "map": self._map, "stateful": self._learn}[operator.kind]
                do(runner, work)
            self.due = None

    def _call(self, runner: Runner, work: Work, kind: Any, slices: Sequence[Slice] = (),
              info: UnitInfo | None = None, best_effort: bool = False) -> Failed | None:
        """One call: all that it gives counts, or, where it failed, nothing."""
        operator, began = runner.operator, time.perf_counter()
        self.calls += 1
        call = Call(self.calls, operator.index, kind, tuple(slices), ((work.unit, 0),),
                    rows=sum(s.rows for s in slices), best_effort=best_effort,
                    infos={work.unit: info or work.info})
        outputs: list[Output] = []
        counted: list[tuple[int, Counts]] = []
        try:
            for answer in runner.run(call):
                if isinstance(answer, Failed):
                    return answer
                assert isinstance(answer, (Emitted, Done))
                outputs += answer.outputs
                counted += [item for by_step in answer.counts.values() for item in by_step.items()]
                work.errors += answer.errors
                if isinstance(answer, Done) and answer.flushed is not None:
                    work.flushed[operator.index] = answer.flushed
        except DeviceLost as lost:
            if self.what:
                self.notes.at(self.what, runner.step, str(lost))
            os._exit(1)
        for output in outputs:
            self._send(work, operator, output.step, output.port, output.ref.data)
        for step, counts in counted:
            work.count(operator.index, step, counts)
        at = operator.index, self.who
        work.seconds[at] = work.seconds.get(at, 0.0) + time.perf_counter() - began
        return None

    def _send(self, work: Work, operator: Operator, step: int, port: str, batch: Batch) -> None:
        work.parcels += [Parcel(target, batch) for target in operator.routes.get((step, port), ())
                         if work.wants(target)]

    def _try(self, what: str, runner: Runner, work: Work,
             attempt: Callable[[int], Failed | None]) -> Failed | None:
        """Something that cannot be done in part: until it is done, three times at most. Gives how it failed
        to the last, if the run can go on without it."""
        index, before = runner.operator.index, list(work.parcels)
        deaths, note, _ = self._begins(what)
        failed: Failed | None = Failed(0, f"the worker died: {note}" if note else "the worker died")
        for number in range(deaths, TRIES):
            failed = attempt(number)
            if failed is None:
                break
            # a part of it may have gone well
            work.parcels = list(before)
            work.counts = {at: c for at, c in work.counts.items() if at[0] != index}
            work.flushed.pop(index, None)
            if failed.fatal:
                break
        self._ends()
        if failed is not None and failed.fatal:
            work.stop = Stop("broken", failed.error, failed.first)
            return None
        return failed

    def _must(self, what: str, runner: Runner, work: Work, attempt: Callable[[int], Failed | None]) -> None:
        """The same, and without it the run stops."""
        if (failed := self._try(what, runner, work, attempt)) is not None:
            said = f"{failed.error}\n{failed.traceback}".rstrip()
            work.stop = Stop("broken", f"{runner.operator.name} failed {TRIES} times on "
                                       f"{work.info.unit.label}: {said}")

    def _begins(self, what: str) -> tuple[int, str, int]:
        if not self.careful:
            return 0, "", 0
        self.what = what
        return self.notes.begin(what)

    def _ends(self) -> None:
        if self.what:
            self.notes.end(self.what)
            self.what = ""

    # -- sources ---------------------------------------------------------------------------------------------

    def _read(self, runner: Runner, work: Work) -> None:
        operator = runner.operator

        def attempt(number: int) -> Failed | None:
            return self._call(runner, work, "read", best_effort=number == TRIES - 1)

        what = f"read {operator.index} {work.unit}"
        if operator.internal:
            self._must(what, runner, work, attempt)
        elif (failed := self._try(what, runner, work, attempt)) is not None:  # the unit is one failed record
            name = operator.steps[0].name
            work.count(operator.index, 0, Counts(rows_in=1, failed=1))
            work.errors.append(failed.first or FirstError(name, failed.error, failed.traceback))
            self._send(work, operator, 0, "failed",
                       failed_unit(work.info.unit, work.unit, failed.error, failed.traceback))

    # -- stages ----------------------------------------------------------------------------------------------

    def _slices(self, work: Work, parcels: Sequence[Parcel]) -> list[Slice]:
        return [Slice(Ref(p.batch, len(p.batch), p.batch.nbytes), work.unit, 0, 0, len(p.batch), p.to.step)
                for p in parcels]

    def _map(self, runner: Runner, work: Work) -> None:
        """What fails and no row can be blamed for is tried again, then in halves, until the row is found."""
        batches = joined([parcel.batch for parcel in work.take(runner.operator.index)])
        todo = [(batch, 0) for batch in reversed(batches)]
        while todo and work.stop is None:
            batch, tries = todo.pop()
            deaths, note, step = self._begins(_name(f"process {runner.operator.index} {work.unit}", batch))
            if deaths:  # and stays so, for whoever comes here again
                failed: Failed | None = Failed(0, note or "the worker died")
                tries, self.what = 1, ""
            else:
                step = 0
                failed = self._call(runner, work, "process",
                                    self._slices(work, [Parcel(Target(runner.operator.index), batch)]))
            self._ends()
            if failed is None:
                continue
            if failed.fatal:
                work.stop = Stop("broken", failed.error, failed.first)
            elif not tries:
                todo.append((batch, 1))
            elif len(batch) > 1:
                middle = len(batch) // 2
                todo += [(batch.slice(middle, len(batch)), 0), (batch.slice(0, middle), 0)]
            else:
                self._quarantine(runner.operator, work, batch, step, failed)

    def _quarantine(self, operator: Operator, work: Work, batch: Batch, step: int, why: Failed) -> None:
        """A record fails in the step that it could not be taken through."""
        for before in range(step):
            work.count(operator.index, before, Counts(rows_in=1, out={operator.chain[before]: 1}))
        work.count(operator.index, step, Counts(rows_in=1, failed=1))
        name = operator.steps[step].name
        work.errors.append(why.first or FirstError(name, why.error, why.traceback))
        self._send(work, operator, step, "failed", batch.with_error(why.error, why.traceback))

    def _learn(self, runner: Runner, work: Work) -> None:
        index, unit = runner.operator.index, work.unit
        slices = self._slices(work, work.take(index))
        if not slices:
            return

        def attempt(number: int) -> Failed | None:
            if number or unit in self.seen[index]:
                runner.discard(unit, 0, replay=True)
            return self._call(runner, work, "process", slices) or self._call(runner, work, "flush")

        self._must(f"learn {index} {unit}", runner, work, attempt)
        self.seen[index].add(unit)

    def _exhausted(self, runner: Runner) -> None:
        if runner.operator.kind == "stateful" and runner.exhausted:
            self.notes.exhausted(runner.operator.index, sorted(self.seen[runner.operator.index]))

    # -- sinks -----------------------------------------------------------------------------------------------

    def _write(self, runner: Runner, work: Work) -> None:
        """Write a unit, and close its files; of one that ends the run what has failed."""
        operator, stopped = runner.operator, work.stop
        parcels = work.take(operator.index)
        slices = self._slices(work, [p for p in parcels
                                     if stopped is None or operator.steps[p.to.step].evidence])
        if not slices:
            return

        def attempt(number: int) -> Failed | None:
            name = f"{work.info.name.rpartition('-')[0]}-{secrets.randbelow(10 ** 12)}"
            info = UnitInfo(work.info.unit, name, work.info.size_bytes)
            failed = self._call(runner, work, "process", slices, info)
            failed = failed or self._call(runner, work, "flush", info=info, best_effort=stopped is not None)
            if failed is not None:
                runner.discard(work.unit, 0, replay=False)
            return failed

        self._must(f"write {operator.index} {work.unit}", runner, work, attempt)
        if stopped is None and work.stop is not None:  # the sink of what failed may work
            work.parcels += parcels
            self._write(runner, work)
        work.stop = stopped or work.stop


def _name(what: str, batch: Batch) -> str:
    """Rows of a unit, the same whenever it is done again."""
    ids = batch.rows.column("id")
    return f"{what} {len(batch)} {ids[0]} {ids[-1]}" if len(batch) else what

