"""What the scheduler says to each event, one at a time."""

from __future__ import annotations

from collections import Counter

import pytest
from world import chain, make_stage

from curator.counts import Counts
from curator.engine.dispatch import FIRST_ROWS
from curator.engine.events import (
    Call,
    Commit,
    Done,
    Emitted,
    Failed,
    Flushed,
    Forget,
    NodeDown,
    NodeUp,
    Output,
    Progress,
    Ref,
    Release,
    Report,
    Resume,
    StartWorker,
    Stop,
    StopWorker,
    Submit,
    WorkerLost,
    WorkerReady,
)
from curator.engine.scheduler import Scheduler
from curator.engine.state import CLOSE_S
from curator.plan import Target
from curator.resources import Node
from curator.stage import WrittenFile

SOURCE = 0


class Bench:
    """A scheduler in the hands of a test. `chain` gives the operators: the source is 0, the sinks are the last."""

    def __init__(self, *stages, units: int = 1, needed=None, steps=None, cpus: float = 8, gpus: int = 0, budget: int = 1 << 30,
                 start: bool = True, nodes=None, **given) -> None:
        self.operators = chain(*stages, steps=steps or {})
        self.sink = len(self.operators) - 1
        machine = Node(cpus=cpus, gpus=gpus, budget_bytes=budget)
        self.scheduler = Scheduler(self.operators, [(SOURCE, needed)] * units, nodes or {0: machine}, **given)
        self.state = self.scheduler.state
        self.now = 0.0
        self.calls: list[Call] = []  # given to workers and not answered
        self.workers: dict[int, list[int]] = {}  # alive, by operator
        self.said: list = []  # what the last event led to
        self.released: list[Ref] = []
        self.starts: list[StartWorker] = []
        self._take(self.scheduler.start(0.0))
        if start:
            self.all_ready()

    def _take(self, actions) -> None:
        self.said = actions
        for action in actions:
            if isinstance(action, Submit):
                self.calls.append(action.call)
            elif isinstance(action, StartWorker):
                self.workers.setdefault(action.operator, []).append(action.worker)
                self.starts.append(action)
            elif isinstance(action, StopWorker):
                self._gone(action.worker)
            elif isinstance(action, Release):
                self.released.append(action.ref)
        self.state.check()

    def _gone(self, worker: int) -> None:
        self.calls = [c for c in self.calls if c.worker != worker]
        for workers in self.workers.values():
            if worker in workers:
                workers.remove(worker)

    def tell(self, *events) -> list:
        for event in events:
            if isinstance(event, WorkerLost):
                self._gone(event.worker)
            elif isinstance(event, NodeDown):
                self.calls, self.workers = [], {}
            elif isinstance(event, (Done, Failed)):
                self.calls = [c for c in self.calls if c.id != event.call]
        self._take(self.scheduler.handle(events, self.now))
        return self.said

    def tick(self, now: float) -> list:
        self.now = now
        self._take(self.scheduler.tick(now))
        return self.said

    def all_ready(self) -> None:
        """Every worker that starts gets ready, until no more start."""
        while waiting := [w.id for w in self.state.workers.values() if not w.ready]:
            self.tell(*[WorkerReady(w) for w in waiting])

    def calls_of(self, operator: int) -> list[Call]:
        return [c for c in self.calls if c.operator == operator]

    def call_of(self, operator: int) -> Call:
        calls = self.calls_of(operator)
        assert calls, f"operator {operator} has no call\n{self.state.story()}"
        return calls[0]

    def said_of(self, kind: type) -> list:
        return [action for action in self.said if isinstance(action, kind)]

    def reports(self, kind: str) -> list[str]:
        return [r.text for r in self.said_of(Report) if r.kind == kind]

    # -- answers ------------------------------------------------------------------------------------------------

    def read(self, rows: int, row_bytes: int = 100, unit: int | None = None) -> None:
        """The source answers a read with so many rows."""
        call = next(c for c in self.calls_of(SOURCE) if unit is None or c.units[0][0] == unit)
        at = call.units[0][0]
        self.tell(Done(call.id, self.output(at, [f"{at}.{i}" for i in range(rows)], row_bytes),
                       {at: {0: Counts(rows_in=rows, out={"out": rows})}}))

    def output(self, unit: int, rows: list[str], row_bytes: int = 100, step: int = 0, port: str = "out") -> tuple[Output, ...]:
        nbytes = len(rows) * row_bytes
        return (Output(step, port, unit, len(rows), nbytes, Ref(rows, len(rows), nbytes)),) if rows else ()

    def passes(self, call: Call, seconds: float = 0.01) -> list:
        """A call answers every row on `out`; a sink's stores them; a flush gives a file."""
        if call.kind == "flush":
            return self.tell(Done(call.id, flushed=Flushed({0: [WrittenFile(f"file-{call.units[0]}", 1, 1)]})))
        outputs, counts = [], {}
        for piece in call.slices:
            rows = list(piece.ref.data[piece.start:piece.stop]) if piece.ref else ["note"]
            step = piece.target if call.operator == self.sink else 0
            got = counts.setdefault(piece.unit, {}).setdefault(step, Counts())
            got.add(Counts(rows_in=len(rows), out={"out": len(rows)}))
            if call.operator != self.sink:
                outputs.extend(self.output(piece.unit, rows))
        return self.tell(Done(call.id, tuple(outputs), counts, seconds))

    def finish(self) -> list[Commit]:
        """Everything goes well from here to the end; gives what was committed."""
        commits = self.said_of(Commit)
        while not self.scheduler.finished:
            self.all_ready()
            assert self.calls, self.state.story()
            call = self.calls[0]
            if call.kind == "read":
                self.read(3, unit=call.units[0][0])
            else:
                self.passes(call)
            commits += self.said_of(Commit)
        return commits


