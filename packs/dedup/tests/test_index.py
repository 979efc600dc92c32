"""Snapshot after snapshot against one index: as if all had been there at once, at the cost of the new one."""

import json
import shutil
from pathlib import Path

import pytest
from curator_dedup import DedupNear

from curator import CuratorError, RecipeError
from packs.dedup.tests.corpus import corpus, write
from packs.dedup.tests.test_near import duplicates, run, written

ROWS = corpus(seed=5)
PARTS = [ROWS[:len(ROWS) // 2], ROWS[len(ROWS) // 2:-20], ROWS[-20:]]


@pytest.fixture
def snapshots(tmp_path):
    return [write(part, tmp_path / f"in{number}", files=2) for number, part in enumerate(PARTS)]


def snap(tmp_path, folder, number, **parameters):
    return run(folder, tmp_path / f"out{number}", workers=0, index=str(tmp_path / "index"), **parameters)


def test_over_all_snapshots_one_of_each_family_stays(snapshots, tmp_path):
    stay, gone = {}, {}
    for number, folder in enumerate(snapshots):
        snap(tmp_path, folder, number)
        stay |= written(tmp_path / f"out{number}")
        gone |= duplicates(tmp_path / f"out{number}")
    assert sorted(r["family"] for r in stay.values()) == list(range(70))
    assert set(stay) | set(gone) == {r["id"] for r in ROWS}
    assert {r["duplicate_of"] for r in gone.values()} <= set(stay)


def test_a_snapshot_that_is_delivered_again_adds_nothing(snapshots, tmp_path):
    snap(tmp_path, snapshots[0], 0)
    replay = snap(tmp_path, snapshots[0], 1)
    assert (replay.records["written"], replay.records["duplicate"]) == (0, len(PARTS[0]))


def test_a_run_that_is_done_again_sees_what_it_saw_the_first_time(snapshots, tmp_path):
    """Also with more input, after later snapshots have been added. Where its output was moved or copied, it replaces
    nothing in an index that may be another's too."""
    snap(tmp_path, snapshots[0], 0)
    before = sorted(written(tmp_path / "out0"))
    snap(tmp_path, snapshots[1], 1)
    assert sorted(written(tmp_path / "out0")) == before
    replay = snap(tmp_path, snapshots[0], 0)
    assert replay.stats["units"]["skipped"] == replay.stats["units"]["total"]
    shutil.copy(snapshots[2] / "part0.parquet", snapshots[0] / "more.parquet")
    snap(tmp_path, snapshots[0], 0)
    both = PARTS[0] + PARTS[2][0::2]
    stay = written(tmp_path / "out0")
    assert sorted(r["family"] for r in stay.values()) == sorted({r["family"] for r in both})
    assert len(json.loads((tmp_path / "out0/clusters/dedup.near/index.json").read_text())["before"]) == 0
    shutil.move(tmp_path / "out0", tmp_path / "moved")
    shutil.copy(snapshots[1] / "part0.parquet", snapshots[0] / "yet more.parquet")
    with pytest.raises(CuratorError, match=r"was made when .* lay elsewhere"):
        run(snapshots[0], tmp_path / "moved", workers=0, index=str(tmp_path / "index"))
    assert sorted(r["family"] for r in written(tmp_path / "moved").values()) == sorted({r["family"] for r in both})


def test_the_index_has_what_stayed_and_no_more(snapshots, tmp_path):
    import pyarrow as pa

    snap(tmp_path, snapshots[0], 0)
    snap(tmp_path, snapshots[1], 1)
    files = Path(tmp_path / "index").rglob("*.rows")
    ids = [i for path in files for i in pa.ipc.open_file(str(path)).read_all()["id"].to_pylist()]
    assert sorted(ids) == sorted([*written(tmp_path / "out0"), *written(tmp_path / "out1")])


def test_another_measure_is_refused(snapshots, tmp_path):
    snap(tmp_path, snapshots[0], 0)
    with pytest.raises(CuratorError, match=r"was made by .*threshold=0\.8.* compared here by .*threshold=0\.7"):
        snap(tmp_path, snapshots[1], 1, threshold=0.7)
    with pytest.raises(RecipeError, match="index"):
        DedupNear(index="x", verify="exact")


def test_a_plan_and_a_preview_write_nothing(snapshots, tmp_path):
    from curator.front import from_source
    from curator.stages import Parquet, ToParquet
    from curator.trial.preview import preview

    made = from_source(Parquet(path=str(snapshots[0] / "*.parquet"))) >> DedupNear(index=str(tmp_path / "index"))
    made = made >> ToParquet(path=str(tmp_path / "out"))
    made.plan()
    preview(made, 5)
    assert not (tmp_path / "index").exists()
    assert not (tmp_path / "out").exists()
