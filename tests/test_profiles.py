"""What a run learns for the next one, and what it says of limits."""

import json

import pyarrow as pa

from curator import Pipeline, Resources, read, stage, write
from curator.api.resources import Node
from curator.io.files.folder import Folder
from curator.pipeline.plan import make_plan
from curator.run.profiles import NAME, load_profiles
from curator.trial.limits import foresee


@stage(adds={"size": pa.int64()}, batch_size=4)
def measure(batch):
    return batch.with_columns({"size": [len(t) for t in batch.column("text")]})


@stage(adds={"upper": pa.string()}, resources=Resources(cpus=0.5))
def shout(batch):
    return batch.with_columns({"upper": [t.upper() for t in batch.column("text")]})


def pipeline(folder, *stages) -> Pipeline:
    (folder / "in.jsonl").write_text("".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(50)))
    made = read(str(folder / "in.jsonl"))
    for one in stages:
        made = made >> one
    return made >> write(str(folder / "out"), format="jsonl")


def run_folder(folder) -> Folder:
    return Folder.open(str(folder / "out")).sub("_run")


def test_a_run_knows_what_the_one_before_has_learnt(tmp_path):
    made = pipeline(tmp_path, measure, shout)
    made.run(workers=1)
    operators = make_plan(made).phases[0].operators
    known = load_profiles(run_folder(tmp_path), operators)
    assert set(known) == {o.index for o in operators}
    assert known[1].sent == {2: 1.0}
    assert all(p.rows > 0 and p.busy_s > 0 for p in known.values())
    assert "cores" in foresee(operators, known, {0: Node(cpus=2)})


def test_a_changed_stage_is_not_known_and_the_others_are(tmp_path):
    pipeline(tmp_path, measure, shout).run(workers=1)
    operators = make_plan(pipeline(tmp_path, measure, shout.with_(name="loud"), measure.with_(batch_size=3))).phases[0].operators
    assert set(load_profiles(run_folder(tmp_path), operators)) == {0, 1, 2, 4}  # a name is no change; the second `measure` is new

    @stage
    def other(batch):
        return batch

    operators = make_plan(pipeline(tmp_path, other, shout)).phases[0].operators
    assert 1 not in load_profiles(run_folder(tmp_path), operators)
    assert foresee(operators, load_profiles(run_folder(tmp_path), operators), {0: Node()}) == ""


def test_a_damaged_profile_is_as_good_as_none(tmp_path):
    made = pipeline(tmp_path, measure)
    made.run(workers=1)
    run_folder(tmp_path).write(NAME, b"{half")
    assert load_profiles(run_folder(tmp_path), make_plan(made).phases[0].operators) == {}
    assert pipeline(tmp_path, measure, shout).run(workers=1, replace=True).ok
