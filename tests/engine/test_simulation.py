"""The scheduler against thousands of random scenarios: what DESIGN section 1 says must hold whatever fails.

A seed that fails is replayed by `replay(seed, profile)`; a bug is fixed by adding its seed to `SEEDS` first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.engine import dispatch
from curator.engine.failures import TRIES
from curator.pipeline.plan import Target
from tests.engine.scenario import Faults, Scenario, beside, chain, make_stage
from tests.engine.simulator import Simulator, port_of
from tests.marks import soaked_after

PROFILES = {
    "calm": Faults(),
    "poison": Faults(poison=0.02, late=0.5),
    "deaths": Faults(death=0.03, setup=0.05, idle=0.002, late=0.5),
    "hangs": Faults(hang=0.03, close=0.2, poison=0.005, slow=0.1, late=0.5),
    "storage": Faults(raises=0.05, slow=0.1),
    "driver": Faults(driver=0.003, stop=0.003, poison=0.005),
    "nodes": Faults(node=0.01, late=0.5),
    "cluster": Faults(node=0.003, death=0.01, setup=0.03, hang=0.005, poison=0.005, slow=0.1, idle=0.001, late=0.5, driver=0.001,
                      close=0.05),
    "everything": Faults(death=0.02, setup=0.05, hang=0.01, raises=0.02, poison=0.01, slow=0.1, idle=0.001, late=0.5,
                         driver=0.001, stop=0.001),
}
CHUNKS = {"calm": 20, "poison": 30, "deaths": 30, "hangs": 30, "storage": 30, "driver": 30, "nodes": 40, "cluster": 40,
          "everything": 40}
CHUNK = 10  # seeds; those behind the first chunk are for `make soak`

# Each found a bug once: profile, seed, tight, what it was.
SEEDS = [
    ("hangs", 632, False, "a good row was blamed for a companion that had been given up meanwhile"),
    ("driver", 840, False, "the same, by a poison row"),
    ("poison", 2831, False, "a call behind a held one kept room reserved, and all waited for it"),
    ("poison", 3692, False, "the same"),
    ("nodes", 406, False, "a unit was given up because nodes went, again and again"),
    ("nodes", 796, False, "units began again after the run had stopped"),
    ("cluster", 353, False, "a worker whose devices were meant for others got ready, and nobody asked it to end"),
    ("cluster", 1448, False, "workers gave way to a gang of more ranks than there are cores, in vain and for ever"),
]


def replay(seed: int, profile: str = "calm", tight: bool = False, validate: int = 1) -> Simulator:
    """Run one scenario to its end and check everything."""
    scenario = (Scenario.tight if tight else Scenario)(seed, PROFILES[profile])
    simulator = Simulator(scenario, validate)
    try:
        simulator.run()
        audit(simulator)
        assert not any("stuck" in reason for reason in simulator.stops), simulator.stops
        assert scenario.faults.loses_rows or scenario.faults.stop or not simulator.stops, simulator.stops
    except BaseException as error:
        error.add_note(f"replay({seed}, {profile!r}, {tight})")
        raise
    return simulator


@pytest.mark.parametrize(("profile", "chunk"), [pytest.param(p, c, marks=[pytest.mark.slow] if c else [])
                                                for p, chunks in CHUNKS.items() for c in range(chunks)])
@pytest.mark.seeded
def test_every_row_ends_in_its_one_place_whatever_fails(profile, chunk, first_seed):
    for seed in range(first_seed + chunk * CHUNK, first_seed + (chunk + 1) * CHUNK):
        replay(seed, profile, validate=1 if seed % 5 == 0 else 20)


@pytest.mark.parametrize(("profile", "seed", "tight", "story"), SEEDS)
def test_seeds_that_found_a_bug(profile, seed, tight, story):
    replay(seed, profile, tight, validate=5)


# -- memory -----------------------------------------------------------------------------------------------------


def bytes_bound(simulator: Simulator) -> float:
    """What may be alive at once, from the rules of `dispatch`.

    A call starts or goes on only where each queue behind it would hold no more than its limit with what is expected to come, or
    holds nothing at all. What then comes is one part, whatever was expected, so a queue holds its limit and one part for each
    call under way. A batch lives until its last row has left, and a queue, a call, a group, and a call that was put back, hold
    on to two batches at most of which the rest has left. A worker on a GPU or memory that others wait for may end its call
    without room. The answers to rows that have killed before are kept until they are whole.
    """
    state = simulator.scheduler.state
    return sum(o.limit for o in state.operators if o.plan.kind != "source") + beyond_limits(simulator)


def beyond_limits(simulator: Simulator) -> float:
    """Bytes that the limits of queues, or of a node, do not cover."""
    most = simulator.most
    parts = most["calls"] + 2 * (most["calls"] + most["workers"] + most["groups"] + most["queues"])
    return most["part"] * parts + most["answer"] * most["exclusive"] + most["kept"]


@pytest.mark.parametrize("chunk", soaked_after(1, range(12)))
def test_bytes_alive_stay_bounded_where_memory_is_short(chunk):
    for seed in range(chunk * 2, chunk * 2 + 2):
        calm = replay(seed, "calm", tight=True, validate=20)
        assert calm.most["live"] <= bytes_bound(calm), seed
        rough = replay(1000 + seed, "deaths", tight=True, validate=20)
        assert rough.most["live"] <= bytes_bound(rough), seed


@pytest.mark.parametrize(("nodes", "chunk"), soaked_after(1, [(4, 0), (2, 0), (4, 1), (2, 1)]))
def test_bytes_on_each_node_stay_bounded_where_memory_is_short(nodes, chunk):
    for seed in range(chunk * 5, chunk * 5 + 5):
        simulator = Simulator(Scenario.tight(seed, Faults(), nodes), validate=20)
        simulator.run()
        audit(simulator)
        assert simulator.most["live"] <= bytes_bound(simulator), seed
        assert simulator.most["node"] <= beyond_limits(simulator), seed


@pytest.mark.parametrize("budget", [50_000, 500_000])
def test_a_fast_producer_waits_for_a_slow_consumer(budget):
    scenario = Scenario(0, operators=chain(make_stage(), make_stage()), machine=Node(cpus=2, budget_bytes=budget), steady=True,
                  unit_rows=[500] * 4, row_bytes=1000, part_bytes=5000, row_s={0: 0.0001, 1: 0.0001, 2: 0.02})
    simulator = Simulator(scenario)
    simulator.run()
    audit(simulator)
    assert simulator.most["live"] <= 0.9 * budget  # of 2 MB that pass


# -- work -------------------------------------------------------------------------------------------------------


def steady(*stages, rows: int = 200, units: int = 12, cpus: int = 4, gpus: int = 0, budget: int = 1 << 30, **given) -> Simulator:
    machine = Node(cpus=cpus, gpus=gpus, budget_bytes=budget)
    given = {"row_bytes": 1000, "part_bytes": 10_000, **given}
    scenario = Scenario(0, operators=chain(*stages), machine=machine, steady=True, unit_rows=[rows] * units, **given)
    simulator = Simulator(scenario, validate=20)
    simulator.run()
    audit(simulator)
    return simulator


@pytest.mark.parametrize(("slow", "budget"), soaked_after(2, [(3, 300_000), (1, 1 << 30), (3, 1 << 30), (1, 300_000),
                                                              *((slow, budget) for slow in (2, 4) for budget in (300_000, 1 << 30))]))
def test_all_cores_work_whichever_stage_is_the_slow_one(slow, budget):
    done = steady(make_stage(), make_stage(), make_stage(), budget=budget, row_s={0: 0.001, slow: 0.05})
    setups = 4  # of a second: workers start one after the other, and at the end the last calls run alone
    spread = 1.15 if slow < 4 else 1.3  # each unit stays with one worker of the sinks, and not many are under way at once
    assert done.now <= spread * done.work_s / 4 + setups


def test_many_cores_are_soon_at_work():
    done = steady(make_stage(), rows=100, units=40, cpus=16, row_s={0: 0.0001, 1: 0.2, 2: 0.0001})
    assert done.starts[1] >= 15
    assert done.now <= 1.2 * done.work_s / 16 + 6


@pytest.mark.parametrize("shape", [{"gpus": 1}, {"memory_gb": 5}])
@pytest.mark.parametrize("read_s", [0.001, 0.3])
def test_stages_that_do_not_fit_side_by_side_take_turns(shape, read_s):
    done = steady(*[make_stage(**shape)] * 3, units=8, gpus=1, budget=1 << 20, row_s={0: read_s})
    for stage in (1, 2, 3):
        assert done.starts[stage] <= 10  # 1,600 rows pass, and a queue holds 260 of them
    assert done.now <= done.work_s + 40


def test_work_that_trickles_in_does_not_make_a_gpu_change_hands_for_each_row():
    done = steady(make_stage(gpus=1), make_stage(gpus=1), units=4, gpus=1, part_bytes=1000, row_s={0: 0.5})
    turns = done.starts[1] + done.starts[2]
    assert turns <= 0.15 * 4 * 200, "more turns than their setup is worth"


@pytest.mark.parametrize("batch_size", [None, 64])
def test_a_long_branch_beside_them_does_not_keep_stages_from_their_turns(batch_size):
    operators = beside(chain(make_stage(gpus=1), make_stage(gpus=1, batch_size=batch_size)), chain(make_stage()))
    scenario = Scenario(5, operators=operators, machine=Node(cpus=2, gpus=1, budget_bytes=1 << 20), unit_rows=[200] * 10,
                  row_bytes=1000, part_bytes=3000, steady=True, row_s={0: 0.001, 3: 0.001, 4: 0.5})
    simulator = Simulator(scenario, validate=20)
    simulator.run()
    audit(simulator)
    starts = {o: [float(line.split()[0]) for line in simulator.log if line.endswith(f"StartWorker {o}")] for o in (1, 2)}
    assert simulator.now > 200
    assert max(starts[1] + starts[2]) < 50  # 20 s of work on the GPU, and its turns


def test_a_stage_starts_beside_one_that_can_never_give_way():
    done = steady(make_stage(memory_gb=6), make_stage("dedup", memory_gb=5), make_stage(memory_gb=6), units=3)
    assert len(done.committed) == 3


def test_branches_that_part_and_meet_again_twenty_times_cost_no_more_than_their_number(monkeypatch):
    """A stage that waits for a full batch asks whether more may come: of each operator before it, and not by each way to it."""
    line = chain(*[make_stage(batch_size=64 if at % 3 == 2 else None) for at in range(60)])
    operators = []
    for at, operator in enumerate(line):
        # 0 -> 1 and 2 -> 3 -> 4 and 5 -> 6 …; the second way is there, and no row takes it.
        way = {0: {(0, "low"): (Target(at + 2),)}, 1: {(0, "out"): (Target(at + 2),)}, 2: {}}[at % 3]
        operators.append(replace(operator, routes={**operator.routes, **way}) if at < 60 else operator)
    simulator = Simulator(Scenario(0, operators=operators, machine=Node(cpus=2), steady=True, unit_rows=[40] * 2, row_bytes=1000),
                          validate=0)
    asked, may_send = Counter(), dispatch._may_send
    monkeypatch.setattr(dispatch, "_may_send", lambda *given: asked.update(["times"]) or may_send(*given))
    simulator.run()
    audit(simulator)
    assert asked["times"] < len(operators) * simulator.events


# -- ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_failed", soaked_after(1, [2, 20]))
def test_more_failures_than_allowed_stop_the_run_and_the_next_one_goes_on(max_failed):
    stopped = told = 0
    for seed in range(40):
        simulator = Simulator(Scenario(seed, Faults(poison=0.1)), validate=5, max_failed=max_failed)
        simulator.run()
        audit(simulator)
        told += simulator.evidence_rows  # of all failed rows in open units: the simulator looks after it
        if simulator.stops:
            stopped += 1
            assert simulator.stops[0].endswith(f"more than max_failed = {max_failed} allows")
        else:
            assert sum(c.failed for commit in simulator.committed.values() for c in commit.counts.values()) <= max_failed
    assert 5 < stopped < 40
    assert told > 2 * stopped


def test_a_share_of_failures_is_judged_when_there_are_enough_records():
    scenario = Scenario(3, operators=chain(make_stage()), unit_rows=[100] * 30)
    simulator = Simulator(scenario, validate=20, max_failed=0.01)  # the source fails 2% and the stage another 2%
    simulator.run()
    audit(simulator)
    failed, read = (int(word) for word in simulator.stops[0].split() if word.isdigit())
    assert failed > max(10, 0.01 * read)  # a thousand records, or as many as there were, are enough to judge by


@pytest.mark.parametrize("chunk", soaked_after(1, range(3)))
def test_the_same_events_lead_to_the_same_actions(chunk):
    for seed in range(chunk * 5, chunk * 5 + 5):
        assert replay(seed, "everything").log == replay(seed, "everything", validate=0).log


def test_a_run_does_not_depend_on_the_hash_seed():
    code = ("import sys, hashlib; sys.path.insert(0, sys.argv[1]); from tests.engine.test_simulation import replay; "
            "print(hashlib.sha256(repr([replay(s, 'everything', validate=0).log for s in range(5)]).encode()).hexdigest())")
    logs = {subprocess.run([sys.executable, "-c", code, str(Path(__file__).parents[2])], capture_output=True, text=True, check=True,
                           env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(logs) == 1


def test_the_simulator_itself_is_not_asleep():
    """Every kind of fault and every end really happens in these scenarios."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        simulator = replay(seed, "everything", validate=0)
        seen["killed alone"] += len(simulator.died_alone)
        seen["reads failed"] += sum(simulator.reads_failed.values())
        seen["stops"] += len(simulator.stops)
        seen["unread"] += len(simulator.scenario.units) - len(simulator.committed)
        seen["partial"] += sum(n is not None for n in simulator.scenario.needed)
        seen["remembered"] += len(simulator.memories)
        seen["kept back"] += simulator.most["kept"] > 0
        seen["second attempts"] += sum(c.attempt > 0 for c in simulator.committed.values())
        seen["driver kills"] += simulator.lives - 1 - len(simulator.stops)
    assert len(seen) == 9
    assert all(seen.values()), seen


