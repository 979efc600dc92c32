"""The time that is left, against the scheduler in virtual time: runs of many shapes, told how far they are every half second."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.engine.protocol import Call, Done
from curator.engine.snapshot import running_s
from curator.observe.live.estimate import Estimate, Work, work_left
from curator.pipeline.plan import Operator, Phase
from curator.run.pace import END_S, works_of
from curator.run.reading import Reading
from tests.engine.scenario import Scenario, chain, make_stage
from tests.engine.simulator import SimulatedWorker, Simulator

ROW_BYTES = 10_000


def fed(operators: list[Operator]) -> list[Operator]:
    """Steps that say what they are fed by, as those of a plan do."""
    made = []
    for at, operator in enumerate(operators):
        before = f"op{at - 1}.0"
        main = [replace(s, after=((before, "out"),)) if at and not s.after else s for s in operator.steps]
        made.append(replace(operator, steps=tuple(main)))
    return made


class Told(Simulator):
    """Counts the seconds of work and the bytes read as workers do, and asks for an estimate now and then."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario, validate=0)
        self.estimate = Estimate()
        sizes = array("q", (rows * ROW_BYTES for rows in scenario.unit_rows))
        self.reading = Reading(sizes, len(sizes))
        self.totals: dict[str, Counts] = {}
        self.said: list[tuple[float, float | None, float]] = []  # when, seconds left, share
        self.ask_at = 0.0

    def _process(self, worker: SimulatedWorker, call: Call, rows: list[tuple[int, str]]) -> list:
        parts, done = super()._process(worker, call, rows), 0
        for part in parts:
            counts = [c for steps in part.counts.values() for c in steps.values()]
            done += sum(c.rows_in for c in counts)
            for c in counts:
                c.busy_s = self.took * c.rows_in / len(rows)
            if call.kind == "read":
                part.read_bytes = done * ROW_BYTES
        return parts

    def _store(self, worker: SimulatedWorker, call: Call) -> Done:
        answer = super()._store(worker, call)
        for steps in answer.counts.values():
            for c in steps.values():
                c.busy_s = self.took * c.rows_in / call.rows
        return answer

    def _commit(self, action) -> None:
        super()._commit(action)
        self.reading.done += self.reading.sizes[action.unit]
        for name, counts in action.counts.items():
            self.totals.setdefault(name, Counts()).add(counts)

    def _check(self) -> None:
        super()._check()
        if self.now < self.ask_at:
            return
        self.ask_at = self.now + 0.5
        state, counts = self.scheduler.state, {}
        for name, c in self.totals.items():
            counts.setdefault(name, Counts()).add(c)
        for (operator, step), c in state.under_way.items():
            counts.setdefault(self.scenario.operators[operator].steps[step].name, Counts()).add(c)
        works = works_of([Phase(0, tuple(self.scenario.operators))], counts, state, 0, [{}])
        cores = sum(n.cpus for n in self.scenario.nodes.values())
        look = self.estimate(self.now, works, 0, self.reading.share(state), cores, running_s(state, self.now),
                             sum(o.starting for o in state.operators))
        left = look.seconds_left
        if left is not None:
            left = max(left, self.reading.longest_s(state, look.read_s, left))
        self.said.append((self.now, left, look.share))


@dataclass
class Shape:
    """`row_s`: of the source and of each stage behind it."""

    units: Sequence[int]
    row_s: Sequence[float]
    cpus: int = 8
    gpus: int = 0
    keeps: float = 1.0  # share of the rows that the first stage lets through
    stateful: bool = False
    noise: float = 0.2
    setup_s: float = 2.0

    def run(self, seed: int) -> Told:
        stages = [make_stage(**({"gpus": 1.0} if self.gpus and i == 1 else {})) for i in range(1, len(self.row_s))]
        if self.stateful:
            stages[-1] = make_stage("dedup")
        pace = dict(enumerate((*self.row_s, 1e-4)))
        told = Told(Scenario(seed, operators=fed(chain(*stages)), nodes={0: Node(cpus=self.cpus, gpus=self.gpus, budget_bytes=1 << 30)},
                             steady=True, unit_rows=list(self.units), row_bytes=ROW_BYTES, part_bytes=200_000, row_s=pace,
                             fans={1: self.keeps}, noise=self.noise, setup_s=dict.fromkeys(range(len(pace)), self.setup_s)))
        told.run()
        return told


