"""`setup_node` is called once a node and run, whatever becomes of the worker that calls it."""

import fcntl
import os
import signal

import pytest

from curator import CuratorError
from curator.worker.main import once_on_node
from tests.engine.small_stages import JsonFiles, Weights, lines, wait_until, write_lines, written


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", **{f"f{i}": ["one", "two"] for i in range(8)})


def weights(tmp_path, **options):
    told = tmp_path / "told"
    told.mkdir()
    return told, Weights(told=str(told), **options).with_(batch_size=1)


def run(texts, stage, tmp_path, workers):
    return (lines(texts) >> stage >> JsonFiles(path=str(tmp_path / "out"))).run(check=False, workers=workers)


@pytest.mark.parametrize("workers", [0, 4])
def test_it_is_called_once_before_any_setup(tmp_path, texts, workers):
    told, stage = weights(tmp_path, workers=max(1, workers))
    assert run(texts, stage, tmp_path, workers).ok
    assert len(written(tmp_path / "out")) == 16
    assert len(list(told.glob("node-*"))) == 1
    setups = [path.name for path in told.glob("setup-*")]
    assert len(setups) >= max(1, workers)
    assert all(name.endswith("-1") for name in setups)


def test_if_its_worker_dies_the_next_one_calls_it(tmp_path, texts):
    told, stage = weights(tmp_path, workers=2, trouble="die")
    assert run(texts, stage, tmp_path, 4).ok
    assert len(list(told.glob("node-*"))) == 2  # the dead one, and one that lived
    assert all(path.name.endswith("-2") for path in told.glob("setup-*"))


@pytest.mark.parametrize("workers", [0, 4])
def test_if_it_fails_the_run_ends_and_says_so_and_nobody_calls_it_again(tmp_path, texts, workers):
    told, stage = weights(tmp_path, workers=1, trouble="raise")
    result = run(texts, stage, tmp_path, workers)
    assert result.stats["status"] == "stopped"
    assert "weights cannot be set up: stage 'weights': setup_node failed: the weights are not there" in result.stats["message"]
    assert len(list(told.glob("node-*"))) == 1
    assert not list(told.glob("setup-*"))


def test_who_waits_for_a_failure_is_told_of_it(tmp_path):
    """Also when the others have not begun to wait before."""
    def fails():
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        once_on_node(str(tmp_path), "a", fails)
    with pytest.raises(CuratorError, match="no room"):
        once_on_node(str(tmp_path), "a", fails)
    done = []
    for _ in range(2):
        once_on_node(str(tmp_path), "b", lambda: done.append(1))
    assert done == [1]


def test_who_waits_goes_on_when_the_one_that_it_waits_for_is_killed(tmp_path):
    folder = str(tmp_path)
    first = os.fork()
    if not first:
        once_on_node(folder, "a", signal.pause)
    wait_until(lambda: any(path.read_bytes() for path in tmp_path.glob("once-*")))
    file, = tmp_path.glob("once-*")
    with open(file, "rb") as held, pytest.raises(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    done = []
    once_on_node(folder, "a", lambda: done.append(1))
    assert done == [1]
