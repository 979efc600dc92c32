"""Gangs: one worker of several processes that get the same calls in the same order, and end together."""

import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from curator import Contract, Resources, Stage
from curator.api.resources import Place
from curator.engine.events import Release, StopWorker, WorkerLost, WorkerReady
from curator.engine.protocol import Done, Failed, Ref
from curator.runtime.local import LocalRuntime
from curator.worker.processes import Processes
from curator.worker.store import Store
from tests.engine.driven import Driven, inline, job_of, rows, text_batch
from tests.engine.small_stages import TOKEN, folders, orphans, wait_until
from tests.marks import soaked_after

GANG = Resources(cpus=2, gang=True)


@dataclass(kw_only=True)
class SumOverRanks(Stage):
    """Adds `total`: the sum over the ranks of (rank + 1) times the length of the text, by an all-reduce."""

    resources = GANG

    def contract(self) -> Contract:
        return Contract(needs={"text"}, adds={"total": pa.int64()})

    def setup(self, ctx) -> None:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (ctx.rank, ctx.world_size)
        self.rank = ctx.rank

    def process(self, batch):
        import torch

        mine = torch.tensor([(self.rank + 1) * len(t) for t in batch.column("text")], dtype=torch.int64)
        torch.distributed.all_reduce(mine)
        return batch.with_columns({"total": mine.tolist()})

    def close(self) -> None:
        import torch.distributed

        torch.distributed.destroy_process_group()


@dataclass(kw_only=True)
class Told(Stage):
    """Writes down what each rank is told and what it is called with; does what the text says, on one rank or on all."""

    folder: str
    resources = GANG

    def setup(self, ctx) -> None:
        self.rank, self.calls = ctx.rank, 0
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES")
        Path(self.folder, f"env-{ctx.rank}").write_text(" ".join(os.environ[n] or "none" for n in names))

    def process(self, batch):
        self.calls += 1
        text = batch.column("text")[0]
        with Path(self.folder, f"calls-{self.rank}").open("a") as file:
            file.write(f"{text}\n")
        if text == f"raise on {self.rank}":
            raise ValueError(f"rank {self.rank} cannot stand it")
        if text == f"die on {self.rank}":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == f"lose on {self.rank}":
            return batch.slice(0, 0)
        if text == f"hang on {self.rank}":
            wait_until(lambda: False, seconds=600)
        if text == f"wait on {self.rank}":
            wait_until(lambda: Path(self.folder, "go").exists(), seconds=60)
        return batch


class Gang(Driven):
    """A runtime with one gang of a stage."""

    def call(self, *texts, pad=0):
        """Call it with a batch; in shared memory if it is large."""
        batch = text_batch(*texts, pad=pad)
        if not pad:
            return self.submit(1, inline(batch))
        return self.submit(1, Ref(Store(list(self.runtime.processes.folders), "copy").put(batch), len(batch), 1, 0))


@pytest.fixture
def gang(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, str(tmp_path))
    made = []

    def make(stage, ranks):
        made.append(LocalRuntime(job_of(tmp_path, stage), Processes([type(stage).__module__])))
        one = Gang(made[-1])
        one.start(1, 0, *(Place(0, (rank,)) for rank in range(ranks)))
        return one

    yield make
    for one in made:
        one.close()
        one.processes.close()
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not folders(os.getpid())


