"""The time of a phase in virtual time: what is known beforehand of simple ones, and what a straight line keeps of long ones."""

from __future__ import annotations

import pytest

from curator import CuratorError
from curator.api.resources import Node
from curator.trial import simulate
from curator.trial.simulate import Cost, phase_s
from tests.engine.scenario import chain, make_stage

HERE = {0: Node(cpus=4, budget_bytes=1 << 30)}
COSTS = {0: Cost(0.0001, 0.5, {1: 1.0}), 1: Cost(0.02, 0.5, {2: 0.5}), 2: Cost(0.001, 0.2, {})}


def test_work_that_can_be_shared_out_takes_its_seconds_over_the_cores():
    took = phase_s(chain(make_stage()), COSTS, [(0, 100)] * 40, HERE)
    work = 4000 * (0.0001 + 0.02 + 0.5 * 0.001)
    assert work / 4 < took < work / 4 * 1.1 + 2


def test_one_worker_that_must_see_all_rows_takes_all_its_seconds():
    took = phase_s(chain(make_stage("dedup")), COSTS, [(0, 100)] * 40, HERE)
    assert 4000 * 0.02 < took < 4000 * 0.02 * 1.1 + 2


def test_a_large_unit_is_read_by_one_worker_after_all_others():
    costs = {**COSTS, 0: Cost(0.02, 0.5, {1: 1.0}), 1: Cost(0.001, 0.5, {2: 1.0})}
    even = phase_s(chain(make_stage()), costs, [(0, 100)] * 80, HERE)
    uneven = phase_s(chain(make_stage()), costs, [(0, 50)] * 80 + [(0, 4000)], HERE)
    assert uneven > 4000 * 0.02
    assert even < 0.6 * uneven


@pytest.mark.parametrize("units", [[(0, 40)] * 200, [(0, 2000)] * 4], ids=["many", "few"])
def test_a_long_phase_is_told_by_two_short_ones(units, monkeypatch):
    monkeypatch.setattr(simulate, "CORE_S", 0.0)
    whole = phase_s(chain(make_stage()), COSTS, units, HERE)
    monkeypatch.setattr(simulate, "WORK_S", 50.0)
    assert phase_s(chain(make_stage()), COSTS, units, HERE) == pytest.approx(whole, rel=0.05)


def test_a_gpu_limits_and_more_of_them_are_as_much_faster():
    costs = {**COSTS, 1: Cost(0.05, 5.0, {2: 1.0})}
    one, four = (phase_s(chain(make_stage(gpus=1.0)), costs, [(0, 50)] * 60, {0: Node(cpus=8, gpus=n, budget_bytes=1 << 30)})
                 for n in (1, 4))
    assert 3000 * 0.05 < one < 3000 * 0.05 * 1.1 + 6
    assert 3 < (one - 5) / (four - 5) < 4.1


def test_what_cannot_come_to_its_end_is_said():
    with pytest.raises(CuratorError, match="on these nodes"):
        phase_s(chain(make_stage()), COSTS, [(0, 100)], {})
