"""What the scheduler says to deaths, failures, overtime and whatever comes too late, one event at a time."""

from __future__ import annotations

from collections import Counter

import pytest

from curator.api.counts import Counts
from curator.api.resources import Node
from curator.engine.dispatch import FIRST_ROWS
from curator.engine.events import Commit, NodeDown, NodeUp, Release, Stop, StopWorker, Submit, WorkerLost, WorkerReady
from curator.engine.protocol import Call, Discard, Done, Emitted, Failed, Output, Progress, Ref, Resume
from curator.engine.state import CLOSE_S
from curator.engine.units import restart
from tests.engine.harness import Harness, followed, rows_of
from tests.engine.scenario import make_stage

SOURCE = 0

# -- deaths of workers --------------------------------------------------------------------------------------------


def test_rows_that_kill_are_halved_down_to_the_one_that_does_it():
    harness = Harness(make_stage())
    harness.read(FIRST_ROWS)
    answered: Counter[str] = Counter()
    deaths = 0
    while calls := harness.calls_of(1):
        if "0.5" in rows_of(calls[0]):
            deaths += 1
            harness.tell(WorkerLost(calls[0].worker, "killed by SIGSEGV"))
            harness.all_ready()
        else:
            answered.update(rows_of(calls[0]))
            harness.passes(calls[0])
    assert answered == Counter({f"0.{i}": 1 for i in range(FIRST_ROWS) if i != 5})
    assert deaths == 6  # all of them twice, then 8, 4, 2, 1
    noted = [s for c in harness.calls_of(harness.sink) for s in c.slices if s.reason is not None] + \
        [s for queue in harness.state.operators[harness.sink].queues.values() for s in queue.slices if s.reason is not None]
    assert [s.ref.data[s.start:s.stop] for s in noted] == [["0.5"]]
    assert noted[0].target == 2
    assert noted[0].reason.error == "the worker died: killed by SIGSEGV"
    commit, = harness.finish()
    assert commit.counts["op1.0"].failed == commit.counts["failed/1.0"].rows_in == 1
    assert commit.counts["written"].rows_in == FIRST_ROWS - 1


def test_a_row_fails_in_the_step_that_it_kills():
    harness = Harness(make_stage(), steps={1: 3})
    harness.read(1)
    for _ in range(2):
        harness.tell(WorkerLost(harness.call_of(1).worker, "killed", step=1))
        harness.all_ready()
    assert harness.call_of(harness.sink).slices[0].target == 3  # written, failed/0.0, failed/1.0, failed/1.1
    commit, = harness.finish()
    assert commit.counts["op1.0"].out == {"out": 1}
    assert commit.counts["op1.1"].failed == 1
    assert "op1.2" not in commit.counts


def test_the_call_that_ran_is_blamed_for_a_death_and_the_one_behind_it_is_not():
    harness = followed()
    operator = harness.state.operators[1]
    running, waiting = (rows_of(c) for c in harness.calls_of(1))
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    group, = operator.groups
    assert [row for s in group.slices for row in s.ref.data[s.start:s.stop]] == running
    first = operator.queues[0].slices[0]
    assert first.ref.data[first.start] == waiting[0]
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 10_000


def test_rows_that_survive_alone_were_not_to_blame():
    harness = Harness(make_stage())
    harness.read(4)
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    harness.all_ready()
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 4


def test_a_death_is_not_blamed_on_a_row_whose_companions_were_given_up_meanwhile():
    harness = Harness(make_stage(batch_size=2), units=2)
    harness.read(1, unit=0)
    harness.read(1, unit=1)
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    harness.all_ready()
    assert len(rows_of(harness.call_of(1))) == 2
    restart(harness.state, [harness.state.units[1]], "a test says so")
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    assert not harness.reports("failed")
    assert sum(c.counts["written"].rows_in for c in harness.finish()) == 1 + 3


def test_rows_that_wait_to_be_tried_alone_go_with_their_unit():
    harness = Harness(make_stage())
    harness.read(4)
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    assert harness.state.operators[1].groups
    restart(harness.state, [harness.state.units[0]], "a test says so")
    assert not harness.state.operators[1].groups
    assert not harness.state.live_bytes
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 3


def test_an_idle_workers_death_costs_nothing():
    harness = Harness(make_stage(), cpus=1)
    harness.tell(WorkerLost(harness.workers[1][0], "killed"))
    commit, = harness.finish()
    assert commit.attempt == 0