@pytest.mark.parametrize("ranks", soaked_after(1, [2, 3]))
def test_ranks_compute_together_and_the_answer_of_rank_0_counts_once(gang, ranks):
    pytest.importorskip("torch")
    one = gang(SumOverRanks(), ranks)
    assert one.until(WorkerReady).worker == 1
    for texts in (["a", "bb"], ["ccc"]):
        call = one.call(*texts)
        done = one.until(Done)
        assert done.call == call.id
        assert [row["total"] for row in rows(done)] == [len(t) * ranks * (ranks + 1) // 2 for t in texts]
        assert done.counts[0][0].rows_in == len(texts)
    one.runtime.execute(StopWorker(1))
    assert one.until(WorkerLost).reason.endswith("exited with status 0")
    assert not one.events


def test_each_rank_has_the_environment_of_torchrun_and_the_devices_of_its_node(gang, tmp_path):
    one = gang(Told(folder=str(tmp_path)), 3)
    one.until(WorkerReady)
    told = [Path(tmp_path, f"env-{rank}").read_text().split() for rank in range(3)]
    port = told[0][5]
    assert told == [[str(rank), "3", str(rank), "3", "127.0.0.1", port, "0,1,2"] for rank in range(3)]
    with socket.socket() as free:
        free.bind(("", int(port)))


def test_all_ranks_get_the_same_calls_in_the_same_order(gang, tmp_path):
    one = gang(Told(folder=str(tmp_path)), 2)
    one.until(WorkerReady)
    texts = [str(n) for n in range(20)]
    calls = [one.call(text).id for text in texts]
    assert [one.until(Done).call for _ in texts] == calls
    assert [Path(tmp_path, f"calls-{rank}").read_text().split() for rank in range(2)] == [texts, texts]


def test_a_call_is_done_when_every_rank_has_read_what_it_was_given(gang, tmp_path):
    """When rank 0 has answered, the other may not even have opened the batch; it is released with the answer."""
    one = gang(Told(folder=str(tmp_path)), 2)
    one.until(WorkerReady)
    first = one.call("wait on 1")
    second = one.call("another", pad=1 << 20)
    wait_until(lambda: Path(tmp_path, "calls-0").exists() and "another" in Path(tmp_path, "calls-0").read_text())
    assert not [e for e in one.runtime.wait(0.2) if isinstance(e, Done)]
    Path(tmp_path, "go").touch()
    assert [one.until(Done).call, one.until(Done).call] == [first.id, second.id]
    one.runtime.execute(Release(second.slices[0].ref))
    assert not Path(second.slices[0].ref.data).exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_on_one_rank_ends_all_and_says_what_was_raised(gang, tmp_path, rank):
    one = gang(Told(folder=str(tmp_path)), 2)
    one.until(WorkerReady)
    one.call(f"raise on {rank}", "another")
    lost = one.until(WorkerLost)
    assert lost.reason == f"rank {rank}: ValueError: rank {rank} cannot stand it"
    assert (lost.setup, lost.fatal) == (False, False)
    assert Path(tmp_path, f"calls-{rank}").read_text().count("raise") == 1  # not tried again, not halved
    wait_until(lambda: not one.runtime.wait(0.05) and not one.runtime.processes.alive)
    assert not one.events


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_one_rank_is_the_death_of_the_worker(gang, tmp_path, rank):
    one = gang(Told(folder=str(tmp_path)), 2)
    one.until(WorkerReady)
    one.call(f"die on {rank}")
    lost = one.until(WorkerLost)
    assert (lost.worker, lost.setup) == (1, False)
    assert f"rank {rank}: killed by SIGKILL" in lost.reason
    wait_until(lambda: not one.runtime.wait(0.05) and not one.runtime.processes.alive)
    one.start(2, 0, Place(), Place())  # and another one can begin
    assert one.until(WorkerReady).worker == 2


def test_killing_a_gang_ends_all_its_ranks_and_no_event_follows(gang, tmp_path):
    one = gang(Told(folder=str(tmp_path)), 3)
    one.until(WorkerReady)
    one.call("hang on 1")
    wait_until(lambda: Path(tmp_path, "calls-1").exists())
    one.runtime.execute(StopWorker(1, kill=True))
    wait_until(lambda: not one.runtime.wait(0.05) and not one.runtime.processes.alive)
    assert not one.events


def test_a_broken_stage_in_a_gang_stops_the_run(gang, tmp_path):
    one = gang(Told(folder=str(tmp_path)), 2)
    one.until(WorkerReady)
    one.call("lose on 1")
    failed = one.until(Failed)
    assert failed.fatal
    assert "on no port" in failed.error


def test_a_gang_that_cannot_be_set_up_says_so_once(gang, tmp_path):
    one = gang(Told(folder=str(tmp_path / "not there")), 3)
    lost = one.until(WorkerLost)
    assert lost.setup
    assert "not there" in lost.reason
    wait_until(lambda: not one.runtime.wait(0.05) and not one.runtime.processes.alive)
    assert not one.events
