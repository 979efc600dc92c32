"""What the scheduler says to each event, one at a time."""

from __future__ import annotations

from collections import Counter

import pytest

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.engine.dispatch import FIRST_ROWS
from curator.engine.events import Commit, Release, StartWorker, StopWorker, WorkerLost, WorkerReady
from curator.engine.protocol import PART_S, Done, Emitted, Failed, Resume
from curator.engine.units import restart
from curator.pipeline.plan import Target
from tests.engine.harness import SOURCE, Harness, followed, rows_of
from tests.engine.scenario import make_stage

# -- the way of a unit ------------------------------------------------------------------------------------------


def test_a_run_without_units_has_finished_before_it_begins():
    assert Harness(units=0).scheduler.finished


def test_a_run_starts_one_worker_for_each_operator():
    harness = Harness(make_stage(), make_stage(), start=False)
    assert [a.operator for a in harness.said] == [0, 1, 2, 3]


def test_a_unit_is_read_passed_on_written_flushed_and_committed():
    harness = Harness(make_stage())
    harness.read(5)
    harness.passes(harness.call_of(1))
    harness.passes(harness.call_of(harness.sink))
    flush = harness.call_of(harness.sink)
    assert flush.kind == "flush"
    assert not harness.scheduler.finished
    commit, *stops = (a for a in harness.passes(flush) if not isinstance(a, Release))
    assert isinstance(commit, Commit)
    assert commit.counts["op0.0"].rows_in == commit.counts["op1.0"].rows_in == commit.counts["written"].rows_in == 5
    assert commit.ran == {"op0.0", "op1.0", "written", "failed/0.0", "failed/1.0"}
    assert {type(s) for s in stops} == {StopWorker}
    assert not any(s.kill for s in stops)
    assert len(harness.released) == 2
    assert harness.state.live_bytes == 0


def test_a_unit_is_not_flushed_before_its_last_row_is_written():
    harness = Harness(cpus=1)
    call = harness.call_of(SOURCE)
    harness.tell(Emitted(call.id, harness.output(0, ["a"])))
    harness.passes(harness.call_of(harness.sink))
    assert not harness.calls_of(harness.sink)  # the source has more
    harness.tell(Done(call.id, harness.output(0, ["b"]), {0: {0: Counts(rows_in=2, out={"out": 2})}}))
    assert rows_of(harness.call_of(harness.sink)) == ["b"]


def test_all_rows_of_a_unit_go_to_one_worker_of_the_sinks():
    harness = Harness()
    harness.state.operators[harness.sink].limit = 1  # any queue at all is reason enough for another worker
    call = harness.call_of(SOURCE)
    harness.tell(Done(call.id, (*harness.output(0, ["a"]), *harness.output(0, ["b"])), {0: {0: Counts(rows_in=2, out={"out": 2})}}))
    assert len(harness.state.operators[harness.sink].queues) == 1


def test_a_unit_without_rows_is_committed_at_once():
    harness = Harness()
    harness.read(0)
    assert harness.scheduler.finished
    assert len(harness.said_of(Commit)) == 1


def test_rows_are_given_out_in_the_order_they_came():
    harness = Harness(make_stage(), cpus=1)
    harness.read(50)
    seen = []
    while harness.calls:
        call = harness.calls[0]
        seen += rows_of(call) if call.operator == 1 else []
        harness.passes(call)
    assert seen == [f"0.{i}" for i in range(50)]


# -- sizes of calls -----------------------------------------------------------------------------------------------


def test_the_first_calls_are_small_and_later_ones_as_long_as_they_should_be():
    harness = Harness(make_stage(), cpus=1)
    harness.read(1000)
    assert harness.call_of(1).rows == FIRST_ROWS
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 0.01)
    harness.passes(harness.call_of(harness.sink))
    assert harness.call_of(1).rows == 20  # 0.2 s of work


def test_a_first_call_is_no_larger_than_a_step_asks_for():
    """As where films are probed, and cut one by one by the same worker: all of a unit would be one call, and others had nothing."""
    harness = Harness(make_stage(), steps={1: [make_stage(batch_size=1)]}, cpus=2)
    harness.read(4)
    assert harness.call_of(1).rows == 1