# -- the audit --------------------------------------------------------------------------------------------------


def audit(simulator: Simulator) -> None:
    """Every row is in exactly the place where it must be, and every count says so."""
    scenario, label = simulator.scenario, f"seed {simulator.scenario.seed}"
    committed = simulator.committed
    stateful = [o.index for o in scenario.operators if o.kind == "stateful"]
    unread = frozenset(range(len(scenario.units))) - committed.keys()
    decided = {(stateful[0], row): port_of(row, answer)
               for memory in simulator.memories.values() for row, answer in memory.items()}
    written = files_of(simulator)
    killed, given_up = failures(simulator, written)
    expected = scenario.expected(decided, killed, unread, given_up)
    assert written == expected.written, (label, list((written - expected.written).items())[:5],
                                         list((expected.written - written).items())[:5])
    summed: dict[str, Counts] = {}
    for commit in committed.values():
        for name, counts in commit.counts.items():
            counts.check(name)
            summed.setdefault(name, Counts()).add(counts)
    for name in summed.keys() | expected.counts.keys():
        assert plain(summed.get(name)) == plain(expected.counts.get(name)), (label, name)
    check_memories(simulator, expected.reached, unread, exact=not killed and not given_up)


def files_of(simulator: Simulator) -> Counter:
    steps = {step.name: s for s, step in enumerate(simulator.scenario.operators[-1].steps)}
    return Counter((steps[name], file.path) for commit in simulator.committed.values()
                   for name, files in commit.files.items() for file in files)


