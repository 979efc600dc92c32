"""A node of the cluster goes while Ray Data works on it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray.data")
import ray
from ray._private.state import available_resources_per_node
from ray.cluster_utils import Cluster

from tests.engine.small_stages import FirstOfText, Frames, JsonFiles, MeanFrame, Trouble, kept_aside, lines, write_lines, written

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def cluster():
    """Without a node yet."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="cur_ray_", dir="/tmp") as folder:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        Path(folder, "ray").mkdir()
        made = Cluster()
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("stays", [5, 1])
def test_units_of_a_node_that_goes_are_done_again_and_none_twice(cluster, tmp_path, stays):
    """On the node that stays there is room for all five pools, or another one must come."""
    texts = {f"f{n:02}": [f"sleep {n} {i}" for i in range(10)] + ["raise", "same"] for n in range(16)}
    folder, out, gone = write_lines(tmp_path / "in", **texts), tmp_path / "out", []
    cluster.add_node(num_cpus=stays, include_dashboard=False, object_store_memory=150 << 20)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")  # we are on this one
    second = cluster.add_node(num_cpus=4, object_store_memory=150 << 20)

    def watch(snapshot):
        if snapshot["written"] > 20 and not gone:
            assert available_resources_per_node()[second.node_id].get("CPU", 0) < 4  # actors are there
            cluster.remove_node(second, allow_graceful=False)
            gone.append(snapshot["units_done"])
        if gone and len(gone) == 1 and stays == 1 and "waits for a node" in (out / "_run/events.jsonl").read_text():
            gone.append(cluster.add_node(num_cpus=4, object_store_memory=150 << 20))

    made = lines(folder, batch=4) >> Trouble() >> Frames() >> MeanFrame() >> FirstOfText() >> JsonFiles()
    result = made.named("r", out=str(out), max_failed=100).run(
        engine="ray-data", ray=cluster.address, check=False, watch=watch)
    assert gone
    assert gone[0] < 16
    assert len(gone) == (1 if stays == 5 else 2)
    assert result.ok, result.stats["message"]
    assert sorted(row["text"] for row in written(out)) == sorted(
        [*(f"sleep {n} {i}" for n in range(16) for i in range(10)), "same"])
    assert len(kept_aside(out, "duplicate")) == 15
    assert len(kept_aside(out, "failed")) == 16
    assert result.records["in"] == 192