def test_where_many_work_calls_are_longer_so_that_the_driver_can_tell_all_of_them_what_to_do(monkeypatch):
    monkeypatch.setattr("curator.engine.state.CALLS_S", 0.5)  # for each that works a call lasts two seconds more, at least
    harness = Harness(make_stage(), cpus=8, units=2)
    call, beside = harness.calls_of(SOURCE)
    assert (call.part_s, beside.part_s) == (PART_S, 2.0)
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(FIRST_ROWS)])))
    harness.all_ready()
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 0.01)
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(FIRST_ROWS, 150)])))
    assert not harness.calls_of(1), "1.3 seconds of work, and more may come"
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(150, 1000)])))
    assert [call.rows for call in harness.calls_of(1)] == [400], "two worked when it began"
    assert harness.state.operators[1].rows == 584, "5.8 seconds of work, and four work"
    harness.tick(harness.scheduler.deadline())
    assert harness.state.operators[1].rows == 584, "more have begun to work since, so they wait longer"
    assert harness.scheduler.deadline() == 8.0, "they have come at 0, and somebody has to look at them then"
    harness.tick(8.0)
    harness.all_ready()
    assert sum(call.rows for call in harness.calls_of(1)) == 984, "they waited long enough"


def test_a_call_ends_where_a_batch_ends_if_that_is_near():
    """Or each stage would cut batches once more, and calls far behind the source would be of many units."""
    harness = Harness(make_stage(), cpus=1, units=4)
    harness.read(FIRST_ROWS, unit=0)
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 0.01)  # 20 rows are 0.2 s of work
    harness.read(23, unit=1)
    harness.read(17, unit=2)
    harness.read(60, unit=3)
    sizes = []
    while harness.state.operators[1].rows or harness.calls_of(1):
        call = harness.calls[0]
        if call.operator == 1:
            sizes.append((call.units[0][0], call.rows))
        harness.passes(call, seconds=call.rows * 0.01)
    assert sizes == [(1, 23), (2, 17), (3, 20), (3, 20), (3, 20)]


def test_every_worker_gets_a_share_of_what_is_left():
    harness = Harness(make_stage(), cpus=4)
    harness.read(100)
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 0.002)
    left = harness.state.operators[1].rows + sum(c.rows for c in harness.calls_of(1))
    assert harness.call_of(1).rows <= left / 4 + 1


def one_ready(rows: int) -> Harness:
    """All is read, so many rows, and the one worker of the stage behind it took two seconds to start."""
    harness = Harness(make_stage(), cpus=4, start=False)
    source, stage = harness.workers[SOURCE][0], harness.workers[1][0]
    harness.tell(WorkerReady(source))
    harness.read(rows)
    harness.tell(WorkerReady(stage, setup_s=2.0))
    assert len(harness.workers[1]) == 1, "nobody knows yet what its rows take"
    return harness


@pytest.mark.parametrize(("rows", "workers"), [(100, 1), (300, 2)])
def test_a_second_worker_starts_if_the_first_would_need_longer_than_that_one_to_start(rows, workers):
    harness = one_ready(rows)
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 0.01)  # 0.84 seconds are left, or 2.84
    assert len(harness.workers[1]) == workers


def test_a_second_worker_starts_beside_a_first_call_that_takes_longer_than_that_one_to_start():
    harness = one_ready(100)
    harness.tick(1.9)
    assert len(harness.workers[1]) == 1
    assert harness.scheduler.deadline() == 2.0
    harness.tick(2.0)
    assert len(harness.workers[1]) == 2


def test_a_second_worker_starts_beside_a_call_that_takes_much_longer_than_those_before_it():
    harness = one_ready(100)
    harness.passes(harness.call_of(1), seconds=FIRST_ROWS * 0.001)  # so what is left should take 0.084 seconds
    rows = harness.call_of(1).rows
    assert harness.state.operators[1].rows, "some wait behind this call"
    assert harness.scheduler.deadline() == pytest.approx(2.0 + rows * 0.001)
    harness.tick(2.0)
    assert len(harness.workers[1]) == 1
    harness.tick(2.1)
    assert len(harness.workers[1]) == 2


