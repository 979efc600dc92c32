"""What the scheduler says to each event, one at a time."""

from __future__ import annotations

from collections import Counter

from bench import Bench, followed, rows_of
from world import make_stage

from curator.counts import Counts
from curator.engine.dispatch import FIRST_ROWS
from curator.engine.events import (
    Commit,
    Done,
    Emitted,
    Failed,
    Release,
    Resume,
    StartWorker,
    StopWorker,
    WorkerLost,
)
from curator.plan import Target

SOURCE = 0

# -- the way of a unit ------------------------------------------------------------------------------------------


def test_a_run_without_units_has_finished_before_it_begins():
    assert Bench(units=0).scheduler.finished


def test_a_run_starts_one_worker_for_each_operator():
    bench = Bench(make_stage(), make_stage(), start=False)
    assert [a.operator for a in bench.said] == [0, 1, 2, 3]


def test_a_unit_is_read_passed_on_written_flushed_and_committed():
    bench = Bench(make_stage())
    bench.read(5)
    bench.passes(bench.call_of(1))
    bench.passes(bench.call_of(bench.sink))
    flush = bench.call_of(bench.sink)
    assert flush.kind == "flush"
    assert not bench.scheduler.finished
    commit, *stops = (a for a in bench.passes(flush) if not isinstance(a, Release))
    assert isinstance(commit, Commit)
    assert commit.counts["op0.0"].rows_in == commit.counts["op1.0"].rows_in == commit.counts["written"].rows_in == 5
    assert commit.ran == {"op0.0", "op1.0", "written", "failed/0.0", "failed/1.0"}
    assert {type(s) for s in stops} == {StopWorker}
    assert not any(s.kill for s in stops)
    assert len(bench.released) == 2
    assert bench.state.live_bytes == 0


def test_a_unit_is_not_flushed_before_its_last_row_is_written():
    bench = Bench(cpus=1)
    call = bench.call_of(SOURCE)
    bench.tell(Emitted(call.id, bench.output(0, ["a"])))
    bench.passes(bench.call_of(bench.sink))
    assert not bench.calls_of(bench.sink)  # the source has more
    bench.tell(Done(call.id, bench.output(0, ["b"]), {0: {0: Counts(rows_in=2, out={"out": 2})}}))
    assert rows_of(bench.call_of(bench.sink)) == ["b"]


def test_all_rows_of_a_unit_go_to_one_worker_of_the_sinks():
    bench = Bench()
    bench.state.operators[bench.sink].limit = 1  # any queue at all is reason enough for another worker
    call = bench.call_of(SOURCE)
    bench.tell(Done(call.id, (*bench.output(0, ["a"]), *bench.output(0, ["b"])), {0: {0: Counts(rows_in=2, out={"out": 2})}}))
    assert len(bench.state.operators[bench.sink].lanes) == 1


def test_a_unit_without_rows_is_committed_at_once():
    bench = Bench()
    bench.read(0)
    assert bench.scheduler.finished
    assert len(bench.said_of(Commit)) == 1


def test_rows_are_given_out_in_the_order_they_came():
    bench = Bench(make_stage(), cpus=1)
    bench.read(50)
    seen = []
    while bench.calls:
        call = bench.calls[0]
        seen += rows_of(call) if call.operator == 1 else []
        bench.passes(call)
    assert seen == [f"0.{i}" for i in range(50)]


# -- sizes of calls -----------------------------------------------------------------------------------------------


def test_the_first_calls_are_small_and_later_ones_as_long_as_they_should_be():
    bench = Bench(make_stage(), cpus=1)
    bench.read(1000)
    assert bench.call_of(1).rows == FIRST_ROWS
    bench.passes(bench.call_of(1), seconds=FIRST_ROWS * 0.01)
    bench.passes(bench.call_of(bench.sink))
    assert bench.call_of(1).rows == 20  # 0.2 s of work


def test_every_worker_gets_a_share_of_what_is_left():
    bench = Bench(make_stage(), cpus=4)
    bench.read(100)
    bench.passes(bench.call_of(1), seconds=FIRST_ROWS * 0.002)
    left = bench.state.operators[1].rows + sum(c.rows for c in bench.calls_of(1))
    assert bench.call_of(1).rows <= left / 4 + 1


def test_a_batch_size_is_kept_to_while_more_may_come_and_not_at_the_end():
    bench = Bench(make_stage(batch_size=64), cpus=4)
    call = bench.call_of(SOURCE)
    bench.tell(Emitted(call.id, bench.output(0, [f"0.{i}" for i in range(40)])))
    bench.all_ready()
    assert not bench.calls_of(1)
    bench.tell(Emitted(call.id, bench.output(0, [f"0.{i}" for i in range(40, 80)])))
    assert bench.call_of(1).rows == 64
    bench.passes(bench.call_of(1))
    assert not bench.calls_of(1)  # 16 rows wait
    bench.tell(Done(call.id, (), {0: {0: Counts(rows_in=80, out={"out": 80})}}))
    assert bench.call_of(1).rows == 16


