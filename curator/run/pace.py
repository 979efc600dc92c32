"""How fast a run is and how far: of the whole, of each stage, and of the units that are being read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from curator.api.counts import Counts
from curator.api.stage import Reduce
from curator.engine.parts import OperatorState
from curator.engine.placement import Profile
from curator.engine.snapshot import running_s
from curator.engine.state import State
from curator.observe.live.estimate import Estimate, Work
from curator.pipeline.plan import Operator, Phase, Plan
from curator.run.loop import Loop
from curator.run.profiles import load_profiles

LATELY_S = 10.0  # rates of stages are those of the last seconds,
READ_S = 60.0  # and those of reading of more: readers stop while enough waits behind them
SAMPLE_S = 1.0
READING_MAX = 20  # units that are named as being read
END_S = 0.5  # behind the last record: workers end, the report is made


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    bytes: int
    counts: Mapping[str, tuple[int, float]]  # rows in and seconds of work, by step


class Pace:
    """Looks at the loops of a run now and then. `loops`: of the phases that were begun."""

    def __init__(self, plan: Plan, loops: Sequence[Loop]) -> None:
        self.plan, self.loops = plan, loops
        self.estimate = Estimate()
        self.samples: deque[_Sample] = deque()
        self.before_s = 0.0  # seconds of work of earlier attempts, as the first look has them
        folder = plan.out.sub("_run")
        self.before = [load_profiles(folder, phase.operators) for phase in plan.phases]

    def look(self, counts: Mapping[str, Counts], cores: float, sources: set[str]) -> dict[str, Any]:
        """The run at this moment; `counts` by step, of all phases.

        `share` of the work that is done, `seconds_left` (None while nobody can tell), `bytes_read` and what
        is read in the last minute: `rate` (records a second), `bytes_rate`; the last seconds of each stage in
        `stages`; `reading`: the units that are being read.
        """
        loop, now = self.loops[-1], time.monotonic()
        if not self.samples:
            self.before_s = sum(c.busy_s for c in counts.values())
        progress = loop.progress()
        state, read = loop.state, loop.reading.share(loop.state)
        works = works_of(self.plan.phases, counts, state, loop.phase.number, self.before)
        # What begins at a checkpoint was read before: so many records come as the source gave then.
        outlook = self.estimate(now, works, loop.phase.number, 1.0 if loop.behind else read, cores,
                                running_s(state, now) * self._worked(counts) if state else 0.0,
                                sum(o.starting for o in state.operators) if state else 0.0)
        left = outlook.seconds_left
        if left is not None and state and not loop.phase.number:
            left = max(left, loop.reading.longest_s(state, outlook.read_s, left))
        left = None if left is None else left + END_S
        # of all phases, without what earlier runs read: the next phase does not begin below this one
        read_bytes = sum(one.progress()["bytes_read"] - one.reading.before for one in self.loops)
        sample = _Sample(now, read_bytes, {n: (c.rows_in, c.busy_s) for n, c in counts.items()})
        self._keep(sample)

        def lately(name: str, at: int, seconds: float = LATELY_S) -> float:
            since = self._since(now - seconds)
            before = since.counts.get(name, (0, 0.0))[at]
            return max(0.0, sample.counts.get(name, (0, 0.0))[at] - before) / max(1e-3, now - since.at)

        read_since = self._since(now - READ_S)
        return {**progress, "share": min(1.0, outlook.share), "seconds_left": left,
                "rate": sum(lately(name, 0, READ_S) for name in sources),
                "bytes_rate": max(0, sample.bytes - read_since.bytes) / max(1e-3, now - read_since.at),
                "stages": [self._stage(step.name, counts.get(step.name, Counts()), lately)
                           for step in self.plan.steps if not (step.implicit or step.part_of)],
                "reading": loop.being_read(READING_MAX)}

    def _worked(self, counts: Mapping[str, Counts]) -> float:
        """The share of the seconds of calls that stages work; the rest is between them."""
        calls_s = sum(sum(loop.busy_s().values()) for loop in self.loops)
        steps_s = sum(c.busy_s for c in counts.values()) - self.before_s
        return min(1.0, max(0.5, steps_s / calls_s)) if calls_s else 1.0

    def _keep(self, sample: _Sample) -> None:
        """Keep a sample to compare others with, if it is time to."""
        samples = self.samples
        if not samples or sample.at - samples[-1].at >= SAMPLE_S:
            samples.append(sample)
        while len(samples) > 2 and sample.at - samples[1].at >= READ_S:
            samples.popleft()

    def _since(self, at: float) -> _Sample:
        """The newest sample from before this moment, else the first one."""
        return next((sample for sample in reversed(self.samples) if sample.at <= at), self.samples[0])

    def _stage(self, name: str, counts: Counts, lately: Any) -> dict[str, Any]:
        """A line of a stage. Of neighbours that share workers, the first has the queue."""
        line = {"name": name, "in": counts.rows_in, "out": sum(counts.out.values()), "failed": counts.failed,
                "rate": lately(name, 0), "busy": lately(name, 1)}
        state = self.loops[-1].state
        for one in state.operators if state is not None else ():
            names = [step.name for step in one.plan.steps]
            if name in names:
                line |= {"workers": len(one.workers), "operator": one.plan.index}
                if name == names[0] and one.plan.kind != "source":
                    line |= {"queue_rows": one.rows, "queue_bytes": int(one.nbytes),
                             "queue_limit": int(one.limit)}
        return line


def works_of(phases: Sequence[Phase], counts: Mapping[str, Counts], state: State | None, now: int,
             before: Sequence[Mapping[int, Profile]]) -> list[Work]:
    """What each step has done; `now`: the phase of `state`; `before`: what earlier runs know, by phase."""
    works = []
    for phase in phases:
        states = state.operators if state is not None and phase.number == now else ()
        for operator in phase.operators:
            known = before[phase.number].get(operator.index)
            row_s = known.busy_s / known.rows if known and known.rows else None
            most = _most(operator, states[operator.index] if states else None)
            for at, step in enumerate(operator.steps):
                if not step.spool or operator.kind == "sink":
                    c = counts.get(step.name, Counts())
                    # what is known of neighbours that share workers is the time of all
                    works.append(Work(step.name, phase.number, operator.index, step.after, c.rows_in,
                                      _ports(c), c.busy_s, row_s if not at or row_s is None else 0.0, most,
                                      isinstance(step.stage, Reduce), bool(step.part_of)))
    return works


def _ports(counts: Counts) -> dict[str, int]:
    return {**counts.out, "dropped": sum(counts.dropped.values()), "duplicate": counts.duplicate,
            "failed": counts.failed}


def _most(operator: Operator, state: OperatorState | None) -> float:
    """How many workers of an operator work at a time."""
    stage = operator.steps[0].stage
    if operator.kind == "stateful" or (isinstance(stage, Reduce) and stage.key is None):
        return 1
    if state is None:
        return inf
    return max(1, len(state.workers) if state.exclusive else state.workers_max)