def failures(simulator: Simulator, written: Counter) -> tuple[dict[tuple[int, str], list[int]], frozenset[int]]:
    """Rows and units on `failed` for no fault of theirs: allowed only where they were alone in what died."""
    scenario = simulator.scenario
    killed: dict[tuple[int, str], list[int]] = {}
    given_up = set()
    places = {t.step: (o, step) for o in scenario.operators for (step, port), targets in o.routes.items()
              if port == "failed" for t in targets}
    for (sink_step, row), times in written.items():
        operator, step = places.get(sink_step, (None, 0))
        if operator is None:
            continue
        if row.startswith("note"):
            unit = int(row.removeprefix("note"))
            assert simulator.reads_failed[unit] >= TRIES, f"seed {scenario.seed}: unit {unit} was given up too early"
            given_up.add(unit)
        elif (operator.index, row) in simulator.died_alone and not fails_by_itself(scenario, operator, step, row):
            assert simulator.deaths[operator.index, row] >= 2, f"seed {scenario.seed}: {row} was blamed for a single death"
            killed.setdefault((operator.index, row), []).extend([step] * times)
    assert scenario.faults.loses_rows or not given_up
    return killed, frozenset(given_up)


def fails_by_itself(scenario: Scenario, operator, step: int, row: str) -> bool:
    if operator.kind == "source":
        return True
    return scenario.poison_step(operator, row) is None and ("failed", row) in scenario.fate(operator, step, row)