def test_a_call_of_which_a_part_was_sent_on_takes_its_unit_with_it():
    harness = Harness(make_stage())
    harness.read(5)
    call = harness.call_of(1)
    harness.tell(Emitted(call.id, harness.output(0, ["0.0"])))
    harness.tell(WorkerLost(call.worker, "killed"))
    assert harness.reports("restart") == ["unit 0 starts again (attempt 2): the worker died: killed"]
    commit, = harness.finish()
    assert commit.attempt == 1
    assert commit.counts["written"].rows_in == 3


def test_answers_to_rows_that_have_killed_are_kept_until_they_are_whole():
    harness = Harness(make_stage())
    harness.read(2)
    harness.tell(Emitted(harness.call_of(1).id, harness.output(0, ["0.0"])))
    harness.passes(harness.call_of(harness.sink))
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    harness.all_ready()
    harness.read(2)
    harness.all_ready()
    call = harness.call_of(1)
    harness.released.clear()
    harness.tell(Emitted(call.id, harness.output(0, ["0.0"])))
    assert harness.said_of(Resume) == [Resume(call.worker, call.id)]
    assert not harness.calls_of(harness.sink)
    harness.tell(WorkerLost(call.worker, "killed"))
    assert not harness.reports("restart")  # the call alone is tried again
    assert [r.data for r in harness.released] == [["0.0"]]
    harness.all_ready()
    assert rows_of(harness.call_of(1)) == ["0.0", "0.1"]
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 2


def test_a_stateful_stage_forgets_a_unit_that_was_given_up_although_only_an_earlier_attempt_reached_it():
    harness = Harness(make_stage("dedup"))
    harness.tell(Emitted(harness.call_of(SOURCE).id, harness.output(0, ["0.0"])))
    worker = harness.call_of(1).worker
    for replay in (True, None, False):
        harness.tell(Failed(harness.call_of(SOURCE).id, "OSError: truncated"))
        told = [f.replay for f in harness.said_of(Discard) if f.worker == worker]
        assert told == ([] if replay is None else [replay])


def test_a_sinks_death_starts_only_its_own_units_again():
    harness = Harness(units=2)
    first, second = harness.calls_of(SOURCE)
    for row in ("0.0", "0.1"):
        harness.tell(Emitted(first.id, harness.output(0, [row])))
    sinks = harness.state.operators[harness.sink]
    sinks.limit = 1  # it is behind, so the next unit gets a worker of its own
    harness.tell(Done(second.id, harness.output(1, ["1.0"]), {1: {0: Counts(rows_in=1, out={"out": 1})}}))
    harness.all_ready()
    sinks.limit = 1 << 30
    one, other = harness.calls_of(harness.sink)
    assert one.worker != other.worker
    harness.tell(WorkerLost(other.worker, "killed"))
    assert [harness.state.units[u].attempt for u in range(len(harness.state.units.given))] == [0, 1]
    harness.tell(Done(first.id, (), {0: {0: Counts(rows_in=2, out={"out": 2})}}))
    assert sorted((c.unit, c.attempt) for c in harness.finish()) == [(0, 0), (1, 1)]


def test_what_a_sink_began_for_a_given_up_attempt_is_forgotten():
    harness = Harness(make_stage(), cpus=1)
    harness.read(2)
    harness.passes(harness.call_of(1))
    harness.passes(harness.call_of(harness.sink))
    flush = harness.call_of(harness.sink)
    harness.tell(Failed(flush.id, "OSError: no route to host"))
    assert harness.said_of(Discard) == [Discard(flush.worker, 0, 0)]
    commit, = harness.finish()
    assert commit.attempt == 1


def test_a_stateful_workers_death_starts_again_what_it_had_seen_and_recalls_what_is_committed():
    harness = Harness(make_stage("dedup"), units=3, cpus=2)
    harness.read(1, unit=0)
    while not harness.said_of(Commit):
        harness.passes(next(c for c in harness.calls if c.kind != "read"))
    harness.read(1, unit=1)
    harness.tell(WorkerLost(harness.workers[1][0], "killed"))
    assert harness.state.units.committed() == (0,)
    assert [harness.state.units[u].attempt for u in (1, 2)] == [1, 0]
    assert len(harness.finish()) == 2
    assert [a.restore for a in harness.starts if a.operator == 1] == [(), (0,)]


# -- setups -------------------------------------------------------------------------------------------------------


