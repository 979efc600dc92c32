"""The recipe video/split, killed half-way or run on Ray: the same records, and the same bytes in the files, as undisturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from curator.cli.main import main
from packs.video.tests.films import film, moving, sine
from packs.video.tests.hostile import two_shots

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Five films of two shots, with sound, in three containers, one that is damaged, one that is none; and a copy of a shot."""
    folder = tmp_path_factory.mktemp("films")
    for number, (container, ending) in enumerate([("mp4", "mp4"), ("matroska", "mkv"), ("mpegts", "ts"), ("mp4", "mov")]):
        data = two_shots(10 + 2 * number, container=container, sound=sine(300 + 50 * number, 4.8))
        (folder / f"{number}.{ending}").write_bytes(data)
    (folder / "4.mp4").write_bytes(two_shots(30)[:-2000])
    (folder / "5.mkv").write_bytes(two_shots(40, container="matroska")[:-5000])
    (folder / "6.mp4").write_bytes(film(moving(10, 2.4, 256, 256), 25, options={"crf": "28", "preset": "ultrafast"}))
    return folder


def words(out, films, *more):
    return ["run", "video/split", "--set", f"read={{video.files: {{path: {films}, unit_bytes: 1}}}}", "--set", "max_failed=2",
            "--out", str(out), *more]


def contents(folder):
    """Of each folder the files' kinds and bytes; their names tell the run."""
    return sorted((str(path.parent.relative_to(folder)), path.suffix, path.read_bytes())
                  for place in ("data", "dropped", "duplicate", "failed") for path in (folder / place).rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def calm(films, tmp_path_factory):
    out = tmp_path_factory.mktemp("calm")
    done = CliRunner().invoke(main, words(out, films, "--workers", "0"))
    assert done.exit_code == 0, done.output
    found = contents(out)
    assert [sum(place == wanted for place, _, _ in found) > 0 for wanted in ("data", "dropped/clips", "failed/probe")] == [True] * 3
    assert any(place.startswith("duplicate") for place, _, _ in found)
    return found


@pytest.mark.parametrize("phase", [1, 2])
def test_a_killed_run_goes_on_to_the_same_bytes(films, calm, tmp_path, phase):
    ledger = tmp_path / "_run" / ("ledger" if phase == 1 else f"ledger-{phase}")
    killed = subprocess.Popen([sys.executable, "-m", "curator", *words(tmp_path, films, "--workers", "1")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while killed.poll() is None and time.monotonic() < until and not any(
            path.stat().st_size for path in (ledger.iterdir() if ledger.exists() else ())):
        time.sleep(0.001)
    assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    done = CliRunner().invoke(main, words(tmp_path, films, "--workers", "0"))
    assert done.exit_code == 0, done.output
    assert contents(tmp_path) == calm


def clips_of(out):
    """What lies in NeMo's folders, without what names the run."""
    found = {}
    for path in (out / "data").rglob("*"):
        if path.is_file():
            parts = [part for part in path.relative_to(out / "data").parts if not part.startswith("part-")]
            found[tuple(parts)] = path.read_bytes() if path.suffix in (".mp4", ".webp") else None
    return found


def test_folders_of_nemo_are_whole_after_a_kill(films, tmp_path):
    """Killed while files of clips are there already whose unit is not finished."""
    nemo = ("--set", "write={video.nemo: {}}")
    calm, out = tmp_path / "calm", tmp_path / "out"
    done = CliRunner().invoke(main, words(calm, films, *nemo, "--workers", "0"))
    assert done.exit_code == 0, done.output
    killed = subprocess.Popen([sys.executable, "-m", "curator", *words(out, films, *nemo, "--workers", "1")],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while killed.poll() is None and time.monotonic() < until and not any((out / "data").rglob("*.mp4")):
        time.sleep(0.001)
    assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    done = CliRunner().invoke(main, words(out, films, *nemo, "--workers", "0"))
    assert done.exit_code == 0, done.output
    assert clips_of(out) == clips_of(calm)
    assert len([name for name in clips_of(out) if name[:1] == ("clips",)]) > 6


@pytest.mark.ray
def test_a_run_on_ray_gives_the_same_bytes(films, calm, tmp_path):
    pytest.importorskip("ray")
    done = subprocess.run([sys.executable, "-m", "curator", *words(tmp_path / "out", films, "--ray")], capture_output=True, text=True,
                          check=False, env={**os.environ, "RAY_AUTH_MODE": "disabled"})
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == calm
