"""The runtime on a real Ray cluster of two nodes, which share this machine."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from math import inf
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupNear

from curator import CuratorError, Resources, Stage
from curator.api.resources import Place
from curator.engine.events import CoresUsed, NodeCores, NodeDown, NodeUp, Release, Stop, StopWorker, WorkerLost, WorkerReady
from curator.engine.protocol import DataLost, Done
from curator.front import from_source
from curator.stages import Parquet
from tests.engine.driven import Driven, inline, job_of, rows, text_batch
from tests.engine.small_stages import (
    FirstOfText,
    Frames,
    JsonFiles,
    MeanFrame,
    NoSetup,
    Shout,
    Trouble,
    Weights,
    kept_aside,
    lines,
    wait_until,
    words,
    write_lines,
    written,
)
from tests.engine.test_gang import SumOverRanks
from tests.engine.test_ray_option import ended, recipe_in
from tests.engine.test_scripts import CLASSES, GO, check
from tests.engine.test_scripts import run as run_script

pytest.importorskip("ray")
import ray
from ray.cluster_utils import Cluster
from ray.experimental import internal_kv

from curator.runtime import ray as runtime_ray
from curator.runtime.ray import RayRuntime, connect

pytestmark = pytest.mark.ray


@dataclass(kw_only=True)
class Device(Stage):
    """Adds `device`: what CUDA_VISIBLE_DEVICES says in its worker."""

    resources = Resources(gpus=1)

    def process(self, batch):
        return batch.with_columns({"device": [os.environ["CUDA_VISIBLE_DEVICES"]] * len(batch)})


@dataclass(kw_only=True)
class Sleeps(Stage):
    """Writes down its worker's number and its folders, and does not come to an end."""

    told: str

    def process(self, batch):
        Path(self.told, str(os.getpid())).touch()
        time.sleep(3600)


@pytest.fixture(scope="session")
def cluster():
    """Two nodes of two cores, the first with four GPUs that nobody looks at."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="cur_ray_", dir="/tmp") as folder:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_TMPDIR", folder)
        Path(folder, "ray").mkdir()
        made = Cluster()
        made.add_node(num_cpus=2, num_gpus=4, include_dashboard=False, object_store_memory=100 << 20)
        made.add_node(num_cpus=2, object_store_memory=100 << 20)
        yield made
        made.shutdown()


@pytest.fixture
def start(cluster, tmp_path):
    """Makes a runtime for stages; after the test nothing of it is left."""
    made, left, leave = [], [], []

    def make(*stages, cores=None, nodes=2, **options):
        leave.append(connect(cluster.address, cores))
        runtime = RayRuntime(job_of(tmp_path, *stages), cores, **options)
        made.append(runtime)
        # What the test before this one held may not be free yet.
        wait_until(lambda: runtime.wait(0.05) is not None and len(runtime.nodes) == nodes, 60)
        for member in runtime.members.values():
            left.extend(on(member, folders_of))
        return Driven(runtime)

    yield make
    for one in made:
        one.close()
    for disconnect in leave:
        disconnect()
    assert not ray.is_initialized()
    wait_until(lambda: not any(Path(folder).exists() for folder in left))


def folders_of(actor):
    return list(actor.agent.processes.folders)


def on(member, function):
    """What a function of an agent's actor gives."""
    return ray.get(member.actor.__ray_call__.remote(function))


def idle(one):
    """Wait until the agents have nothing to do and hold no copies."""
    def busy():
        one.listen()
        return sum(on(m, lambda a: len(a.agent.copies) + len(a.agent.letters)) for m in one.runtime.members.values())

    wait_until(lambda: not busy())


# -- nodes --------------------------------------------------------------------------------------------------------


class Holder:
    """An actor of somebody else."""

    def ping(self):
        return 0


def strangers_on(cluster, count, cpus):
    """Actors of somebody else that hold so many cores each."""
    ray.init(address=cluster.address, logging_level="ERROR")
    made = [ray.remote(num_cpus=cpus)(Holder).remote() for _ in range(count)]
    ray.get([one.ping.remote() for one in made])
    return made