def rows_of(call: Call) -> list[str]:
    return [row for s in call.slices if s.ref is not None for row in s.ref.data[s.start:s.stop]]


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


def followed() -> Bench:
    """The worker of operator 1 has two short calls."""
    bench = Bench(make_stage(), cpus=1)
    bench.state.operators[1].workers_max, bench.state.operators[1].most_on = 4, {0: 4}
    bench.read(10_000)
    bench.passes(bench.call_of(1), seconds=FIRST_ROWS * 1e-5)
    bench.passes(bench.call_of(bench.sink))
    return bench


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


# -- deaths of workers --------------------------------------------------------------------------------------------


def test_rows_that_kill_are_halved_down_to_the_one_that_does_it():
    bench = Bench(make_stage())
    bench.read(FIRST_ROWS)
    answered: Counter[str] = Counter()
    deaths = 0
    while calls := bench.calls_of(1):
        if "0.5" in rows_of(calls[0]):
            deaths += 1
            bench.tell(WorkerLost(calls[0].worker, "killed by SIGSEGV"))
            bench.all_ready()
        else:
            answered.update(rows_of(calls[0]))
            bench.passes(calls[0])
    assert answered == Counter({f"0.{i}": 1 for i in range(FIRST_ROWS) if i != 5})
    assert deaths == 6  # all of them twice, then 8, 4, 2, 1
    noted = [s for c in bench.calls_of(bench.sink) for s in c.slices if s.note is not None] + \
        [s for lane in bench.state.operators[bench.sink].lanes.values() for s in lane.queue if s.note is not None]
    assert [s.ref.data[s.start:s.stop] for s in noted] == [["0.5"]]
    assert noted[0].target == 2
    assert noted[0].note.error == "the worker died: killed by SIGSEGV"
    commit, = bench.finish()
    assert commit.counts["op1.0"].failed == commit.counts["failed/1.0"].rows_in == 1
    assert commit.counts["written"].rows_in == FIRST_ROWS - 1