def test_a_batch_is_not_waited_for_when_it_is_itself_in_the_way():
    """The source has no room for what it would send, because of the rows that wait for it."""
    bench = Bench(make_stage(batch_size=64), cpus=4, budget=20_000)
    call = bench.call_of(SOURCE)
    bench.tell(Emitted(call.id, bench.output(0, [f"0.{i}" for i in range(64)], row_bytes=125)))
    bench.passes(bench.call_of(1))
    assert bench.calls_of(bench.sink)  # and somebody works all the time
    bench.tell(Emitted(call.id, bench.output(0, [f"0.{i}" for i in range(64, 72)], row_bytes=400)))
    assert call.held
    assert bench.call_of(1).rows == 8


def test_no_call_takes_much_more_than_48_mb():
    bench = Bench(make_stage(), budget=1 << 40)
    bench.read(20, row_bytes=10 << 20)
    assert bench.call_of(1).rows == 4


def test_a_short_call_is_followed_by_one_that_waits_at_the_worker():
    running, waiting = followed().calls_of(1)
    assert running.worker == waiting.worker


# -- room ---------------------------------------------------------------------------------------------------------


def test_a_call_that_has_sent_a_part_goes_on_when_there_is_room():
    bench = Bench(make_stage(), cpus=2, budget=20_000)
    call = bench.call_of(SOURCE)
    assert not any(isinstance(a, Resume) for a in bench.tell(Emitted(call.id, bench.output(0, ["a", "b"], row_bytes=6000))))
    assert call.held
    bench.passes(bench.call_of(1))
    assert bench.said_of(Resume) == [Resume(call.worker, call.id)]
    assert not call.held


def test_a_full_queue_stops_what_is_before_it_and_not_what_is_after():
    bench = Bench(make_stage(), units=3, cpus=8, budget=20_000)
    bench.read(30, row_bytes=1000, unit=0)
    assert not bench.calls_of(SOURCE) or bench.calls_of(SOURCE)[0].units[0][0] == 1  # it was under way already
    for call in bench.calls_of(SOURCE):
        bench.read(30, row_bytes=1000, unit=call.units[0][0])
    assert not bench.calls_of(SOURCE)
    assert bench.calls_of(1)
    bench.finish()


def test_a_waiting_call_takes_no_room_while_the_one_before_it_is_held():
    bench = followed()
    running, waiting = bench.calls_of(1)
    bench.state.operators[bench.sink].limit = 1
    bench.tell(Emitted(running.id, bench.output(0, ["0.20"])))
    assert running.held
    assert not waiting.expected
    assert not bench.state.operators[bench.sink].reserved


def test_rows_that_are_tried_alone_wait_for_room_like_all_others_and_take_some():
    bench = Bench(make_stage(), make_stage())
    source = bench.call_of(SOURCE)
    bench.tell(Emitted(source.id, bench.output(0, ["0.0", "0.1"])))
    bench.passes(bench.call_of(1))
    behind = bench.call_of(2)
    bench.tell(Done(source.id, bench.output(0, ["0.2", "0.3"]), {0: {0: Counts(rows_in=4, out={"out": 4})}}))
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    one, two = bench.state.operators[1:3]
    assert (one.rows, one.load) == (0, 200)
    two.limit = 0
    bench.all_ready()
    assert not bench.calls_of(1)
    bench.passes(behind)
    assert rows_of(bench.call_of(1)) == ["0.2", "0.3"]


# -- a part of a unit ---------------------------------------------------------------------------------------------


def test_what_is_not_wanted_of_a_unit_is_not_sent():
    wanted = frozenset({Target(1), Target(2, 0)})
    bench = Bench(make_stage(), needed=wanted)
    bench.tell(Done(bench.call_of(SOURCE).id, (*bench.output(0, ["a"]), *bench.output(0, ["b"], port="failed")),
                    {0: {0: Counts(rows_in=2, out={"out": 1}, failed=1)}}))
    assert [r.data for r in bench.released] == [["b"]]
    for _ in range(2):
        bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
        bench.all_ready()
    commit, = bench.said_of(Commit) or bench.finish()
    assert "failed/1.0" not in commit.counts  # its place is not wanted either
    assert commit.counts["op1.0"].failed == 1
    assert commit.ran == {"op0.0", "op1.0", "written"}


def test_stages_that_no_unit_needs_are_not_set_up():
    bench = Bench(make_stage(), make_stage(gpus=1), needed=frozenset({Target(1), Target(3, 2)}), gpus=1, start=False)
    assert [a.operator for a in bench.starts] == [0, 1, 3]