def test_each_node_is_leased_with_what_is_free_on_it(start):
    one = start(Shout())
    assert sorted((n.cpus, n.gpus) for n in one.runtime.nodes.values()) == [(2, 0), (2, 0)]
    assert ray.available_resources().get("CPU", 0) == 0
    assert ray.available_resources()["GPU"] == 4


def test_no_more_cores_are_leased_than_the_run_may_use(start):
    one = start(Shout(), cores=1, nodes=1)
    assert [n.cpus for n in one.runtime.nodes.values()] == [1]


@pytest.mark.slow
def test_what_others_hold_is_left_to_them_and_joins_when_it_is_free(cluster, start):
    [stranger] = strangers_on(cluster, 1, cpus=2)
    one = start(Shout(), nodes=1)
    assert [n.cpus for n in one.runtime.nodes.values()] == [2]
    ray.kill(stranger)
    joined = one.until(NodeUp)
    assert joined.node.cpus == 2
    one.start(1, 0, Place(joined.number))
    assert one.until(WorkerReady).worker == 1
    one.runtime.close()
    ray.shutdown()


@pytest.mark.slow
def test_cores_that_others_leave_on_a_node_of_ours_are_leased_too_and_a_wait_says_for_what(cluster, start):
    strangers = strangers_on(cluster, 4, cpus=1)
    told = []

    def leave_one(kind, text):
        told.append((kind, text))
        ray.kill(strangers.pop())

    one = start(Shout(), nodes=1, tell=leave_one)
    assert told == [("waiting", "waits for a free core: the Ray cluster has 4 cores on 2 nodes, none free")]
    assert [n.cpus for n in one.runtime.nodes.values()] == [1]
    for stranger in strangers:
        ray.kill(stranger)
    joined, grown = one.until(NodeUp), one.until(NodeCores)
    assert joined.number != grown.number
    wait_until(lambda: one.listen() is not None and [n.cpus for n in one.runtime.nodes.values()] == [2, 2], 60)
    one.start(1, 0, Place(joined.number))
    assert one.until(WorkerReady).worker == 1
    one.runtime.close()
    ray.shutdown()


def cores(one, most=inf):
    """What the run has now. To what it is asked it answers, as a scheduler would, that calls use so many cores of each node."""
    for event in one.listen():
        if isinstance(event, NodeCores):
            one.runtime.execute(CoresUsed(event.number, 0, min(most, event.node.cpus)))
    one.events.clear()
    return sum(n.cpus for n in one.runtime.nodes.values())


@pytest.mark.slow
def test_a_job_of_somebody_else_gets_a_core_that_it_waits_for_and_leaves_it_again(start):
    one = start(Shout())
    wait_until(lambda: cores(one) == 4, 60)
    stranger = ray.remote(num_cpus=1)(Holder).remote()
    answer = stranger.ping.remote()
    wait_until(lambda: cores(one) == 3 and ray.wait([answer], timeout=0)[0], 60)
    looks = one.runtime.members[0].looks
    wait_until(lambda: cores(one) and one.runtime.members[0].looks > looks + runtime_ray.GROW_LOOKS, 60)
    assert cores(one) == 3
    ray.kill(stranger)
    wait_until(lambda: cores(one) == 4, 60)


@pytest.mark.slow
def test_cores_that_no_call_uses_are_left_to_a_run_that_wants_more_and_not_taken_again(start):
    told = []
    one = start(Shout(), tell=lambda kind, text: told.append(text))
    wait_until(lambda: cores(one, most=1) == 4, 60)
    internal_kv._internal_kv_put(b"other", b"[2, true]", namespace=runtime_ray.CLAIMS)  # it has its share
    try:
        wait_until(lambda: cores(one, most=1) == 2, 60)
        wait_until(lambda: cores(one, most=1) == 2 and ray.available_resources().get("CPU") == 2, 60)
        looks = one.runtime.members[0].looks
        wait_until(lambda: cores(one, most=1) and one.runtime.members[0].looks > looks + runtime_ray.GROW_LOOKS + 1, 60)
        assert cores(one, most=1) == 2
    finally:
        internal_kv._internal_kv_del(b"other", namespace=runtime_ray.CLAIMS)
    assert told[-1] == "gives 2 of 4 cores back, since others wait for some"