def test_a_batch_size_is_kept_to_while_more_may_come_and_not_at_the_end():
    harness = Harness(make_stage(batch_size=64), cpus=4)
    call = harness.call_of(SOURCE)
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(40)])))
    harness.all_ready()
    assert not harness.calls_of(1)
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(40, 80)])))
    assert harness.call_of(1).rows == 64
    harness.passes(harness.call_of(1))
    assert not harness.calls_of(1)  # 16 rows wait
    harness.tell(Done(call.id, (), {0: {0: Counts(rows_in=80, out={"out": 80})}}))
    assert harness.call_of(1).rows == 16


def test_a_batch_is_whole_when_it_has_as_many_bytes_as_the_stage_takes(monkeypatch):
    stage = make_stage(batch_size=64)
    monkeypatch.setattr(stage, "batch_bytes", 8 << 20, raising=False)
    harness = Harness(stage, cpus=4)
    call = harness.call_of(SOURCE)
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(7)], row_bytes=1 << 20)))
    harness.all_ready()
    assert not harness.calls_of(1), "more may come"
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(7, 20)], row_bytes=1 << 20)))
    harness.all_ready()
    assert [call.rows for call in harness.calls_of(1)] == [8, 8]
    for call in harness.calls_of(1):
        harness.passes(call)
    assert not harness.calls_of(1), "4 rows wait"


def test_a_batch_is_not_waited_for_when_it_is_itself_in_the_way():
    """The source has no room for what it would send, because of the rows that wait for it."""
    harness = Harness(make_stage(batch_size=64), cpus=4, budget=20_000)
    call = harness.call_of(SOURCE)
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(64)], row_bytes=125)))
    harness.passes(harness.call_of(1))
    assert harness.calls_of(harness.sink)  # and somebody works all the time
    harness.tell(Emitted(call.id, harness.output(0, [f"0.{i}" for i in range(64, 72)], row_bytes=400)))
    assert call.paused
    assert harness.call_of(1).rows == 8


def test_no_call_takes_much_more_than_48_mb():
    harness = Harness(make_stage(), budget=1 << 40)
    harness.read(20, row_bytes=10 << 20)
    assert harness.call_of(1).rows == 4


def test_a_short_call_is_followed_by_one_that_waits_at_the_worker():
    running, waiting = followed().calls_of(1)
    assert running.worker == waiting.worker


# -- room ---------------------------------------------------------------------------------------------------------


def test_a_call_that_has_sent_a_part_goes_on_when_there_is_room():
    harness = Harness(make_stage(), cpus=2, budget=20_000)
    call = harness.call_of(SOURCE)
    assert not any(isinstance(a, Resume) for a in harness.tell(Emitted(call.id, harness.output(0, ["a", "b"], row_bytes=6000))))
    assert call.paused
    harness.passes(harness.call_of(1))
    assert harness.said_of(Resume) == [Resume(call.worker, call.id)]
    assert not call.paused


def test_a_full_queue_stops_what_is_before_it_and_not_what_is_after():
    harness = Harness(make_stage(), units=3, cpus=8, budget=20_000)
    harness.read(30, row_bytes=1000, unit=0)
    assert not harness.calls_of(SOURCE) or harness.calls_of(SOURCE)[0].units[0][0] == 1  # it was under way already
    for call in harness.calls_of(SOURCE):
        harness.read(30, row_bytes=1000, unit=call.units[0][0])
    assert not harness.calls_of(SOURCE)
    assert harness.calls_of(1)
    harness.finish()


def test_a_waiting_call_takes_no_room_while_the_one_before_it_is_paused():
    harness = followed()
    running, waiting = harness.calls_of(1)
    harness.state.operators[harness.sink].limit = 1
    harness.tell(Emitted(running.id, harness.output(0, ["0.20"])))
    assert running.paused
    assert not waiting.expected
    assert not harness.state.operators[harness.sink].reserved