# -- limits -------------------------------------------------------------------------------------------------------


def reach(bench: Bench, unit: int) -> None:
    """The limit says that it is reached when it answers this unit's row."""
    call = next(c for c in bench.calls_of(1) if c.units[0][0] == unit)
    bench.tell(Done(call.id, bench.output(unit, rows_of(call)), {unit: {0: Counts(rows_in=1, out={"out": 1})}}, exhausted=True))


def test_units_behind_a_reached_limit_stay_unread():
    bench = Bench(make_stage("limit"), units=5, cpus=1, gates=frozenset({1}))
    bench.read(1)
    reach(bench, 0)
    stages = Counter(bench.state.units.stages())
    assert stages["unread"] >= 3
    assert bench.reports("limit") == [f"op1.0 is reached: {stages['unread']} units stay unread"]
    assert len(bench.finish()) == 5 - stages["unread"]


def test_a_limit_that_not_every_row_passes_ends_no_reading():
    bench = Bench(make_stage("limit"), units=3, cpus=1)
    bench.read(1)
    reach(bench, 0)
    assert len(bench.finish()) == 3


def test_a_unit_that_starts_again_is_read_although_the_limit_is_reached():
    bench = Bench(make_stage("limit"), units=6, cpus=2, gates=frozenset({1}))
    bench.read(1, unit=0)
    reach(bench, 0)
    bench.tell(Failed(bench.call_of(bench.sink).id, "OSError"))
    assert bench.state.units[0].stage != "unread"
    assert 0 in {c.unit for c in bench.finish()}


def test_units_that_waited_for_another_try_are_not_left_unread():
    """What the limit let through of them has to come once more."""
    bench = Bench(make_stage("limit"), units=3, cpus=1, gates=frozenset({1}))
    bench.read(1, unit=0)
    while bench.calls_of(SOURCE):
        bench.read(1)
    bench.scheduler._restart([bench.state.units[0]], "a test says so")
    bench.scheduler._exhausted(bench.state.operators[1], True)
    assert bench.state.units[0].stage == "waiting"
    assert 0 in {c.unit for c in bench.finish()}


def test_a_limit_that_loses_its_worker_may_need_more():
    bench = Bench(make_stage("limit"), units=5, cpus=1, gates=frozenset({1}))
    bench.read(1)
    reach(bench, 0)
    assert bench.state.units.unread
    bench.tell(WorkerLost(bench.workers[1][0], "killed"))
    assert not bench.state.units.unread
    assert len(bench.finish()) == 5


# -- GPUs and memory ----------------------------------------------------------------------------------------------


def test_as_many_workers_share_a_gpu_as_their_shares_say():
    for share, count in ((0.1, 10), (0.3, 3), (0.5, 2), (1, 1), (2, 1)):
        bench = Bench(make_stage(gpus=share, cpus=0.1), gpus=2, start=False)
        expected = {2: 1}.get(share, 2 * count)
        assert bench.state.operators[1].workers_max == expected


def test_a_share_goes_to_the_fullest_gpu_that_fits():
    bench = Bench(make_stage(gpus=0.5), make_stage(gpus=0.5), make_stage(gpus=1), gpus=2, start=False)
    one, other, whole = [a.places[0].gpus for a in bench.said_of(StartWorker)][1:4]
    assert one == other != whole


def test_an_idle_worker_without_work_gives_its_gpu_to_a_stage_that_has():
    bench = Bench(make_stage(gpus=1), make_stage(gpus=1), gpus=1)
    assert not bench.workers.get(2)
    bench.read(3)
    bench.passes(bench.call_of(1))
    stop, = bench.said_of(StopWorker)
    assert not stop.kill
    bench.tell(WorkerLost(stop.worker, "stopped"))
    assert [a.operator for a in bench.said_of(StartWorker)] == [2]
    assert len(bench.finish()) == 1


def test_nobody_is_asked_to_give_way_in_vain():
    """Half of the GPU is idle and the other half works: who needs a whole one has to wait for both."""
    bench = Bench(make_stage(gpus=0.5), make_stage(gpus=0.5), make_stage(gpus=1), gpus=1)
    bench.state.operators[1].workers_max = 1
    bench.read(100)
    bench.passes(bench.call_of(1))
    bench.passes(bench.call_of(2))
    assert bench.calls_of(1)
    assert bench.state.operators[3].has_work
    assert not bench.said_of(StopWorker)


def test_no_second_worker_starts_in_place_of_the_only_one_of_another_operator():
    bench = Bench(make_stage(gpus=0.5), make_stage(gpus=0.5), gpus=1)
    bench.read(100)
    assert bench.state.operators[1].has_work
    assert not bench.said_of(StopWorker)


