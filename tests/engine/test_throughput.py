"""Throughput in virtual time: how near the scheduler comes to what the machines could do."""

from __future__ import annotations

import random

from simulator import Simulator
from world import World, chain, make_stage

from curator.balance.allocation import Allocation, Demand, allocate
from curator.engine.events import Done, StartWorker
from curator.resources import Node


class Watched(Simulator):
    """Remembers when calls ended and when workers were started."""

    def __init__(self, world: World) -> None:
        super().__init__(world, validate=0)
        self.ended: list[tuple[float, int, int]] = []  # when, operator, rows
        self.started: list[tuple[float, StartWorker]] = []

    def _happen(self, sender: int, event: object) -> list:
        if isinstance(event, Done) and event.flushed is None:
            call = self.scheduler.state.calls.get(event.call)
            if call is not None:
                rows = sum(c.rows_in for steps in event.counts.values() for c in steps.values())
                self.ended.append((self.now, call.operator, rows))
        return super()._happen(sender, event)

    def _start(self, action: StartWorker) -> None:
        self.started.append((self.now, action))
        super()._start(action)

    def share(self, begin: float = 20.0, end: float = 0.7) -> float:
        """The rate from `begin` (seconds) on until a share of the run, over the bound of `allocate`; backlogs count as what they are
        worth: what is summed is the work on what limits the run."""
        world, until = self.world, end * self.now
        demands, limit = demands_of(world), allocation_of(world)
        assert not limit.turns
        worth = []
        for index, demand in enumerate(demands):
            need = demand.resources
            takes = {"cpus": need.cpus, "gpus": need.gpus, "memory": need.memory_gb}.get(limit.binding, float(index == limit.slowest))
            worth.append(takes / demand.rate)
        done = sum(rows * worth[operator] for when, operator, rows in self.ended if begin < when <= until)
        return done / (until - begin) / (limit.bound * sum(d.rows * w for d, w in zip(demands, worth, strict=True)))


def demands_of(world: World) -> list[Demand]:
    demands, rows = [], 1.0
    for operator in world.operators:
        demands.append(Demand(operator.resources, 1 / world.row_s.get(operator.index, 0.01), rows))
        rows *= world.fans.get(operator.index, 1)
    return demands


def allocation_of(world: World) -> Allocation:
    """What the machines could do, by the true rates."""
    return allocate(demands_of(world), world.nodes)


def watch(world: World) -> Watched:
    simulator = Watched(world)
    simulator.run()
    return simulator


def random_world(seed: int) -> World:
    """A line of two to five stages with unequal rates, fan-outs, batch sizes and devices on one to four nodes, for about two minutes."""
    rng = random.Random(seed)
    count, machines = rng.randint(2, 5), rng.choice([1, 1, 2, 4])
    gpus = rng.choice([0, 0, 1, 2])
    nodes = {n: Node(cpus=rng.choice([4, 8]), gpus=gpus, budget_bytes=1 << 30) for n in range(machines)}
    stages, row_s, fans, fan = [], {0: 0.0005}, {}, 1.0
    for index in range(1, count + 1):
        on_gpu = gpus and rng.random() < 0.4
        need = {"gpus": rng.choice([0.5, 1])} if on_gpu else {"cpus": rng.choice([1, 1, 1, 2])}
        stages.append(make_stage(batch_size=rng.choice([None, None, 8, 32]), **need))
        row_s[index] = rng.choice([0.003, 0.01, 0.03, 0.1]) / fan
        fans[index] = rng.choice([1, 1, 1, 0.5, 3]) if index < count else 1
        fan *= fans[index]
    row_s[count + 1] = 0.0005 / fan
    operators = chain(*stages)
    world = World(seed, operators=operators, nodes=nodes, steady=True, unit_rows=[1], row_bytes=1000, part_bytes=20_000,
                  row_s=row_s, fans=fans)
    rows = int(120 * allocation_of(world).bound)
    units = max(20, rows // 200)
    return World(seed, operators=operators, nodes=nodes, steady=True, unit_rows=[rows // units] * units, row_bytes=1000,
                 part_bytes=20_000, row_s=row_s, fans=fans)