def unequal(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [int(min(8000, 20 * rng.paretovariate(0.9))) for _ in range(120)]


SHAPES = {
    "one large unit": Shape([8000], [0.001, 0.03]),
    "one large unit that is slow to read": Shape([8000], [0.01, 0.02]),
    "1,000 small units": Shape([8] * 1000, [0.001, 0.03]),
    "units of very unequal size": Shape(unequal(3), [0.002, 0.02]),
    "a large unit at the end": Shape([50] * 200 + [5000], [0.02, 0.01], noise=0.1),
    "most is dropped": Shape([100] * 100, [0.002, 0.02, 0.05], keeps=0.1),
    "one GPU": Shape([100] * 60, [0.001, 0.02, 0.005], gpus=1),
    "one worker at the end": Shape([100] * 60, [0.001, 0.02, 0.01], stateful=True),
    "workers that take 20 s to start": Shape([100] * 100, [0.001, 0.05], setup_s=20.0),
}


def errors(told: Told) -> list[tuple[float, float]]:
    """How far the run was in time, and what was said over what was true, less one."""
    return [(when / told.now, (left if left is not None else float("nan")) / (told.now - when) - 1)
            for when, left, share in told.said if share >= 0.1 and told.now - when >= 1.0]


FAST = ["a large unit at the end", "one GPU", "workers that take 20 s to start"]


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in SHAPES if n not in FAST)])
def test_the_time_left_is_right_within_a_third_from_a_tenth_of_the_way_on(name):
    told = SHAPES[name].run(seed=7)
    found = errors(told)
    assert len(found) >= 40
    # At the end steps wait for each other, which is less than what a run adds for its own end.
    assert [(at, error) for at, error in found
            if not (abs(error) <= 1 / 3 or abs(error) * (1 - at) * told.now <= END_S)] == []
    shares = [share for _, left, share in told.said if left is not None]
    assert shares[-1] > 0.95
    assert max(before - after for before, after in pairwise(shares)) < 0.1, "it goes back"


def test_nothing_is_said_before_a_step_that_matters_has_worked():
    read = Work("read", 0, 0, (), rows=100, out={"out": 100}, busy_s=1.0)
    slow = Work("slow", 0, 1, (("read", "out"),))
    rare = Work("rare", 0, 2, (("read", "failed"),))
    later = Work("later", 1, 0, (("slow", "out"),), before_s=0.5)
    assert work_left([read, slow, rare], 0, 0.5, {}) == ({"read": 1.0, "slow": 0.0, "rare": 0.0}, False)
    slow.rows, slow.busy_s, slow.out = 20, 10.0, {"out": 5}
    left, known = work_left([read, slow, rare, later], 0, 0.5, {})
    assert known
    assert left == {"read": 1.0, "slow": 90.0, "rare": 0.0, "later": 25.0}


def test_what_a_row_took_of_late_counts_more_than_what_the_first_ones_took():
    read = Work("read", 0, 0, (), rows=100, busy_s=1.0, out={"out": 100})
    step = Work("step", 0, 1, (("read", "out"),), rows=50, busy_s=30.0)
    assert work_left([read, step], 0, 1.0, {"step": (25, 5.0)})[0]["step"] == 50.0
    assert work_left([read, step], 0, 1.0, {"step": (49, 5.0)})[0]["step"] == 30.0, "one row says little"


def test_what_comes_behind_a_barrier_is_guessed_by_its_rows():
    read = Work("read", 0, 0, (), rows=100, out={"out": 100}, busy_s=1.0)
    pairs = Work("near.pairs", 1, 0, (("read", "out"),), reduces=True, part=True)
    near = Work("near", 2, 0, (("read", "out"), ("near.pairs", "out")), reduces=True)
    write = Work("write", 2, 1, (("near", "out"),))
    left, known = work_left([read, pairs, near, write], 0, 1.0, {})
    assert known
    assert left == pytest.approx({"read": 0, "near.pairs": 100 * 5e-5, "near": 110 * 0.01, "write": 110 * 0.01})
    pairs.rows, pairs.busy_s, pairs.out = 40, 2.0, {"out": 2}
    left, _ = work_left([read, pairs, near, write], 1, 0.25, {})
    assert left == pytest.approx({"read": 0, "near.pairs": 6.0, "near": 105 * 0.01, "write": 105 * 0.01})