def test_a_call_on_a_gpu_ends_without_room_when_all_wait_for_its_gpu():
    bench = Bench(make_stage(gpus=1), make_stage(gpus=1), gpus=1, budget=3000)
    bench.read(1)
    call = bench.call_of(1)
    bench.tell(Emitted(call.id, bench.output(0, ["a"], row_bytes=5000)))
    assert bench.said_of(Resume) == [Resume(call.worker, call.id)]  # nobody else can make room: it holds the GPU


def two_on_a_gpu(**given) -> Bench:
    """Operator 1 holds the GPU and operator 2 has rows and no worker; another unit is being read all the time."""
    bench = Bench(make_stage(gpus=1), make_stage(gpus=1, **given), units=2, gpus=1)
    bench.read(40, unit=0)
    return bench


def test_a_worker_that_has_no_room_gives_its_gpu_to_the_stage_that_is_full():
    bench = two_on_a_gpu()
    bench.state.operators[2].limit = 1
    call = bench.call_of(1)
    bench.passes(call)
    assert bench.state.operators[1].rows  # and no room for what they would give
    stop, = bench.said_of(StopWorker)
    assert stop.worker == call.worker


def test_a_held_call_ends_when_what_is_behind_it_waits_for_its_gpu():
    bench = two_on_a_gpu()
    bench.state.operators[2].limit = 1
    call = bench.call_of(1)
    bench.tell(Emitted(call.id, bench.output(0, ["0.0"])))
    assert bench.said_of(Resume) == [Resume(call.worker, call.id)]


def test_a_held_call_ends_when_everything_waits_for_its_gpu_further_down():
    bench = Bench(make_stage(gpus=1), make_stage(), make_stage(gpus=1), gpus=1)
    bench.read(10)
    call = bench.call_of(1)
    for operator in bench.state.operators[2:4]:
        operator.limit = 1
    bench.tell(Emitted(call.id, bench.output(0, ["0.0"])))
    assert call.held
    bench.passes(bench.call_of(2))
    assert bench.state.operators[3].has_work
    bench.tell(Emitted(call.id, bench.output(0, ["0.1"])))
    assert bench.state.operators[2].blocked
    assert bench.said_of(Resume) == [Resume(call.worker, call.id)]


def test_a_batch_is_not_waited_for_that_a_stage_without_a_gpu_would_have_to_fill():
    bench = two_on_a_gpu(batch_size=32)
    while bench.calls_of(1):
        bench.passes(bench.call_of(1))
    stop, = bench.said_of(StopWorker)
    bench.tell(WorkerLost(stop.worker, "stopped"))
    bench.all_ready()
    assert bench.call_of(2).rows == 32
    bench.read(40, unit=1)
    assert bench.state.operators[1].rows == 40  # which have no GPU
    bench.passes(bench.call_of(2))
    assert bench.call_of(2).rows == 8


def test_stages_on_a_gpu_come_first():
    bench = Bench(make_stage(gpus=1), make_stage(), gpus=1)
    assert [o.plan.index for o in bench.state.order] == [1, 3, 2, 0]


def test_no_room_is_kept_for_failures_before_any_was_seen():
    bench = Bench(make_stage(), budget=20_000)
    assert bench.calls_of(SOURCE)
    assert bench.state.operators[1].reserved > bench.state.operators[bench.sink].reserved == 0


def test_a_gpu_is_free_again_when_its_worker_dies():
    bench = Bench(make_stage(gpus=1), gpus=1)
    bench.read(4)
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    assert [a.places[0].gpus for a in bench.said_of(StartWorker)] == [(0,)]


def test_what_does_not_fit_into_memory_side_by_side_waits():
    bench = Bench(make_stage(memory_gb=5), make_stage(memory_gb=5), start=False)  # of 8 GiB
    assert [a.operator for a in bench.said_of(StartWorker)] == [0, 1, 3]


def test_a_stage_starts_beside_one_that_cannot_give_way_when_nothing_else_helps():
    bench = Bench(make_stage("dedup", memory_gb=5), make_stage(memory_gb=5))
    bench.read(3)
    bench.passes(bench.call_of(1))  # what it has learned is lost with its worker
    assert bench.reports("crowded") == ["op2.0 starts beside workers that need the same memory or GPU"]
    assert len(bench.finish()) == 1


def test_a_worker_that_was_asked_to_end_is_not_asked_again():
    bench = Bench(make_stage())
    bench.read(0)
    assert len(bench.said_of(StopWorker)) == 3
    bench = Bench(make_stage())
    asked = bench.state.workers[bench.workers[1][0]]
    asked.stopping = True
    bench.state.count(asked)
    bench.read(0)
    assert len(bench.said_of(StopWorker)) == 2


def test_a_stage_that_is_larger_than_the_machine_runs_alone():
    bench = Bench(make_stage(memory_gb=100))
    assert len(bench.workers[1]) == 1
    assert len(bench.finish()) == 1
