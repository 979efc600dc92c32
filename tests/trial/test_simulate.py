"""The time of a phase in virtual time: what is known beforehand of simple ones, and what a straight line keeps of long ones."""

from __future__ import annotations

import pytest

from curator import CuratorError
from curator.api.resources import Node
from curator.engine.events import Commit
from curator.trial import simulate
from curator.trial.cluster import PacedCluster
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


class Committed(PacedCluster):
    """Keeps what was committed, and when."""

    def run(self) -> None:
        self.commits: list[tuple[float, Commit]] = []
        super().run()

    def obey(self, actions) -> None:
        self.commits += [(self.now, action) for action in actions if isinstance(action, Commit)]
        super().obey(actions)


def test_every_row_is_read_once_and_parts_of_rows_are_sent_when_they_are_one():
    costs = {0: Cost(0.01, 0.5, {1: 1.0}), 1: Cost(0.001, 0.5, {2: 0.3}), 2: Cost(0.001, 0.5, {3: 2.5}), 3: Cost(0.001, 0.5)}
    cluster = Committed(chain(make_stage(), make_stage(cpus=2)), costs, [(0, 70), (0, 1), (0, 333)], HERE)
    cluster.run()
    rows = {name: sum(c.counts[name].rows_in for _, c in cluster.commits if name in c.counts)
            for name in ("op0.0", "op1.0", "op2.0", "written")}
    assert rows == {"op0.0": 404, "op1.0": 404, "op2.0": 121, "written": 302}  # 404 x 0.3, and 121 x 2.5


def test_the_same_cluster_does_the_same_at_the_same_times():
    one, other = (Committed(chain(make_stage(), make_stage(gpus=0.5)), {**COSTS, 2: Cost(0.01, 3.0, {3: 1.0})}, [(0, 50)] * 20,
                            {0: Node(cpus=4, gpus=2), 1: Node(cpus=2)}) for _ in range(2))
    one.run()
    other.run()
    assert len(one.commits) == 20
    assert [(when, commit.unit) for when, commit in one.commits] == [(when, commit.unit) for when, commit in other.commits]