def test_a_row_fails_in_the_step_that_it_kills():
    bench = Bench(make_stage(), steps={1: 3})
    bench.read(1)
    for _ in range(2):
        bench.tell(WorkerLost(bench.call_of(1).worker, "killed", step=1))
        bench.all_ready()
    assert bench.call_of(bench.sink).slices[0].target == 3  # written, failed/0.0, failed/1.0, failed/1.1
    commit, = bench.finish()
    assert commit.counts["op1.0"].out == {"out": 1}
    assert commit.counts["op1.1"].failed == 1
    assert "op1.2" not in commit.counts


def test_the_call_that_ran_is_blamed_for_a_death_and_the_one_behind_it_is_not():
    bench = followed()
    operator = bench.state.operators[1]
    running, waiting = (rows_of(c) for c in bench.calls_of(1))
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    group, = operator.groups
    assert [row for s in group.slices for row in s.ref.data[s.start:s.stop]] == running
    first = operator.lanes[0].queue[0]
    assert first.ref.data[first.start] == waiting[0]
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 10_000


def test_rows_that_survive_alone_were_not_to_blame():
    bench = Bench(make_stage())
    bench.read(4)
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    bench.all_ready()
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 4


def test_a_death_is_not_blamed_on_a_row_whose_companions_were_given_up_meanwhile():
    bench = Bench(make_stage(batch_size=2), units=2)
    bench.read(1, unit=0)
    bench.read(1, unit=1)
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    bench.all_ready()
    assert len(rows_of(bench.call_of(1))) == 2
    bench.scheduler._restart([bench.state.units[1]], "a test says so")
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    assert not bench.reports("failed")
    assert sum(c.counts["written"].rows_in for c in bench.finish()) == 1 + 3


def test_rows_that_wait_to_be_tried_alone_go_with_their_unit():
    bench = Bench(make_stage())
    bench.read(4)
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    assert bench.state.operators[1].groups
    bench.scheduler._restart([bench.state.units[0]], "a test says so")
    assert not bench.state.operators[1].groups
    assert not bench.state.live_bytes
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 3


def test_an_idle_workers_death_costs_nothing():
    bench = Bench(make_stage(), cpus=1)
    bench.tell(WorkerLost(bench.workers[1][0], "killed"))
    commit, = bench.finish()
    assert commit.attempt == 0


def test_a_call_of_which_a_part_was_sent_on_takes_its_unit_with_it():
    bench = Bench(make_stage())
    bench.read(5)
    call = bench.call_of(1)
    bench.tell(Emitted(call.id, bench.output(0, ["0.0"])))
    bench.tell(WorkerLost(call.worker, "killed"))
    assert bench.reports("restart") == ["unit 0 starts again (attempt 2): the worker died: killed"]
    commit, = bench.finish()
    assert commit.attempt == 1
    assert commit.counts["written"].rows_in == 3


def test_answers_to_rows_that_have_killed_are_kept_until_they_are_whole():
    bench = Bench(make_stage())
    bench.read(2)
    bench.tell(Emitted(bench.call_of(1).id, bench.output(0, ["0.0"])))
    bench.passes(bench.call_of(bench.sink))
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    bench.all_ready()
    bench.read(2)
    bench.all_ready()
    call = bench.call_of(1)
    bench.released.clear()
    bench.tell(Emitted(call.id, bench.output(0, ["0.0"])))
    assert bench.said_of(Resume) == [Resume(call.worker, call.id)]
    assert not bench.calls_of(bench.sink)
    bench.tell(WorkerLost(call.worker, "killed"))
    assert not bench.reports("restart")  # the call alone is tried again
    assert [r.data for r in bench.released] == [["0.0"]]
    bench.all_ready()
    assert rows_of(bench.call_of(1)) == ["0.0", "0.1"]
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 2


def test_a_stateful_stage_forgets_a_unit_that_was_given_up_although_only_an_earlier_attempt_reached_it():
    bench = Bench(make_stage("dedup"))
    bench.tell(Emitted(bench.call_of(SOURCE).id, bench.output(0, ["0.0"])))
    worker = bench.call_of(1).worker
    for again in (True, None, False):
        bench.tell(Failed(bench.call_of(SOURCE).id, "OSError: truncated"))
        told = [f.again for f in bench.said_of(Forget) if f.worker == worker]
        assert told == ([] if again is None else [again])