def test_gpus_are_leased_when_a_stage_wants_them_and_each_worker_sees_its_own(start):
    one = start(Device())
    number, node = next((k, n) for k, n in one.runtime.nodes.items() if n.gpus)
    assert node.gpus == 4
    visible = on(one.runtime.members[number], lambda a: os.environ["CUDA_VISIBLE_DEVICES"]).split(",")
    places = [(0,), (1,), (2, 3)]
    for worker, gpus in enumerate(places):
        one.start(worker, 0, Place(number, gpus))
        one.submit(worker, inline(text_batch("a")))
    told = {done.call: rows(done)[0]["device"] for done in (one.until(Done) for _ in places)}
    assert [told[i + 1] for i in range(3)] == [",".join(visible[g] for g in gpus) for gpus in places]


def test_a_stage_that_no_node_could_ever_run_is_an_error_that_names_both(start):
    with pytest.raises(CuratorError, match=r"s0 needs 5 GPUs.*largest node.*has 4"):
        start(Device().with_(resources=Resources(gpus=5)))


# -- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_goes_to_a_worker_on_another_node_and_leaves_no_copy(start):
    one = start(Frames(), MeanFrame())
    one.start(1, 0, Place(0))
    one.start(2, 1, Place(1))
    one.submit(1, inline(text_batch("a", "bb", "ccc")))
    made = one.until(Done).outputs[0].ref
    assert made.node == 0
    assert isinstance(made.data, str)
    one.submit(2, made, operator=1)
    one.submit(2, made, operator=1)
    for _ in range(2):
        assert [row["mean"] for row in rows(one.until(Done))] == [1.0, 2.0, 3.0]
    idle(one)
    one.runtime.execute(Release(made))
    wait_until(lambda: one.listen() is not None and not Path(made.data).exists())


@pytest.mark.slow
def test_calls_of_a_worker_keep_their_order_when_one_waits_for_its_batch(start):
    one = start(Frames(), Shout())
    one.start(1, 0, Place(0))
    one.start(2, 1, Place(1))
    one.submit(1, inline(text_batch("a")))
    far = one.until(Done).outputs[0].ref
    calls = [one.submit(2, ref, operator=1).id for ref in [inline(text_batch("b")), far, inline(text_batch("c")), far]]
    assert [one.until(Done).call for _ in calls] == calls


def test_a_batch_that_is_lost_is_told_in_its_turn_and_the_calls_after_it_run(start):
    one = start(Frames(), Shout())
    one.start(1, 0, Place(0))
    one.start(2, 1, Place(1))
    one.submit(1, inline(text_batch("a")))
    far = one.until(Done).outputs[0].ref
    Path(far.data).unlink()
    calls = [one.submit(2, ref, operator=1).id for ref in [inline(text_batch("b")), far, inline(text_batch("c"))]]
    told = [one.until((Done, DataLost)) for _ in calls]
    assert [type(e) for e in told] == [Done, DataLost, Done]
    assert [e.call for e in told] == calls
    assert "could not be fetched" in told[1].reason
    idle(one)


def test_what_a_killed_worker_waited_for_is_let_go(start):
    one = start(Frames(), Trouble(limit_s=60))
    one.start(1, 0, Place(0))
    one.start(2, 1, Place(1))
    one.submit(1, inline(text_batch("hang")))
    far = one.until(Done).outputs[0].ref
    one.submit(2, far, operator=1)
    one.submit(2, far, operator=1)
    one.runtime.execute(StopWorker(2, kill=True))
    one.start(3, 1, Place(1))
    one.until(WorkerReady)
    idle(one)


def test_the_ranks_of_a_gang_meet_over_nodes(start):
    pytest.importorskip("torch")
    one = start(Frames(), SumOverRanks())
    one.start(1, 0, Place(0))
    one.start(2, 1, Place(0), Place(1), Place(1))
    for _ in range(2):
        one.until(WorkerReady)  # not before is anything submitted
    one.submit(1, inline(text_batch("a", "bb")))
    far = one.until(Done).outputs[0].ref
    call = one.submit(2, far, operator=1)
    done = one.until(Done)
    assert done.call == call.id
    assert done.counts[0][0].rows_in == 2
    one.submit(1, inline(text_batch("ccc")))  # the first rank has the batch, two must fetch it, and it cannot be fetched
    far = one.until(Done).outputs[0].ref
    Path(far.data).unlink()
    call = one.submit(2, far, operator=1)
    assert isinstance(one.until((DataLost, WorkerLost)), (DataLost, WorkerLost))
    idle(one)