def test_rows_that_are_tried_alone_wait_for_room_like_all_others_and_take_some():
    harness = Harness(make_stage(), make_stage())
    source = harness.call_of(SOURCE)
    harness.tell(Emitted(source.id, harness.output(0, ["0.0", "0.1"])))
    harness.passes(harness.call_of(1))
    behind = harness.call_of(2)
    harness.tell(Done(source.id, harness.output(0, ["0.2", "0.3"]), {0: {0: Counts(rows_in=4, out={"out": 4})}}))
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    one, two = harness.state.operators[1:3]
    assert (one.rows, one.load) == (0, 200)
    two.limit = 0
    harness.all_ready()
    assert not harness.calls_of(1)
    harness.passes(behind)
    assert rows_of(harness.call_of(1)) == ["0.2", "0.3"]


# -- a part of a unit ---------------------------------------------------------------------------------------------


def test_what_is_not_wanted_of_a_unit_is_not_sent():
    wanted = frozenset({Target(1), Target(2, 0)})
    harness = Harness(make_stage(), needed=wanted)
    harness.tell(Done(harness.call_of(SOURCE).id, (*harness.output(0, ["a"]), *harness.output(0, ["b"], port="failed")),
                    {0: {0: Counts(rows_in=2, out={"out": 1}, failed=1)}}))
    assert [r.data for r in harness.released] == [["b"]]
    for _ in range(2):
        harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
        harness.all_ready()
    commit, = harness.said_of(Commit) or harness.finish()
    assert "failed/1.0" not in commit.counts  # its place is not wanted either
    assert commit.counts["op1.0"].failed == 1
    assert commit.ran == {"op0.0", "op1.0", "written"}


def test_stages_that_no_unit_needs_are_not_set_up():
    harness = Harness(make_stage(), make_stage(gpus=1), needed=frozenset({Target(1), Target(3, 2)}), gpus=1, start=False)
    assert [a.operator for a in harness.starts] == [0, 1, 3]


# -- limits -------------------------------------------------------------------------------------------------------


def reach(harness: Harness, unit: int) -> None:
    """The limit says that it is reached when it answers this unit's row."""
    call = next(c for c in harness.calls_of(1) if c.units[0][0] == unit)
    harness.tell(Done(call.id, harness.output(unit, rows_of(call)), {unit: {0: Counts(rows_in=1, out={"out": 1})}}, exhausted=True))


def test_units_behind_a_reached_limit_stay_unread():
    harness = Harness(make_stage("limit"), units=5, cpus=1, short_circuits=frozenset({1}))
    harness.read(1)
    reach(harness, 0)
    stages = Counter(harness.state.units.stages())
    assert stages["unread"] >= 3
    assert harness.reports("limit") == [f"op1.0 is reached: {stages['unread']} units stay unread"]
    assert len(harness.finish()) == 5 - stages["unread"]


def test_a_limit_that_not_every_row_passes_ends_no_reading():
    harness = Harness(make_stage("limit"), units=3, cpus=1)
    harness.read(1)
    reach(harness, 0)
    assert len(harness.finish()) == 3


def test_a_unit_that_starts_again_is_read_although_the_limit_is_reached():
    harness = Harness(make_stage("limit"), units=6, cpus=2, short_circuits=frozenset({1}))
    harness.read(1, unit=0)
    reach(harness, 0)
    harness.tell(Failed(harness.call_of(harness.sink).id, "OSError"))
    assert harness.state.units[0].stage != "unread"
    assert 0 in {c.unit for c in harness.finish()}


def test_units_that_waited_for_another_try_are_not_left_unread():
    """What the limit let through of them has to come once more."""
    harness = Harness(make_stage("limit"), units=3, cpus=1, short_circuits=frozenset({1}))
    harness.read(1, unit=0)
    while harness.calls_of(SOURCE):
        harness.read(1)
    restart(harness.state, [harness.state.units[0]], "a test says so")
    harness.scheduler._exhausted(harness.state.operators[1], True)
    assert harness.state.units[0].stage == "waiting"
    assert 0 in {c.unit for c in harness.finish()}


def test_a_limit_that_loses_its_worker_may_need_more():
    harness = Harness(make_stage("limit"), units=5, cpus=1, short_circuits=frozenset({1}))
    harness.read(1)
    reach(harness, 0)
    assert harness.state.units.unread
    harness.tell(WorkerLost(harness.workers[1][0], "killed"))
    assert not harness.state.units.unread
    assert len(harness.finish()) == 5