def test_a_sinks_death_starts_only_its_own_units_again():
    bench = Bench(units=2)
    first, second = bench.calls_of(SOURCE)
    for row in ("0.0", "0.1"):
        bench.tell(Emitted(first.id, bench.output(0, [row])))
    sinks = bench.state.operators[bench.sink]
    sinks.limit = 1  # it is behind, so the next unit gets a worker of its own
    bench.tell(Done(second.id, bench.output(1, ["1.0"]), {1: {0: Counts(rows_in=1, out={"out": 1})}}))
    bench.all_ready()
    sinks.limit = 1 << 30
    one, other = bench.calls_of(bench.sink)
    assert one.worker != other.worker
    bench.tell(WorkerLost(other.worker, "killed"))
    assert [u.attempt for u in bench.state.units] == [0, 1]
    bench.tell(Done(first.id, (), {0: {0: Counts(rows_in=2, out={"out": 2})}}))
    assert sorted((c.unit, c.attempt) for c in bench.finish()) == [(0, 0), (1, 1)]


def test_what_a_sink_began_for_a_given_up_attempt_is_forgotten():
    bench = Bench(make_stage(), cpus=1)
    bench.read(2)
    bench.passes(bench.call_of(1))
    bench.passes(bench.call_of(bench.sink))
    flush = bench.call_of(bench.sink)
    bench.tell(Failed(flush.id, "OSError: no route to host"))
    assert bench.said_of(Forget) == [Forget(flush.worker, 0, 0)]
    commit, = bench.finish()
    assert commit.attempt == 1


def test_a_stateful_workers_death_starts_again_what_it_had_seen_and_recalls_what_is_committed():
    bench = Bench(make_stage("dedup"), units=3, cpus=2)
    bench.read(1, unit=0)
    while not bench.said_of(Commit):
        bench.passes(next(c for c in bench.calls if c.kind != "read"))
    bench.read(1, unit=1)
    bench.tell(WorkerLost(bench.workers[1][0], "killed"))
    assert [u.attempt for u in bench.state.units] == [0, 1, 0]
    assert len(bench.finish()) == 2
    assert [a.recall for a in bench.starts if a.operator == 1] == [(), (0,)]


# -- setups -------------------------------------------------------------------------------------------------------


def test_a_setup_that_fails_three_times_stops_the_run_and_says_why():
    bench = Bench(make_stage(), start=False)
    bench.tell(*[WorkerReady(w) for w in bench.workers[SOURCE] + bench.workers[bench.sink]])
    bench.read(1)
    for _ in range(3):
        assert bench.scheduler.stopped is None
        bench.tell(WorkerLost(bench.workers[1][0], "CUDA is not there", setup=True))
    assert bench.scheduler.stopped == "op1.0 cannot be set up: CUDA is not there"


def test_a_setup_that_cannot_work_stops_the_run_at_once():
    bench = Bench(make_stage(), start=False)
    bench.tell(WorkerLost(bench.workers[1][0], "pip install 'curator-image[gpu]'", setup=True, fatal=True))
    assert bench.scheduler.stopped == "op1.0 cannot be set up: pip install 'curator-image[gpu]'"


def test_setups_that_fail_now_and_then_stop_nothing():
    bench = Bench(make_stage(), cpus=1)
    bench.read(1000)
    for _ in range(3):
        bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
        for _ in range(2):
            bench.tell(WorkerLost(bench.workers[1][0], "no memory", setup=True))
        bench.all_ready()
    assert bench.scheduler.stopped is None