# -- troubles of the cluster, and deaths ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_list_of_nodes_that_does_not_come_is_asked_for_again(start, monkeypatch):
    good, failed, told = ray.nodes, [], []

    def nodes():
        if not failed:
            failed.append(1)
            raise RuntimeError("the head is busy")
        return good()

    monkeypatch.setattr(ray, "nodes", nodes)
    one = start(Shout(), tell=lambda kind, text: told.append(kind))
    assert told.count("cluster_silent") == 1
    one.start(1, 0, Place(min(one.runtime.nodes)))
    one.submit(1, inline(text_batch("a")))
    failed.clear()
    assert rows(one.until(Done))[0]["loud"] == "A"
    monkeypatch.setattr(ray, "nodes", lambda: good() / 0)
    monkeypatch.setattr(runtime_ray, "SILENT_S", 0.5)
    assert "does not answer any more" in one.until(Stop).message


def test_a_worker_that_dies_is_told_with_the_step_that_it_was_in(start):
    one = start(Trouble())
    one.start(1, 0, Place(1))
    one.until(WorkerReady)
    one.submit(1, inline(text_batch("die")))
    lost = one.until(WorkerLost)
    assert (lost.worker, lost.setup, lost.step) == (1, False, 0)
    assert "SIGKILL" in lost.reason


def test_an_agent_that_dies_takes_its_node_down_once_and_comes_back_under_a_new_number(start):
    one = start(Frames(), Shout())
    one.start(1, 0, Place(0))
    one.start(2, 1, Place(1))
    one.submit(1, inline(text_batch("a")))
    far = one.until(Done).outputs[0].ref
    one.until(WorkerReady)
    folders = on(one.runtime.members[0], folders_of)
    os.kill(on(one.runtime.members[0], lambda a: os.getpid()), signal.SIGKILL)
    down = one.until(NodeDown)
    assert down.number == 0
    call = one.submit(2, far, operator=1)  # its batch went with the node
    assert one.until(DataLost).call == call.id
    up = one.until(NodeUp)
    assert up.number not in (0, 1)
    one.start(3, 0, Place(up.number))
    wait_until(lambda: any(isinstance(e, WorkerReady) and e.worker == 3 for e in one.listen()))
    assert not [e for e in one.events if isinstance(e, (NodeDown, WorkerLost))]
    wait_until(lambda: not any(Path(folder).exists() for folder in folders))


@pytest.mark.slow
def test_a_node_that_goes_and_one_that_comes_are_told(cluster, start):
    third = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    one = start(Shout(), nodes=3)
    assert sorted(n.cpus for n in one.runtime.nodes.values()) == [1, 2, 2]
    number = next(k for k, n in one.runtime.nodes.items() if n.cpus == 1)
    cluster.remove_node(third)
    assert one.until(NodeDown).number == number
    fourth = cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    up = one.until(NodeUp)
    assert up.number > number
    one.start(1, 0, Place(up.number))
    one.submit(1, inline(text_batch("a")))
    assert rows(one.until(Done))[0]["loud"] == "A"
    one.runtime.close()
    cluster.remove_node(fourth)


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from tests.engine.small_stages import JsonFiles, lines
from tests.engine.test_ray import Sleeps
(lines({texts!r}) >> Sleeps(told={told!r}) >> JsonFiles(path={out!r})).run(ray={address!r}, check=False, workers=1)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_when_the_driver_is_gone_so_are_its_workers_and_their_memory(cluster, tmp_path, number):
    texts, told = write_lines(tmp_path / "in", a=["a"]), tmp_path / "told"
    told.mkdir()
    code = DRIVER.format(tests=str(Path(__file__).parents[2]), texts=str(texts), told=str(told), out=str(tmp_path / "out"),
                         address=cluster.address)
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until(lambda: list(told.iterdir()) or driver.poll() is not None, 60)
    assert driver.poll() is None, driver.stdout.read()
    worker = Path("/proc", next(told.iterdir()).name)
    fork_server = Path("/proc", (worker / "stat").read_text().rsplit(")", 1)[1].split()[1])
    folders = json.loads((fork_server / "cmdline").read_bytes().split(b"\0")[-2])["folders"]
    assert all(Path(folder).exists() for folder in folders)
    driver.send_signal(number)
    driver.communicate(timeout=60)
    wait_until(lambda: not worker.exists() and not fork_server.exists() and not any(Path(f).exists() for f in folders), 60)


