"""The operators of a plan on Ray Data: the same records as from our own runtime, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("ray.data")
import ray

from curator import CuratorError, Resources, Stage, as_map
from curator.engine.protocol import UnitInfo
from curator.io.files.folder import Folder
from curator.pipeline.plan import make_plan
from curator.run.raydata.dataset import pools_of
from curator.run.raydata.notes import Notes
from curator.run.raydata.work import Work, commit_of, from_rows, grouped, shared_out, to_row
from curator.run.raydata.worker import Group
from curator.stages import Checkpoint, Drop, Limit, Map
from tests.engine.on_ray_data import cluster_here, inline
from tests.engine.reductions import CountText
from tests.engine.small_stages import (
    Children,
    DropWord,
    FirstOfText,
    JsonFiles,
    NoSetup,
    Shout,
    Trouble,
    kept_aside,
    lines,
    wait_until,
    write_lines,
    written,
)
from tests.engine.test_device_lost import OnPlayedGPU

pytestmark = pytest.mark.ray


@dataclass(kw_only=True)
class Kills(Stage):
    """Ends its process, as far as a test can have that, at a record that says so."""

    def process(self, batch):
        if any("die" in text for text in batch.column("text")):
            raise KeyboardInterrupt
        return batch


@dataclass(kw_only=True)
class Counted(Stage):
    """Writes down which records it sees."""

    told: str

    def process(self, batch):
        with open(self.told, "a") as file:
            file.writelines(f"{name}\n" for name in batch.column("id"))
        return batch


@dataclass(kw_only=True)
class Aside(Shout):
    """Has actors of its own."""

    resources = Resources(cpus=0.5)


@dataclass(kw_only=True)
class Device(Shout):
    """Adds `device` too: what CUDA_VISIBLE_DEVICES says in its actor."""

    resources = Resources(gpus=1)

    def process(self, batch):
        time.sleep(0.2)
        assert self.gpus == (0,)
        device = [os.environ["CUDA_VISIBLE_DEVICES"]] * len(batch)
        return super().process(batch).with_columns({"device": device})

    def setup(self, ctx):
        self.gpus = ctx.gpus


# -- one actor ----------------------------------------------------------------------------------------------------------


def works(pipeline, folder):
    """The operators of its first phase, and its units as the driver sends them."""
    plan = make_plan(pipeline, "stream", str(folder))
    operators = plan.phases[0].operators
    units = operators[0].steps[0].stage.units()
    return operators, [Work(i, 0, None, UnitInfo(unit, f"part-{i}-0", 10)) for i, unit in enumerate(units)]


def sent(work):
    """A unit as it arrives elsewhere."""
    (found,), = from_rows(to_row([work]))
    return found


def through(operators, folder, work, notes, who="actor"):
    """Take a unit through all groups, each in a new process as often as one dies; gives it, and how many did."""
    deaths = 0
    for group in grouped(operators):
        row = to_row([work])
        while True:
            (work,), = from_rows(row)
            try:
                Group(group, Folder(str(folder)), {}, notes, f"{who} {group[0].name}", "node").work([work])
                break
            except KeyboardInterrupt:
                deaths += 1
    return work, deaths


def test_a_unit_goes_through_groups_of_operators_and_gives_what_the_ledger_wants(tmp_path):
    folder = write_lines(tmp_path / "in", a=["one", "bad two", "raise", "four"])
    made = lines(folder) >> DropWord() >> Trouble() >> Aside() >> JsonFiles()
    operators, (work,) = works(made, tmp_path / "out")
    assert [[o.kind for o in group] for group in grouped(operators)] == [["source", "map"], ["map"], ["sink"]]
    work, _ = through(operators, tmp_path, work, Notes())
    assert not work.parcels
    assert work.stop is None
    commit = commit_of(sent(work), operators)
    assert {name: c.rows_in for name, c in commit.counts.items() if "/" not in name} == {
        "lines": 4, "drop_word": 4, "trouble": 3, "aside": 2, "json_files": 2}
    assert {name: sum(f.rows for f in files) for name, files in commit.files.items()} == {
        "json_files": 2, "dropped/drop_word": 1, "failed/trouble": 1}
    assert commit.ran >= {"lines", "aside", "json_files", "failed/trouble"}
    again, _ = through(operators, tmp_path, works(made, tmp_path / "out")[1][0], Notes())
    paths = {f.path for one in (commit, commit_of(again, operators)) for files in one.files.values() for f in files}
    assert len(paths) == 6  # a task that Ray repeats writes over nothing


def test_the_row_that_kills_its_process_fails_and_no_other(tmp_path):
    folder = write_lines(tmp_path / "in", a=[f"line {i}" for i in range(6)] + ["die"] + ["more"])
    operators, (work,) = works(lines(folder) >> Shout() >> Kills() >> JsonFiles(), tmp_path / "out")
    work, deaths = through(operators, tmp_path, work, Notes())
    commit = commit_of(work, operators)
    assert deaths == 5  # once without care, then 8 rows, 4, 2 and 1
    assert commit.counts["kills"].failed == 1
    assert commit.counts["kills"].out == {"out": 7}
    assert [row["id"] for row in kept_aside(tmp_path / "out", "failed")] == ["a:6"]


def test_the_row_that_breaks_a_device_fails_in_its_step_and_no_other(tmp_path, monkeypatch):
    """An actor whose device is lost ends, as far as a test can have that."""
    def end(status):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setitem(sys.modules, "torch", None)
    folder = write_lines(tmp_path / "in", a=["one", "two", "hurt", "four"])
    operators, (work,) = works(lines(folder) >> Shout() >> OnPlayedGPU() >> JsonFiles(), tmp_path / "out")
    work, deaths = through(operators, tmp_path, work, Notes())
    commit = commit_of(work, operators)
    assert deaths == 4  # once without care, then 4 rows, 2 and 1
    assert commit.counts["on_played_gpu"].failed == 1
    assert commit.counts["on_played_gpu"].out == {"out": 3}
    (failed,) = kept_aside(tmp_path / "out", "failed")
    assert failed["id"] == "a:2"
    assert "device-side assert" in failed["error"]


def test_a_stateful_stage_that_dies_knows_what_it_said(tmp_path):
    folder = write_lines(tmp_path / "in", a=["x", "y"], b=["y", "z"])
    operators, (first, second) = works(lines(folder) >> FirstOfText() >> JsonFiles(), tmp_path / "out")
    notes = Notes()
    answers = {}
    for turn, work in (("first", first), ("second", second), ("again", works(
            lines(folder) >> FirstOfText() >> JsonFiles(), tmp_path / "out")[1][0])):
        done, _ = through(operators, tmp_path, work, notes)  # each time in a new process
        answers[turn] = commit_of(done, operators)
    out = {turn: commit.counts["first_of_text"].out.get("out") for turn, commit in answers.items()}
    assert out == {"first": 2, "second": 1, "again": 2}
    assert answers["second"].depends == {0}


def test_a_limit_that_is_reached_leaves_units_unread_but_not_those_it_took(tmp_path):
    folder = write_lines(tmp_path / "in", a=["1", "2", "3"], b=["4"], c=["5"])
    operators, units = works(lines(folder) >> Limit(records=2) >> JsonFiles(), tmp_path / "out")
    notes = Notes(frozenset({operators[1].index}))
    done = [through(operators, tmp_path, work, notes)[0] for work in (units[0], units[1], sent(units[0]))]
    assert [work.unread for work in done] == [False, True, False]
    assert notes.skips([0, 1, 2]) == {1, 2}


def test_a_stage_that_cannot_be_set_up_ends_the_run_and_keeps_what_failed(tmp_path):
    folder = write_lines(tmp_path / "in", a=["raise", "fine"])
    made = lines(folder) >> Trouble() >> NoSetup().with_(resources=Resources(cpus=2)) >> JsonFiles()
    operators, (work,) = works(made, tmp_path / "out")
    work, _ = through(operators, tmp_path, work, Notes())
    assert "the model file is not there" in work.stop.message
    assert [row["id"] for row in kept_aside(tmp_path / "out", "failed")] == ["a:0"]
    assert not written(tmp_path / "out/data")


def test_what_is_done_once_on_a_node_is_done_by_another_when_its_actor_dies_and_is_started_elsewhere(tmp_path):
    operators, _ = works(lines(write_lines(tmp_path / "in", a=["one"])) >> Shout() >> JsonFiles(), tmp_path / "out")
    notes = Notes()
    Group(operators, Folder(str(tmp_path)), {}, notes, "first", "node")
    assert notes.claim("model", "first", "node")
    assert notes.claim("model", "second", "node") is None
    Group(operators, Folder(str(tmp_path)), {}, notes, "first", "elsewhere")
    assert notes.claim("model", "second", "node")


def test_small_units_share_a_row_and_large_ones_do_not():
    def rows(sizes, workers):
        made = [Work(i, 0, None, UnitInfo(None, "", size)) for i, size in enumerate(sizes)]
        return [[work.unit for work in row] for row in shared_out(made, workers)]

    assert rows([10] * 16, 2) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    assert rows([10] * 3, 4) == [[0], [1], [2]]
    assert rows([9 << 20] * 16, 1) == [[i] for i in range(16)]


def test_pools_fit_the_cluster_or_say_why_not(tmp_path):
    made = lines(tmp_path) >> Shout().with_(resources=Resources(gpus=1)) >> Aside() >> JsonFiles()
    groups = grouped(make_plan(made, "stream", str(tmp_path / "out")).phases[0].operators)
    pools = pools_of(groups, [{"CPU": 2.0, "GPU": 1.0}], 100, None)
    assert sum(pool.cpus for pool in pools) <= 2
    apart = pools_of(groups, [{"CPU": 1.0}, {"CPU": 1.0}], 100, None)
    assert [pool.cpus for pool in apart] == [0.5, 0.5, 0.25, 0.5]  # no node holds two of 0.51
    assert [pool.gpus for pool in pools] == [0, 1, 0, 0]
    assert [pool.gpus for pool in pools_of(groups, [{"CPU": 2.0}], 100, None)] == [0] * 4
    roomy = pools_of(groups, [{"CPU": 16.0, "GPU": 2.0}] * 2, 100, None)
    assert roomy[1].most == 4
    assert all(pool.least == 1 for pool in roomy)
    twice = grouped(make_plan(lines(tmp_path) >> Shout().with_(resources=Resources(gpus=1)) >> Aside()
                              >> Shout(suffix="!").with_(resources=Resources(gpus=1), name="b") >> JsonFiles(),
                              "stream", str(tmp_path / "out")).phases[0].operators)
    with pytest.raises(CuratorError, match=r"shout, b need 2 GPUs at once, and this Ray cluster has 1"):
        pools_of(twice, [{"CPU": 8.0, "GPU": 1.0}], 100, None)


# -- a run, without Ray ---------------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch):
    """All that Ray Data is given is done in this process."""
    inline(monkeypatch)


def test_phases_side_outputs_and_stateful_stages_give_what_they_give_here(here, tmp_path):
    same_here_and_there(tmp_path)


def test_an_edit_behind_a_checkpoint_begins_there(here, tmp_path):
    folder, read = write_lines(tmp_path / "in", a=["one", "two"], b=["bad"]), tmp_path / "read"

    def run(suffix):
        made = lines(folder) >> Counted(told=str(read)) >> Checkpoint() >> Shout(suffix=suffix) >> DropWord() >> JsonFiles()
        return made.named("r", out=str(tmp_path / "out")).run(engine="ray-data", replace=True)

    run("")
    result = run("!")
    assert [row["loud"] for row in written(tmp_path / "out")] == ["ONE!", "TWO!"]
    assert len(read.read_text().splitlines()) == 3  # each record once
    assert {s["name"]: s["in"] for s in result.stats["stages"]}["lines"] == 3


def test_too_many_failures_stop_the_run_and_the_next_one_goes_on(here, tmp_path):
    folder = write_lines(tmp_path / "in", a=["raise", "raise", "one"], b=["two"])
    made = lines(folder) >> Trouble() >> JsonFiles()
    stopped = made.named("r", out=str(tmp_path / "out"), max_failed=1).run(engine="ray-data", check=False)
    assert stopped.stats["stopped_by"] == "max_failed"
    assert [row["id"] for row in kept_aside(tmp_path / "out", "failed")] == ["a:0", "a:1"]
    assert made.named("r", out=str(tmp_path / "out"), max_failed=5).run(engine="ray-data").ok


# -- on Ray ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    """One node, with two GPUs that nobody looks at."""
    with cluster_here(num_gpus=2):
        yield


def curate(folder, out, **options):
    """Side outputs, children, a barrier, a stage with actors of its own, and a stateful one."""
    made = lines(folder, batch=3) >> DropWord() >> Trouble() >> Children() >> CountText() >> Aside() >> FirstOfText()
    result = (made >> JsonFiles()).named("r", out=str(out), max_failed=100).run(check=False, **options)
    first = [(row["text"], row["loud"], row["count"]) for row in written(out)]
    stages = {s["name"]: (s["in"], s["out"], s["dropped"], s["duplicate"], s["failed"]) for s in result.stats["stages"]}
    aside = {end: [row["id"] for row in kept_aside(out, end)] for end in ("dropped", "failed")}
    return result, sorted(first), len(kept_aside(out, "duplicate")), aside, stages


def test_a_small_run_keeps_records_and_accounts(cluster, tmp_path):
    folder = write_lines(tmp_path / "in", a=["one", "bad two", "raise"], b=["four"])
    result = (lines(folder) >> DropWord() >> Trouble() >> Shout() >> JsonFiles()).named(
        "r", out=str(tmp_path / "out"), max_failed=5).run(engine="ray-data")
    assert [row["loud"] for row in written(tmp_path / "out")] == ["ONE", "FOUR"]
    assert result.records == {"in": 4, "written": 2, "dropped": 1, "failed": 1, "duplicate": 0} | result.records
    assert "cannot stand a:2" in str(result.first_errors[0])
    assert [row["id"] for row in kept_aside(tmp_path / "out", "failed")] == ["a:2"]


@pytest.mark.slow
def test_a_run_gives_what_it_gives_here(cluster, tmp_path):
    same_here_and_there(tmp_path)


def same_here_and_there(tmp_path):
    texts = {f"f{n}": [f"text {n} {i % 4}" for i in range(8)] + ["bad", "raise"] for n in range(3)}
    folder = write_lines(tmp_path / "in", **texts)
    here, there = curate(folder, tmp_path / "here", workers=0), curate(folder, tmp_path / "there", engine="ray-data")
    assert there[0].ok, there[0].stats["message"]
    assert there[1:] == here[1:]
    assert len(there[1]) == 12
    again = curate(folder, tmp_path / "there", engine="ray-data")
    assert again[0].stats["units"]["skipped"] == 3
    assert again[1:] == there[1:]
    write_lines(tmp_path / "in", f9=["new", "raise"])
    later, local = curate(folder, tmp_path / "there", engine="ray-data"), curate(folder, tmp_path / "here", workers=0)
    assert later[1:] == local[1:]


@pytest.mark.slow
def test_actors_get_gpus_of_their_own_and_shares_of_one(cluster, tmp_path):
    """Numbers, as Ray has them: no device is touched."""
    folder = write_lines(tmp_path / "in", **{f"f{n}": ["one", "two"] for n in range(12)})
    made = lines(folder) >> Device() >> DropWord().with_(resources=Resources(cpus=0.5, gpus=0.5)) >> JsonFiles()
    result = made.named("r", out=str(tmp_path / "out")).run(engine="ray-data")
    assert result.ok, result.stats["message"]
    assert len(written(tmp_path / "out")) == 24
    assert {row["device"] for row in written(tmp_path / "out")} <= {"0", "1"}
    device = Device().with_(resources=Resources(cpus=0, gpus=1))
    alone = (lines(folder) >> device >> JsonFiles()).named("r", out=str(tmp_path / "alone"))
    assert alone.run(engine="ray-data").ok
    assert {row["device"] for row in written(tmp_path / "alone")} == {"0", "1"}  # the pool grew to both


def in_shards(tmp_path):
    texts = {f"f{n}": [f"text {n} {i % 4}" for i in range(8)] + ["bad", "raise"] for n in range(6)}
    folder, out = write_lines(tmp_path / "in", **texts), tmp_path / "there"
    for shard in ("1/2", "2/2"):
        part, *_ = curate(folder, out, engine="ray-data", shard=shard)
        assert part.ok, part.stats["message"]
    here, there = curate(folder, tmp_path / "here", workers=0), curate(folder, out, engine="ray-data")
    assert there[0].ok, there[0].stats["message"]
    assert there[1:] == here[1:]
    assert len(there[1]) == 24
    assert not list((out / "_run/shards").rglob("data/*"))


def test_shards_on_ray_data_are_gathered_into_what_one_run_gives(here, tmp_path):
    in_shards(tmp_path)


@pytest.mark.slow
def test_shards_on_a_cluster_are_gathered_too(cluster, tmp_path):
    in_shards(tmp_path)


def test_our_stages_work_in_somebody_elses_pipeline(cluster):
    rows = ray.data.from_items([{"text": "word " * n} for n in range(1, 9)])
    call = as_map(Map(columns={"words": "len(string_split(trim(text), ' '))"}), Drop(conditions={"few": "words < 3"}))
    made = rows.map_batches(call, batch_format="pyarrow").map_batches(
        as_map, fn_constructor_args=(Shout(),), concurrency=1, batch_format="pandas")
    found = Drop({"few": "length(text) < 20"}).apply(made).to_pandas()
    assert sorted(found["words"]) == [4, 5, 6, 7, 8]
    assert set(found["loud"].str.strip().str[:4]) == {"WORD"}


SCRIPT = """
import sys
from tests.engine.small_stages import WaitingSink, lines
made = lines(sys.argv[1]) >> WaitingSink(gate=sys.argv[3])
made.named("r", out=sys.argv[2]).run(engine="ray-data", workers=2)
"""


@pytest.mark.slow
def test_units_that_were_committed_before_the_driver_was_killed_are_not_done_again(tmp_path):
    folder = write_lines(tmp_path / "in", **{f"f{n}": [f"text {n}"] for n in range(6)}, z=["wait"])
    script, out, gate = tmp_path / "script.py", tmp_path / "out", tmp_path / "gate"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(folder), str(out), str(gate)]
    environment = os.environ | {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        wait_until(lambda: len(list((out / "_run/ledger").glob("*"))) > 1)
        os.kill(driver.pid, signal.SIGKILL)
    ledger = "".join(path.read_text() for path in (out / "_run/ledger").glob("*"))
    first = {path: path.stat().st_ino for path in (out / "data").glob("*.json") if path.name in ledger}
    assert first
    gate.touch()
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stats = json.loads((out / "_run/stats.json").read_text())
    assert stats["units"]["skipped"] == len(first) < 7
    assert {path: path.stat().st_ino for path in first} == first
    assert [row["text"] for row in written(out)] == [*(f"text {n}" for n in range(6)), "wait"]


@pytest.mark.slow
def test_a_row_over_which_actors_die_fails_and_the_others_are_written(cluster, tmp_path):
    folder = write_lines(tmp_path / "in", a=["one", "die", "three", "hang"], b=["four"])
    made = lines(folder) >> Trouble(limit_s=2.0) >> JsonFiles()
    result = made.named("r", out=str(tmp_path / "out"), max_failed=5).run(engine="ray-data")
    assert [row["id"] for row in written(tmp_path / "out")] == ["a:0", "a:2", "b:0"]
    failed = kept_aside(tmp_path / "out", "failed")
    assert [row["id"] for row in failed] == ["a:1", "a:3"]
    assert "longer than its limit of 2 s" in failed[1]["error"]
    assert result.records["failed"] == 2


def test_what_ray_data_cannot_do_is_refused(tmp_path):
    folder = write_lines(tmp_path / "in", a=["one"])
    gang = lines(folder) >> Shout().with_(resources=Resources(gpus=2, gang=True)) >> JsonFiles()
    with pytest.raises(CuratorError, match="is a gang"):
        gang.named("r", out=str(tmp_path / "out")).run(engine="ray-data")
    with pytest.raises(CuratorError, match="workers=0"):
        (lines(folder) >> JsonFiles()).named("r", out=str(tmp_path / "out")).run(engine="ray-data", workers=0)
    with pytest.raises(CuratorError, match="no engine 'spark'"):
        (lines(folder) >> JsonFiles()).named("r", out=str(tmp_path / "out")).run(engine="spark")
    assert not (tmp_path / "out").exists()


RECIPE_TESTS = [
    *(f"packs/text/tests/test_{name}.py" for name in ("text_recipes", "get_recipes", "lists_recipes", "code_recipe", "distil")),
    "tests/end_to_end/test_mixed_recipe.py", "packs/image/tests/test_image_recipes.py", "packs/audio/tests/test_audio_recipes.py",
    *(f"packs/video/tests/test_video_{name}.py" for name in ("recipes", "audio", "curate"))]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_packaged_recipe_gives_what_its_own_tests_expect():
    root = Path(__file__).resolve().parents[2]
    names = {line.split()[1] for path in root.glob("packs/*/curator_*/recipes/*.yaml")
             for line in path.read_text().splitlines() if line.startswith("name:")}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.engine.on_ray_data", "-p", "no:cacheprovider", *RECIPE_TESTS]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    ran = done.stdout.rpartition("pipelines: ")[2].strip().split(", ")
    assert names <= set(ran)