def test_more_workers_start_side_by_side_where_there_is_work_for_them():
    bench = Bench(make_stage(), cpus=8)
    bench.read(1000)
    assert len(bench.workers[1]) == 2  # the first one works, and nothing is known yet
    bench.tell(Done(bench.call_of(1).id, (), {0: {0: Counts(rows_in=FIRST_ROWS, absorbed=FIRST_ROWS)}}, FIRST_ROWS * 0.1))
    assert len(bench.workers[1]) > 4


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_unit_that_cannot_be_read_ends_as_one_failed_record():
    bench = Bench()
    for salvage in (False, False, True):
        assert bench.call_of(SOURCE).salvage == salvage
        bench.tell(Failed(bench.call_of(SOURCE).id, "OSError: truncated"))
    piece, = bench.call_of(bench.sink).slices
    assert piece.ref is None
    assert piece.note.error == "OSError: truncated"
    commit, = bench.finish()
    assert commit.counts["op0.0"].rows_in == commit.counts["op0.0"].failed == commit.counts["failed/0.0"].rows_in == 1


def test_failures_elsewhere_do_not_make_a_unit_unreadable():
    bench = Bench(make_stage())
    for _ in range(2):
        bench.read(1)
        bench.passes(bench.call_of(1))
        bench.tell(Failed(bench.call_of(bench.sink).id, "OSError: slow down"))
    bench.tell(Failed(bench.call_of(SOURCE).id, "OSError: slow down"))
    assert not bench.call_of(SOURCE).salvage
    commit, = bench.finish()
    assert commit.counts["op0.0"].failed == 0


def test_a_sink_that_fails_three_times_on_a_unit_stops_the_run():
    bench = Bench()
    for _ in range(3):
        bench.read(1)
        bench.tell(Failed(bench.call_of(bench.sink).id, "OSError: no space", "Traceback ..."))
    assert bench.scheduler.stopped == "write failed 3 times on unit 0: OSError: no space\nTraceback ..."
    assert not bench.said_of(Submit)
    assert not bench.said_of(Commit)


def test_nothing_is_committed_with_rows_missing_when_a_run_stops_over_them():
    """The last rows of the unit are in the call that fails."""
    bench = Bench(make_stage("dedup"))
    for _ in range(3):
        bench.read(1)
        bench.tell(Failed(bench.call_of(1).id, "MemoryError"))
    assert bench.scheduler.stopped.startswith("op1.0 failed 3 times")
    assert not bench.said_of(Commit)
    assert not bench.said_of(Submit)


def test_a_unit_that_never_gets_finished_stops_the_run_though_it_is_not_to_blame():
    """A sink dies again and again, always when it has nothing to do."""
    bench = Bench(cpus=2)
    for attempt in range(20):
        assert bench.scheduler.stopped is None
        bench.all_ready()
        bench.tell(Emitted(bench.call_of(SOURCE).id, bench.output(0, ["0.0"])))
        bench.all_ready()
        worker = bench.call_of(bench.sink).worker
        bench.passes(bench.call_of(bench.sink))
        bench.tell(WorkerLost(worker, "killed"))
        assert bench.state.units[0].attempt == attempt + 1
    assert bench.scheduler.stopped == "unit 0 was begun 20 times and not once finished: the worker died: killed"


def two_nodes(*stages, budget: int = 1 << 30) -> tuple[Bench, Call]:
    """A bench of two nodes whose source reads."""
    bench = Bench(*stages, nodes={n: Node(cpus=1, budget_bytes=budget) for n in range(2)})
    return bench, bench.call_of(SOURCE)


def test_a_unit_whose_rows_lie_on_a_node_that_goes_starts_again_at_once():
    """Not only when somebody wants them and cannot get them."""
    bench, call = two_nodes(make_stage())
    other = 1 - call.node
    ref = Ref(["0.0"], 1, 5000, other)
    bench.state.operators[1].limit = bench.state.operators[2].limit = 1 << 30
    bench.tell(Done(call.id, (Output(0, "out", 0, 1, 5000, ref),), {0: {0: Counts(rows_in=1, out={"out": 1})}}))
    for running in bench.calls_of(1):
        bench.tell(WorkerLost(running.worker, "killed"))  # so that the rows wait
    assert bench.state.units[0].attempt == 0
    bench.tell(NodeDown(other, "power"))
    assert bench.state.units[0].attempt == 1