# -- GPUs and memory ----------------------------------------------------------------------------------------------


def test_as_many_workers_share_a_gpu_as_their_shares_say():
    for share, count in ((0.1, 10), (0.3, 3), (0.5, 2), (1, 1), (2, 1)):
        harness = Harness(make_stage(gpus=share, cpus=0.1), gpus=2, start=False)
        expected = {2: 1}.get(share, 2 * count)
        assert harness.state.operators[1].workers_max == expected


def test_a_share_goes_to_the_fullest_gpu_that_fits():
    harness = Harness(make_stage(gpus=0.5), make_stage(gpus=0.5), make_stage(gpus=1), gpus=2, start=False)
    one, other, whole = [a.places[0].gpus for a in harness.said_of(StartWorker)][1:4]
    assert one == other != whole


@pytest.mark.parametrize(("rows", "started"), [(32, 1), (64, 2), (500, 2)])
def test_slots_of_a_gpu_are_filled_at_once_where_each_has_a_batch(rows, started):
    """Half of the devices until the stage's rate is known; the second does not wait until the first has loaded its model."""
    harness = Harness(make_stage(gpus=0.25, batch_size=32), gpus=1, start=False)
    harness.tell(WorkerReady(harness.workers[SOURCE][0]))
    harness.read(rows)
    assert len(harness.workers[1]) == started


def test_an_idle_worker_without_work_gives_its_gpu_to_a_stage_that_has():
    harness = Harness(make_stage(gpus=1), make_stage(gpus=1), gpus=1)
    assert not harness.workers.get(2)
    harness.read(3)
    harness.passes(harness.call_of(1))
    stop, = harness.said_of(StopWorker)
    assert not stop.kill
    harness.tell(WorkerLost(stop.worker, "stopped"))
    assert [a.operator for a in harness.said_of(StartWorker)] == [2]
    assert len(harness.finish()) == 1


def test_nobody_is_asked_to_give_way_in_vain():
    """Half of the GPU is idle and the other half works: who needs a whole one has to wait for both."""
    harness = Harness(make_stage(gpus=0.5), make_stage(gpus=0.5), make_stage(gpus=1), gpus=1)
    harness.state.operators[1].workers_max = 1
    harness.read(100)
    harness.passes(harness.call_of(1))
    harness.passes(harness.call_of(2))
    assert harness.calls_of(1)
    assert harness.state.operators[3].has_work
    assert not harness.said_of(StopWorker)


def test_no_second_worker_starts_in_place_of_the_only_one_of_another_operator():
    harness = Harness(make_stage(gpus=0.5), make_stage(gpus=0.5), gpus=1)
    harness.read(100)
    assert harness.state.operators[1].has_work
    assert not harness.said_of(StopWorker)


def test_a_call_on_a_gpu_ends_without_room_when_all_wait_for_its_gpu():
    harness = Harness(make_stage(gpus=1), make_stage(gpus=1), gpus=1, budget=3000)
    harness.read(1)
    call = harness.call_of(1)
    harness.tell(Emitted(call.id, harness.output(0, ["a"], row_bytes=5000)))
    assert harness.said_of(Resume) == [Resume(call.worker, call.id)]  # nobody else can make room: it holds the GPU


def two_on_a_gpu(**given) -> Harness:
    """Operator 1 holds the GPU and operator 2 has rows and no worker; another unit is being read all the time."""
    harness = Harness(make_stage(gpus=1), make_stage(gpus=1, **given), units=2, gpus=1)
    harness.read(40, unit=0)
    return harness


def test_a_worker_that_has_no_room_gives_its_gpu_to_the_stage_that_is_full():
    harness = two_on_a_gpu()
    harness.state.operators[2].limit = 1
    call = harness.call_of(1)
    harness.passes(call)
    assert harness.state.operators[1].rows  # and no room for what they would give
    stop, = harness.said_of(StopWorker)
    assert stop.worker == call.worker


def test_a_paused_call_ends_when_what_is_behind_it_waits_for_its_gpu():
    harness = two_on_a_gpu()
    harness.state.operators[2].limit = 1
    call = harness.call_of(1)
    harness.tell(Emitted(call.id, harness.output(0, ["0.0"])))
    assert harness.said_of(Resume) == [Resume(call.worker, call.id)]


