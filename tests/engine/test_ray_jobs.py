"""`ray job submit` to a local head: a script with a stage of its own, and a pack that travels as a wheel."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

import pyarrow.parquet as pq
import pytest

pytest.importorskip("ray")
pytest.importorskip("ray.dashboard.optional_deps", exc_type=ImportError)  # of ray[default], which has jobs
import ray

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]

SCRIPT = """
from dataclasses import dataclass
import os, sys
import pyarrow as pa
from curator import Contract, Stage, read, write


@dataclass(kw_only=True)
class Loud(Stage):
    def contract(self):
        return Contract(needs={"text"}, adds={"loud": pa.string(), "job": pa.string()})

    def process(self, batch):
        from words import louder  # a module beside the script
        job = os.environ.get("RAY_JOB_ID", "")  # of the agent that runs this worker
        return batch.with_columns({"loud": [louder(text) for text in batch.column("text")], "job": [job] * len(batch)})


(read(sys.argv[1]) >> Loud() >> write(sys.argv[2], format="parquet")).run()
"""

@pytest.fixture(scope="module")
def submit():
    """Submits a job from a folder; gives what it printed."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="cur_ray_", dir="/tmp") as folder:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        there = ray.init(address="local", num_cpus=2, include_dashboard=True, log_to_driver=False, logging_level="ERROR",
                         object_store_memory=150 << 20, _temp_dir=folder)

        def run(working_dir, *entrypoint, code=0):
            words = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", f"http://{there.dashboard_url}",
                     "--working-dir", str(working_dir), "--", *map(str, entrypoint)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout

        yield run
        ray.shutdown()


def rows(out, column):
    return sorted(value for path in (out / "data").glob("*.parquet") for value in pq.read_table(path)[column].to_pylist())


def test_a_script_with_a_stage_of_its_own_and_a_module_beside_it(submit, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("one", "two", "three")))
    (folder / "script.py").write_text(SCRIPT)
    (folder / "words.py").write_text("def louder(text):\n    return text.upper()\n")
    said = submit(folder, sys.executable, "script.py", tmp_path / "in.jsonl", tmp_path / "out")
    assert "succeeded" in said
    assert rows(tmp_path / "out", "loud") == ["ONE", "THREE", "TWO"]
    assert all(rows(tmp_path / "out", "job"))


def test_a_pack_travels_as_a_wheel_in_the_folder_of_the_job(submit, tmp_path):
    def here(*words):
        subprocess.run([sys.executable, "-m", *map(str, words)], cwd=tmp_path, check=True, capture_output=True)

    here("curator", "new", "pack", "sea_ice")
    here("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "./curator-sea-ice")
    here("pip", "install", "-q", "--no-deps", "--target", "job", *(tmp_path / "dist").glob("*.whl"))
    texts = tmp_path / "curator-sea-ice/examples/texts.jsonl"
    said = submit(tmp_path / "job", sys.executable, "-m", "curator", "run", "sea_ice/clean", texts, "--out", tmp_path / "out")
    assert "succeeded" in said
    assert all(rows(tmp_path / "out", "words"))
    again = submit(tmp_path, sys.executable, "-m", "curator", "stages", "sea_ice", code=1)
    assert "sea_ice" in again  # it is nowhere but in the folder