def test_a_node_that_holds_all_it_may_takes_no_call_that_would_send_more():
    bench, call = two_nodes(make_stage(), budget=20_000)
    for operator in bench.state.operators:
        operator.limit = 1 << 30
    outputs = tuple(Output(0, "out", 0, 1, 6000, Ref(["0.0"], 1, 6000, call.node)) for _ in range(3))
    bench.tell(Emitted(call.id, outputs))
    bench.all_ready()
    assert call.held  # another 18,000 bytes would be too many for its node, though not for the queue


def test_nodes_that_go_again_and_again_do_not_end_a_run():
    bench = Bench(make_stage(), cpus=2)
    for number in range(30):
        bench.all_ready()
        assert bench.call_of(SOURCE)
        bench.tell(NodeDown(number, "power"))
        bench.tell(NodeUp(number + 1, Node(cpus=2)))
    commit, = bench.finish()
    assert commit.attempt == 30


def test_a_worker_that_does_not_end_when_asked_is_killed_after_a_while():
    """Its GPU is wanted by the next stage, which need not wait for a `close` that hangs."""
    bench = Bench(make_stage(gpus=1), make_stage(gpus=1), gpus=1)
    bench.read(5)
    bench.passes(bench.call_of(1))
    stop, = bench.said_of(StopWorker)
    assert not stop.kill
    assert not bench.calls_of(2)
    bench.tick(CLOSE_S - 0.1)
    assert not bench.said_of(StopWorker)
    assert bench.scheduler.deadline() <= CLOSE_S
    bench.tick(CLOSE_S)
    assert bench.said_of(StopWorker) == [StopWorker(stop.worker, kill=True)]
    bench.all_ready()
    assert bench.calls_of(2)


def test_a_failure_that_no_retry_can_mend_stops_the_run_at_once():
    bench = Bench()
    bench.read(1)
    bench.tell(Failed(bench.call_of(bench.sink).id, "the disk is full", fatal=True))
    assert bench.scheduler.stopped == "the disk is full"
    assert all(s.kill for s in bench.said_of(StopWorker))


def test_a_call_that_failed_as_a_whole_is_tried_again_and_halved():
    bench = Bench(make_stage())
    bench.read(2)
    for _ in range(2):
        bench.tell(Failed(bench.call_of(1).id, "MemoryError"))
    assert sorted(rows_of(c)[0] for c in bench.calls_of(1)) + [s.ref.data[s.start] for g in bench.state.operators[1].groups
                                                              for s in g.slices] == ["0.0", "0.1"]
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 2


@pytest.mark.parametrize(("max_failed", "before", "stops"), [(1, (0, 0), True), (3, (0, 0), False), (3, (9, 2), True),
                                                             (0.001, (0, 0), True), (0.01, (0, 0), False),
                                                             (0.01, (5000, 49), True), (0.01, (5000, 40), False)])
def test_max_failed_is_a_number_or_a_share_and_counts_what_earlier_runs_committed(max_failed, before, stops):
    bench = Bench(max_failed=max_failed, before=before)
    bench.tell(Done(bench.call_of(SOURCE).id, bench.output(0, ["a", "b"], port="failed"),
                    {0: {0: Counts(rows_in=2, failed=2)}}))
    assert (bench.scheduler.stopped is not None) == stops


def test_what_a_given_up_attempt_failed_does_not_count():
    bench = Bench()
    for _ in range(2):
        bench.tell(Done(bench.call_of(SOURCE).id, bench.output(0, ["a", "b"], port="failed"),
                        {0: {0: Counts(rows_in=2, failed=2)}}))
        assert (bench.scheduler.read, bench.scheduler.failed) == (2, 2)
        bench.all_ready()
        bench.tell(WorkerLost(bench.call_of(bench.sink).worker, "killed"))
        bench.all_ready()
        assert (bench.scheduler.read, bench.scheduler.failed) == (0, 0)


# -- time limits --------------------------------------------------------------------------------------------------