def test_a_setup_that_fails_three_times_stops_the_run_and_says_why():
    harness = Harness(make_stage(), start=False)
    harness.tell(*[WorkerReady(w) for w in harness.workers[SOURCE] + harness.workers[harness.sink]])
    harness.read(1)
    for _ in range(3):
        assert harness.scheduler.stopped is None
        harness.tell(WorkerLost(harness.workers[1][0], "CUDA is not there", setup=True))
    assert harness.scheduler.stopped.message == "op1.0 cannot be set up: CUDA is not there"


def test_a_setup_that_cannot_work_stops_the_run_at_once():
    harness = Harness(make_stage(), start=False)
    harness.tell(WorkerLost(harness.workers[1][0], "pip install 'curator-image[gpu]'", setup=True, fatal=True))
    assert harness.scheduler.stopped.message == "op1.0 cannot be set up: pip install 'curator-image[gpu]'"


def test_setups_that_fail_now_and_then_stop_nothing():
    harness = Harness(make_stage(), cpus=1)
    harness.read(1000)
    for _ in range(3):
        harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
        for _ in range(2):
            harness.tell(WorkerLost(harness.workers[1][0], "no memory", setup=True))
        harness.all_ready()
    assert harness.scheduler.stopped is None


def test_more_workers_start_side_by_side_where_there_is_work_for_them():
    harness = Harness(make_stage(), cpus=8)
    harness.read(1000)
    assert len(harness.workers[1]) == 2  # the first one works, and nothing is known yet
    harness.tell(Done(harness.call_of(1).id, (), {0: {0: Counts(rows_in=FIRST_ROWS, absorbed=FIRST_ROWS)}}, FIRST_ROWS * 0.1))
    assert len(harness.workers[1]) > 4


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_unit_that_cannot_be_read_ends_as_one_failed_record():
    harness = Harness()
    for best_effort in (False, False, True):
        assert harness.call_of(SOURCE).best_effort == best_effort
        harness.tell(Failed(harness.call_of(SOURCE).id, "OSError: truncated"))
    piece, = harness.call_of(harness.sink).slices
    assert piece.ref is None
    assert piece.reason.error == "OSError: truncated"
    commit, = harness.finish()
    assert commit.counts["op0.0"].rows_in == commit.counts["op0.0"].failed == commit.counts["failed/0.0"].rows_in == 1


def test_failures_elsewhere_do_not_make_a_unit_unreadable():
    harness = Harness(make_stage())
    for _ in range(2):
        harness.read(1)
        harness.passes(harness.call_of(1))
        harness.tell(Failed(harness.call_of(harness.sink).id, "OSError: slow down"))
    harness.tell(Failed(harness.call_of(SOURCE).id, "OSError: slow down"))
    assert not harness.call_of(SOURCE).best_effort
    commit, = harness.finish()
    assert commit.counts["op0.0"].failed == 0


def test_a_sink_that_fails_three_times_on_a_unit_stops_the_run():
    harness = Harness()
    for _ in range(3):
        harness.read(1)
        harness.tell(Failed(harness.call_of(harness.sink).id, "OSError: no space", "Traceback ..."))
    assert harness.scheduler.stopped.message == "write failed 3 times on unit 0: OSError: no space\nTraceback ..."
    assert not harness.said_of(Submit)
    assert not harness.said_of(Commit)


def test_nothing_is_committed_with_rows_missing_when_a_run_stops_over_them():
    """The last rows of the unit are in the call that fails."""
    harness = Harness(make_stage("dedup"))
    for _ in range(3):
        harness.read(1)
        harness.tell(Failed(harness.call_of(1).id, "MemoryError"))
    assert harness.scheduler.stopped.message.startswith("op1.0 failed 3 times")
    assert not harness.said_of(Commit)
    assert not harness.said_of(Submit)


def test_a_unit_that_never_gets_finished_stops_the_run_though_it_is_not_to_blame():
    """A sink dies again and again, always when it has nothing to do."""
    harness = Harness(cpus=2)
    for attempt in range(20):
        assert harness.scheduler.stopped is None
        harness.all_ready()
        harness.tell(Emitted(harness.call_of(SOURCE).id, harness.output(0, ["0.0"])))
        harness.all_ready()
        worker = harness.call_of(harness.sink).worker
        harness.passes(harness.call_of(harness.sink))
        harness.tell(WorkerLost(worker, "killed"))
        assert harness.state.units[0].attempt == attempt + 1
    assert harness.scheduler.stopped.message == "unit 0 was begun 20 times and not once finished: the worker died: killed"