def plain(counts: Counts | None) -> tuple:
    c = counts or Counts()
    return c.rows_in, c.made, {k: v for k, v in c.out.items() if v}, sum(c.dropped.values()), c.duplicate, c.failed, c.absorbed


def check_memories(simulator: Simulator, reached: dict[int, list[str]], unread: frozenset[int], exact: bool) -> None:
    """One row of each content is kept; a limit lets through as many as it should; units name those they rest on.

    `exact`: all rows came through; else the one that was kept, or let through, may have failed at its next coming.
    """
    scenario = simulator.scenario
    answers = {row: answer for memory in simulator.memories.values() for row, answer in memory.items()}
    for index, rows in reached.items():
        name = scenario.operators[index].steps[0].stage.name
        assert len(rows) == len(set(rows))
        if name == "limit":
            passed = sum(answers[row] == "out" for row in rows)
            assert passed <= scenario.limit
            assert not exact or passed == (scenario.limit if unread else min(scenario.limit, len(rows)))
        elif exact:
            kept = Counter(scenario.content(row) for row in rows if answers[row] == row)
            assert kept == Counter({scenario.content(row) for row in rows})
    for unit, memory in simulator.memories.items():
        rest_on = {scenario.unit_of(answer) for answer in memory.values() if "." in answer} - {unit}
        assert simulator.committed[unit].depends == rest_on