def test_a_call_over_its_time_limit_ends_with_its_worker():
    bench = Bench(make_stage(timeout_s=50.0))
    assert bench.scheduler.deadline() is None
    bench.read(1)
    call = bench.call_of(1)
    assert bench.scheduler.deadline() == 50.0
    assert not bench.tick(49.9)
    assert StopWorker(call.worker, kill=True) in bench.tick(50.0)
    bench.all_ready()
    bench.tick(bench.scheduler.deadline())
    assert bench.reports("failed") == ["a record of unit 0 failed in op1.0: a call took longer than its limit of 50 s"]


def test_a_call_that_moves_gets_its_time_anew_and_one_that_is_held_has_all_the_time():
    bench = Bench(make_stage(timeout_s=50.0))
    bench.read(1)
    call = bench.call_of(1)
    bench.now = 30.0
    bench.tell(Progress(call.id))
    assert bench.scheduler.deadline() == 80.0
    bench.state.operators[bench.sink].limit = 0
    bench.tell(Emitted(call.id, bench.output(0, ["0.0#1"])))
    assert call.held
    assert bench.scheduler.deadline() is None
    bench.now = 100.0
    bench.passes(bench.call_of(bench.sink))
    assert bench.said_of(Resume)
    assert bench.scheduler.deadline() == 150.0


# -- what comes too late ------------------------------------------------------------------------------------------


def test_what_a_given_up_worker_says_is_ignored_and_its_batches_are_released():
    bench = Bench(make_stage())
    bench.read(2)
    call = bench.call_of(1)
    bench.tell(WorkerLost(call.worker, "killed"))
    for event in (Done(call.id, bench.output(0, ["a"]), {0: {0: Counts(rows_in=1, out={"out": 1})}}, 0.1),
                  Emitted(call.id, bench.output(0, ["b"]))):
        assert [a.ref for a in bench.tell(event)] == [event.outputs[0].ref]
    for event in (Failed(call.id, "no"), WorkerReady(call.worker), WorkerLost(call.worker, "again"), Progress(call.id)):
        assert bench.tell(event) == []
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 2


def test_an_answer_to_a_given_up_attempt_is_released_and_not_counted():
    bench = Bench(make_stage())
    bench.read(2)
    call = bench.call_of(1)
    bench.state.operators[1].workers_max = 1
    bench.scheduler._restart([bench.state.units[0]], "a test says so")
    bench.passes(call)
    assert not bench.state.units[0].counts
    assert bench.state.live_bytes == 0
    commit, = bench.finish()
    assert (commit.attempt, commit.counts["written"].rows_in) == (1, 3)


def test_rows_behind_a_death_are_dropped_when_their_unit_has_started_again():
    bench = followed()
    bench.scheduler._restart([bench.state.units[0]], "a test says so")
    bench.tell(WorkerLost(bench.call_of(1).worker, "killed"))
    assert not bench.state.operators[1].rows
    commit, = bench.finish()
    assert commit.counts["written"].rows_in == 3


def test_what_comes_after_the_end_is_released():
    bench = Bench(make_stage())
    call = bench.call_of(SOURCE)
    bench.tell(Stop("stopped by Ctrl-C"))
    event = Done(call.id, bench.output(0, ["a"]))
    assert bench.tell(event) == [Release(event.outputs[0].ref)]
    assert bench.tick(1e9) == []


def test_a_stop_ends_every_worker_at_once():
    bench = Bench(make_stage())
    bench.read(3)
    alive = sorted(w for workers in bench.workers.values() for w in workers)
    bench.tell(Stop("stopped by Ctrl-C"))
    assert bench.scheduler.stopped == "stopped by Ctrl-C"
    assert sorted(s.worker for s in bench.said_of(StopWorker) if s.kill) == alive


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
    stages = Counter(u.stage for u in bench.state.units)
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
    assert any(u.stage == "unread" for u in bench.state.units)
    bench.tell(WorkerLost(bench.workers[1][0], "killed"))
    assert not any(u.stage == "unread" for u in bench.state.units)
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