def two_nodes(*stages, budget: int = 1 << 30) -> tuple[Harness, Call]:
    """A harness of two nodes whose source reads."""
    harness = Harness(*stages, nodes={n: Node(cpus=1, budget_bytes=budget) for n in range(2)})
    return harness, harness.call_of(SOURCE)


def test_a_unit_whose_rows_lie_on_a_node_that_goes_starts_again_at_once():
    """Not only when somebody wants them and cannot get them."""
    harness, call = two_nodes(make_stage())
    other = 1 - call.node
    ref = Ref(["0.0"], 1, 5000, other)
    harness.state.operators[1].limit = harness.state.operators[2].limit = 1 << 30
    harness.tell(Done(call.id, (Output(0, "out", 0, ref),), {0: {0: Counts(rows_in=1, out={"out": 1})}}))
    for running in harness.calls_of(1):
        harness.tell(WorkerLost(running.worker, "killed"))  # so that the rows wait
    assert harness.state.units[0].attempt == 0
    harness.tell(NodeDown(other, "power"))
    assert harness.state.units[0].attempt == 1


def test_a_node_that_holds_all_it_may_takes_no_call_that_would_send_more():
    harness, call = two_nodes(make_stage(), budget=20_000)
    for operator in harness.state.operators:
        operator.limit = 1 << 30
    outputs = tuple(Output(0, "out", 0, Ref(["0.0"], 1, 6000, call.node)) for _ in range(3))
    harness.tell(Emitted(call.id, outputs))
    harness.all_ready()
    assert call.paused  # another 18,000 bytes would be too many for its node, though not for the queue


def test_nodes_that_go_again_and_again_do_not_end_a_run():
    harness = Harness(make_stage(), cpus=2)
    for number in range(30):
        harness.all_ready()
        assert harness.call_of(SOURCE)
        harness.tell(NodeDown(number, "power"))
        harness.tell(NodeUp(number + 1, Node(cpus=2)))
    commit, = harness.finish()
    assert commit.attempt == 30


def test_a_worker_that_does_not_end_when_asked_is_killed_after_a_while():
    """Its GPU is wanted by the next stage, which need not wait for a `close` that hangs."""
    harness = Harness(make_stage(gpus=1), make_stage(gpus=1), gpus=1)
    harness.read(5)
    harness.passes(harness.call_of(1))
    stop, = harness.said_of(StopWorker)
    assert not stop.kill
    assert not harness.calls_of(2)
    harness.tick(CLOSE_S - 0.1)
    assert not harness.said_of(StopWorker)
    assert harness.scheduler.deadline() <= CLOSE_S
    harness.tick(CLOSE_S)
    assert harness.said_of(StopWorker) == [StopWorker(stop.worker, kill=True)]
    harness.all_ready()
    assert harness.calls_of(2)


def test_a_failure_that_no_retry_can_mend_stops_the_run_at_once():
    harness = Harness()
    harness.read(1)
    harness.tell(Failed(harness.call_of(harness.sink).id, "the disk is full", fatal=True))
    assert harness.scheduler.stopped.message == "the disk is full"
    assert all(s.kill for s in harness.said_of(StopWorker))


def test_a_call_that_failed_as_a_whole_is_tried_again_and_halved():
    harness = Harness(make_stage())
    harness.read(2)
    for _ in range(2):
        harness.tell(Failed(harness.call_of(1).id, "MemoryError"))
    assert sorted(rows_of(c)[0] for c in harness.calls_of(1)) + [s.ref.data[s.start] for g in harness.state.operators[1].groups
                                                              for s in g.slices] == ["0.0", "0.1"]
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 2


@pytest.mark.parametrize(("max_failed", "before", "stops"), [(1, (0, 0), True), (3, (0, 0), False), (3, (9, 2), True),
                                                             (0.001, (0, 0), True), (0.01, (0, 0), False),
                                                             (0.01, (5000, 49), True), (0.01, (5000, 40), False)])
def test_max_failed_is_a_number_or_a_share_and_counts_what_earlier_runs_committed(max_failed, before, stops):
    harness = Harness(max_failed=max_failed, before=before)
    harness.tell(Done(harness.call_of(SOURCE).id, harness.output(0, ["a", "b"], port="failed"),
                    {0: {0: Counts(rows_in=2, failed=2)}}))
    assert (harness.scheduler.stopped is not None) == stops


