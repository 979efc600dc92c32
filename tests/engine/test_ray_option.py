"""What `--ray` does and says where there is no cluster, or no Ray that can be used."""

import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("ray")

pytestmark = pytest.mark.ray


def recipe_in(tmp_path):
    """A recipe over twenty documents, which all are written."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"document {n}"}) + "\n" for n in range(20)))
    (tmp_path / "r.yaml").write_text(f"read: {{jsonl: {{path: {tmp_path}/in.jsonl}}}}\n"
                                     "steps:\n  - map: {columns: {n: length(text)}}\n"
                                     f"write: {{jsonl: {{path: {tmp_path}/out}}}}\n")
    return tmp_path / "r.yaml"


def ended(warm_start, *arguments, **env):
    return warm_start.run([sys.executable, "-m", "curator", *map(str, arguments)], env={**os.environ, **env})


@pytest.fixture
def curator(warm_start):
    return partial(ended, warm_start)


@pytest.fixture
def recipe(tmp_path):
    return recipe_in(tmp_path)


@pytest.mark.parametrize(("address", "told"), [
    ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1"),
    ("ray://somewhere:10001", "ray job submit"),
    ("nobody", "'nobody' is not the address"),
])
def test_an_address_where_no_cluster_is_is_told_at_once(curator, recipe, address, told):
    began = time.monotonic()
    ended = curator("run", recipe, f"--ray={address}")
    assert ended.returncode == 2
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert time.monotonic() - began < 40


@pytest.mark.parametrize(("content", "told"), [
    ("__version__ = '9.9'", r"does not know its way about Ray 9.9 (No module named 'ray._private')"),
    ("import no_such_part_of_ray", "Ray cannot be imported here (No module named 'no_such_part_of_ray')"),
])
def test_a_ray_that_cannot_be_used_is_not_taken_for_none(curator, recipe, tmp_path, content, told):
    (tmp_path / "other" / "ray").mkdir(parents=True)
    (tmp_path / "other" / "ray" / "__init__.py").write_text(content)
    ended = curator("run", recipe, "--ray", PYTHONPATH=f"{tmp_path / 'other'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert ended.returncode == 2
    assert told in " ".join(ended.stderr.split())
    assert "pip install" in ended.stderr


def test_without_ray_the_error_is_the_command_that_installs_it(curator, recipe, tmp_path):
    (tmp_path / "bare" / "ray").mkdir(parents=True)
    (tmp_path / "bare" / "ray" / "__init__.py").write_text("raise ImportError('no module named ray')")
    ended = curator("run", recipe, "--ray", PYTHONPATH=f"{tmp_path / 'bare'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert ended.returncode == 2
    assert "pip install 'curator-core[ray]'" in ended.stderr


def test_without_an_address_a_cluster_of_its_own_is_started_and_ended(warm_start, tmp_path):
    own = tempfile.mkdtemp(dir="/tmp")  # short, as paths of sockets must be, and no other test's
    told = ended(warm_start, "run", "--ray", recipe_in(tmp_path), RAY_AUTH_MODE="disabled", TMPDIR=own)
    assert told.returncode == 0, told.stderr
    assert "20" in told.stdout
    assert "Ray" not in told.stderr
    assert not list(Path(own).glob("curator_ray_*"))
    shutil.rmtree(own)