# -- whole runs ---------------------------------------------------------------------------------------------------


def curate(texts, out, ray, **options):
    """Every kind of stage, with large batches on their way; gives the result, what was written, and ids by ending.

    Of equal texts any may be the first, on this machine too."""
    marks = out.with_name("marks")
    marks.mkdir(exist_ok=True)
    result = (lines(texts, batch=4) >> words >> FirstOfText() >> Trouble(marks=str(marks)) >> Frames() >> MeanFrame()
              >> JsonFiles(path=str(out))).named("all", out=str(out), max_failed=0.5).run(check=False, ray=ray, **options)
    records = written(out)
    duplicate = [{r["id"], r["duplicate_of"]} for r in kept_aside(out, "duplicate")]
    failed = [r["id"] for r in kept_aside(out, "failed")]
    return result, sorted((r["text"], r["words"], r["mean"]) for r in records), duplicate, failed


def texts_of(folder, files=6, lines=30):
    return write_lines(folder, **{f"f{f}": [f"f{f} line {n} " + "word " * (n % 7) for n in range(lines)] for f in range(files)})


def test_a_run_on_two_nodes_gives_what_it_gives_on_this_machine(cluster, tmp_path):
    texts = texts_of(tmp_path / "in")
    with (texts / "f1.txt").open("a") as file:
        file.write("die\nraise\nf1 line 3 word word word \n")
    here, there = curate(texts, tmp_path / "here", None, workers=2), curate(texts, tmp_path / "there", cluster.address)
    assert here[0].ok
    assert there[0].ok, there[0].stats["message"]
    assert there[1:] == here[1:]
    assert len(there[1]) == 180
    assert there[2:] == ([{"f1:3", "f1:32"}], ["f1:30", "f1:31"])
    told = (tmp_path / "there" / "_run" / "events.jsonl").read_text()
    assert "must see the folder" in told