def test_a_paused_call_ends_when_everything_waits_for_its_gpu_further_down():
    harness = Harness(make_stage(gpus=1), make_stage(), make_stage(gpus=1), gpus=1)
    harness.read(10)
    call = harness.call_of(1)
    for operator in harness.state.operators[2:4]:
        operator.limit = 1
    harness.tell(Emitted(call.id, harness.output(0, ["0.0"])))
    assert call.paused
    harness.passes(harness.call_of(2))
    assert harness.state.operators[3].has_work
    harness.tell(Emitted(call.id, harness.output(0, ["0.1"])))
    assert harness.state.operators[2].blocked
    assert harness.said_of(Resume) == [Resume(call.worker, call.id)]


def test_a_batch_is_not_waited_for_that_a_stage_without_a_gpu_would_have_to_fill():
    harness = two_on_a_gpu(batch_size=32)
    while harness.calls_of(1):
        harness.passes(harness.call_of(1))
    stop, = harness.said_of(StopWorker)
    harness.tell(WorkerLost(stop.worker, "stopped"))
    harness.all_ready()
    assert harness.call_of(2).rows == 32
    harness.read(40, unit=1)
    assert harness.state.operators[1].rows == 40  # which have no GPU
    harness.passes(harness.call_of(2))
    assert harness.call_of(2).rows == 8


def test_stages_on_a_gpu_come_first():
    harness = Harness(make_stage(gpus=1), make_stage(), gpus=1)
    assert [o.plan.index for o in harness.state.order] == [1, 3, 2, 0]


def test_no_room_is_kept_for_failures_before_any_was_seen():
    harness = Harness(make_stage(), budget=20_000)
    assert harness.calls_of(SOURCE)
    assert harness.state.operators[1].reserved > harness.state.operators[harness.sink].reserved == 0


def test_a_gpu_is_free_again_when_its_worker_dies():
    harness = Harness(make_stage(gpus=1), gpus=1)
    harness.read(4)
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    assert [a.places[0].gpus for a in harness.said_of(StartWorker)] == [(0,)]


def test_what_does_not_fit_into_memory_side_by_side_waits():
    harness = Harness(make_stage(memory_gb=5), make_stage(memory_gb=5), start=False)  # of 8 GiB
    assert [a.operator for a in harness.said_of(StartWorker)] == [0, 1, 3]


def test_a_stage_starts_beside_one_that_cannot_give_way_when_nothing_else_helps():
    harness = Harness(make_stage("dedup", memory_gb=5), make_stage(memory_gb=5))
    harness.read(3)
    harness.passes(harness.call_of(1))  # what it has learned is lost with its worker
    assert harness.reports("crowded") == ["op2.0 starts beside workers that need the same memory or GPU"]
    assert len(harness.finish()) == 1


def test_a_worker_that_was_asked_to_end_is_not_asked_again():
    harness = Harness(make_stage())
    harness.read(0)
    assert len(harness.said_of(StopWorker)) == 3
    harness = Harness(make_stage())
    asked = harness.state.workers[harness.workers[1][0]]
    harness.state.stop(asked)
    harness.read(0)
    assert [action.worker for action in harness.said_of(StopWorker)].count(asked.id) == 1


@pytest.mark.parametrize(("memory_gb", "where"), [(4, {0, 1, 2, 3}), (32, {2}), (100, {0, 1, 2, 3})])
def test_a_worker_goes_where_there_is_enough_memory_for_it_if_there_is_anywhere(memory_gb, where):
    nodes = {i: Node(cpus=4, memory_bytes=(64 if i == 2 else 8) << 30) for i in range(4)}
    harness = Harness(make_stage(memory_gb=memory_gb), units=4, nodes=nodes)
    harness.read(1000)
    harness.all_ready()
    places = {place.node for start in harness.starts if start.operator == 1 for place in start.places}
    assert places
    assert places <= where


def test_a_stage_that_is_larger_than_the_machine_runs_alone():
    harness = Harness(make_stage(memory_gb=100))
    assert len(harness.workers[1]) == 1
    assert len(harness.finish()) == 1