def test_what_a_given_up_attempt_failed_does_not_count():
    harness = Harness()
    for _ in range(2):
        harness.tell(Done(harness.call_of(SOURCE).id, harness.output(0, ["a", "b"], port="failed"),
                        {0: {0: Counts(rows_in=2, failed=2)}}))
        assert (harness.state.read, harness.state.failed) == (2, 2)
        harness.all_ready()
        harness.tell(WorkerLost(harness.call_of(harness.sink).worker, "killed"))
        harness.all_ready()
        assert (harness.state.read, harness.state.failed) == (0, 0)


# -- time limits --------------------------------------------------------------------------------------------------


def test_a_call_over_its_time_limit_ends_with_its_worker():
    harness = Harness(make_stage(timeout_s=50.0))
    assert harness.scheduler.deadline() is None
    harness.read(1)
    call = harness.call_of(1)
    assert harness.scheduler.deadline() == 50.0
    assert not harness.tick(49.9)
    assert StopWorker(call.worker, kill=True) in harness.tick(50.0)
    harness.all_ready()
    harness.tick(harness.scheduler.deadline())
    assert harness.reports("failed") == ["a record of unit 0 failed in op1.0: a call took longer than its limit of 50 s"]


def test_a_call_that_moves_gets_its_time_anew_and_one_that_is_paused_has_all_the_time():
    harness = Harness(make_stage(timeout_s=50.0))
    harness.read(1)
    call = harness.call_of(1)
    harness.now = 30.0
    harness.tell(Progress(call.id))
    assert harness.scheduler.deadline() == 80.0
    harness.state.operators[harness.sink].limit = 0
    harness.tell(Emitted(call.id, harness.output(0, ["0.0#1"])))
    assert call.paused
    assert harness.scheduler.deadline() is None
    harness.now = 100.0
    harness.passes(harness.call_of(harness.sink))
    assert harness.said_of(Resume)
    assert harness.scheduler.deadline() == 150.0


# -- what comes too late ------------------------------------------------------------------------------------------


def test_what_a_given_up_worker_says_is_ignored_and_its_batches_are_released():
    harness = Harness(make_stage())
    harness.read(2)
    call = harness.call_of(1)
    harness.tell(WorkerLost(call.worker, "killed"))
    for event in (Done(call.id, harness.output(0, ["a"]), {0: {0: Counts(rows_in=1, out={"out": 1})}}, 0.1),
                  Emitted(call.id, harness.output(0, ["b"]))):
        assert [a.ref for a in harness.tell(event)] == [event.outputs[0].ref]
    for event in (Failed(call.id, "no"), WorkerReady(call.worker), WorkerLost(call.worker, "again"), Progress(call.id)):
        assert harness.tell(event) == []
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 2


def test_an_answer_to_a_given_up_attempt_is_released_and_not_counted():
    harness = Harness(make_stage())
    harness.read(2)
    call = harness.call_of(1)
    harness.state.operators[1].workers_max = 1
    restart(harness.state, [harness.state.units[0]], "a test says so")
    harness.passes(call)
    assert not harness.state.units[0].counts
    assert harness.state.live_bytes == 0
    commit, = harness.finish()
    assert (commit.attempt, commit.counts["written"].rows_in) == (1, 3)


def test_rows_behind_a_death_are_dropped_when_their_unit_has_started_again():
    harness = followed()
    restart(harness.state, [harness.state.units[0]], "a test says so")
    harness.tell(WorkerLost(harness.call_of(1).worker, "killed"))
    assert not harness.state.operators[1].rows
    commit, = harness.finish()
    assert commit.counts["written"].rows_in == 3


def test_what_comes_after_the_end_is_released():
    harness = Harness(make_stage())
    call = harness.call_of(SOURCE)
    harness.tell(Stop("interrupted", "stopped by Ctrl-C"))
    event = Done(call.id, harness.output(0, ["a"]))
    assert harness.tell(event) == [Release(event.outputs[0].ref)]
    assert harness.tick(1e9) == []


def test_a_stop_ends_every_worker_at_once():
    harness = Harness(make_stage())
    harness.read(3)
    alive = sorted(w for workers in harness.workers.values() for w in workers)
    harness.tell(Stop("interrupted", "stopped by Ctrl-C"))
    assert harness.scheduler.stopped.message == "stopped by Ctrl-C"
    assert sorted(s.worker for s in harness.said_of(StopWorker) if s.kill) == alive