def test_a_run_goes_on_when_a_node_goes_and_one_comes(cluster, tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{f}": ["sleep" for _ in range(40)] for f in range(8)})
    third = cluster.add_node(num_cpus=2, object_store_memory=100 << 20)
    out, later = tmp_path / "out", []

    def watch(snapshot):
        if snapshot["written"] > 20 and not later:
            cluster.remove_node(third)
            later.append(cluster.add_node(num_cpus=1, object_store_memory=100 << 20))

    result = (lines(texts, batch=4) >> Trouble() >> Frames() >> MeanFrame() >> JsonFiles(path=str(out))).run(
        check=False, ray=cluster.address, watch=watch)
    cluster.remove_node(later[0])
    assert result.ok, result.stats["message"]
    assert len(written(out)) == len({row["id"] for row in written(out)}) == 320
    events = [json.loads(line)["event"] for line in (out / "_run" / "events.jsonl").read_text().splitlines()]
    assert "node_down" in events


@dataclass(kw_only=True)
class Slow(Stage):
    """Takes its time with each record until there is a file `hurry`."""

    hurry: str

    def process(self, batch):
        for _ in batch.column("id"):
            if not Path(self.hurry).exists():
                time.sleep(0.1)
        return batch


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_second_run_gets_its_share_while_the_first_goes_on(cluster, tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{f}": [f"{f} {n}" for n in range(400)] for f in range(24)})
    few = write_lines(tmp_path / "few", **{f"f{f}": ["sleep" for _ in range(30)] for f in range(3)})

    def drive(name, stage, texts):
        code = DRIVER.replace("Sleeps(told={told!r})", stage).replace(
            "import Sleeps", "import Slow, Trouble").replace(", workers=1", "").format(
            tests=str(Path(__file__).parents[2]), texts=str(texts), out=str(tmp_path / name), address=cluster.address)
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def told(name, kind):
        log = tmp_path / name / "_run/events.jsonl"
        return [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == kind] if log.exists() else []

    first = drive("a", f"Slow(hurry={str(tmp_path / 'hurry')!r})", texts)
    wait_until(lambda: told("a", "unit_commit") or first.poll() is not None, 120)
    second = drive("b", "Trouble()", few)
    assert second.wait(180) == 0, second.stdout.read()
    assert first.poll() is None
    assert [line["text"] for line in told("a", "shared")] == ["gives 2 of 4 cores back, since others wait for some"]
    Path(tmp_path / "hurry").touch()
    assert first.wait(120) == 0, first.stdout.read()
    assert len(written(tmp_path / "b")) == 90
    assert sorted(row["text"] for row in written(tmp_path / "a")) == sorted(f"{f} {n}" for f in range(24) for n in range(400))


def test_a_stage_that_cannot_be_set_up_is_told_as_on_this_machine(cluster, tmp_path):
    texts = texts_of(tmp_path / "in", 1, 3)
    result = (lines(texts) >> NoSetup() >> JsonFiles(path=str(tmp_path / "out"))).run(check=False, ray=cluster.address)
    assert not result.ok
    assert "the model file is not there" in result.stats["message"]


@pytest.mark.slow
def test_near_duplicates_are_the_same_as_on_this_machine(cluster, tmp_path):
    """Four phases, three of them reductions, of which two are sharded over the nodes."""
    rng = random.Random(2)
    hashes = [rng.getrandbits(64) for _ in range(150)]
    hashes = [h ^ sum(1 << bit for bit in rng.sample(range(64), rng.randint(0, 3)))
              for h in hashes for _ in range(rng.randint(1, 4))]
    rng.shuffle(hashes)
    table = pa.table({"id": [f"r{number:03}" for number in range(len(hashes))], "phash": pa.array(hashes, pa.uint64())})
    for part in range(4):
        pq.write_table(table.slice(part * len(hashes) // 4, (part + 1) * len(hashes) // 4 - part * len(hashes) // 4),
                       tmp_path / f"{part}.parquet")
    found = []
    for name, options in (("here", {"workers": 0}), ("there", {"ray": cluster.address})):
        pipeline = from_source(Parquet(path=str(tmp_path / "*.parquet"))) >> DedupNear(column="phash", distance=6)
        result = (pipeline >> JsonFiles(path=str(tmp_path / name))).run(**options)
        gone = [r for p in (tmp_path / name / "duplicate/dedup.near").glob("*.parquet") for r in pq.read_table(p).to_pylist()]
        found.append(([r["id"] for r in written(tmp_path / name)],
                      sorted((r["id"], r["duplicate_of"], r["cluster"]) for r in gone)))
        assert result.records["in"] == len(hashes) == len(found[-1][0]) + len(gone)
    assert found[0] == found[1]
    assert len(found[0][0]) == 150


# -- the command line -----------------------------------------------------------------------------------------------


def test_the_environment_names_the_cluster(warm_start, cluster, tmp_path):
    told = ended(warm_start, "run", recipe_in(tmp_path), RAY_ADDRESS=cluster.address)
    assert told.returncode == 0, told.stderr
    assert "must see the folder" in (tmp_path / "out" / "_run" / "events.jsonl").read_text()


def test_setup_node_is_called_once_on_each_node_of_a_run(cluster, tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{i}": ["one", "two"] for i in range(8)})
    told = tmp_path / "told"
    told.mkdir()
    stage = Weights(told=str(told), workers=3, trouble="two nodes").with_(batch_size=1)  # of four cores on two nodes
    result = (lines(texts) >> stage >> JsonFiles(path=str(tmp_path / "out"))).run(check=False, ray=cluster.address)
    assert result.ok, result.stats["message"]
    assert len(written(tmp_path / "out")) == 16
    assert len(list(told.glob("setup-*"))) >= 3
    assert len(list(told.glob("node-*"))) == 2


@pytest.mark.slow
def test_all_classes_of_a_run_may_stand_in_its_script_also_on_a_cluster(cluster, tmp_path):
    go = GO.replace("workers=WORKERS", f"ray={cluster.address!r}")
    assert go != GO
    (tmp_path / "script.py").write_text(f"{CLASSES}\nOUT = {str(tmp_path / 'out')!r}\n{go}")
    check(run_script(["script.py"], tmp_path), tmp_path)
