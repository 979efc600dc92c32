"""The folders for batches: what is ours is removed when nobody needs it, and nothing else ever is."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from curator import CuratorError
from curator.machine import folders
from curator.machine.folders import MARKER, clear_folder, make_folders, remove_folder, this_process
from tests.engine.small_stages import wait_until, write_lines, written

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
PRIVATE = f"curator-{os.geteuid()}"
OTHER = 12345  # another user


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The temporary folder, and shared memory, of this test alone."""
    parent = tmp_path / "tmp"
    parent.mkdir()
    monkeypatch.setattr(folders, "shared_memory_parent", lambda: str(parent))
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    return parent


def made():
    """The folder of a new run, and what holds its lock."""
    (folder, held), = make_folders()
    return Path(folder), held


def left(place, **changed):
    """A folder of a run that is gone, with a batch in it. `changed`: what its marker says instead."""
    folder, held = made()
    os.close(held)
    (folder / "w1-0").write_bytes(b"x" * 100)
    gone = subprocess.Popen(["true"])
    gone.wait()
    owner = asdict(replace(this_process(), pid=gone.pid)) | changed
    (folder / MARKER).write_text(json.dumps(owner))
    return folder


def sweep():
    """What a run does that begins."""
    folder, held = made()
    remove_folder(str(folder))
    os.close(held)


def everything(place):
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def is_left_alone(place, *paths):
    before = everything(place)
    sweep()
    assert all(os.path.lexists(path) for path in paths)
    assert everything(place) == before


def test_a_folder_is_private_says_who_made_it_and_goes_at_the_end(place):
    folder, held = made()
    assert folder.parent == place / PRIVATE
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]
    told = json.loads((folder / MARKER).read_text())
    assert (told["pid"], told["uid"]) == (os.getpid(), os.geteuid())
    for name in ("w1-0", "copy-3", "at-1"):
        (folder / name).touch()
    clear_folder(str(folder))
    assert os.listdir(folder) == [MARKER]
    remove_folder(str(folder))
    os.close(held)
    assert everything(place) == [PRIVATE]
    remove_folder(str(folder))  # the fork server has done it


# -- what runs have left that are gone -------------------------------------------------------------------------------


def test_what_a_dead_run_left_is_removed(place):
    stale = left(place)
    sweep()
    assert not stale.exists()


@pytest.mark.parametrize("changed", [
    pytest.param({"boot": "before"}, id="before the machine booted"),
    pytest.param({"pids": "pid:[1]", "pid": os.getpid()}, id="in another container"),
    pytest.param({"pid": os.getpid(), "started": "1"}, id="another process has its number now")])
def test_what_a_run_left_is_removed_too(place, changed):
    stale = left(place, **changed)
    sweep()
    assert not stale.exists()


def test_a_folder_whose_maker_died_before_it_had_written_its_name_is_removed_while_it_is_empty(place):
    used = left(place)
    (used / MARKER).write_text("")
    begun = left(place)
    (begun / MARKER).write_text("")
    (begun / "w1-0").unlink()
    held = os.open(begun, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    sweep()
    assert begun.exists()
    os.close(held)
    sweep()
    assert not begun.exists()
    assert (used / "w1-0").exists()


@pytest.mark.parametrize("changed", [{"pid": os.getpid()}, {"boot": "other", "host": "another machine"}, {"uid": OTHER},
                                     {"made_by": "me"}, {"pid": "1"}, {"pid": -1}, {"more": 1}])
def test_a_folder_whose_owner_lives_or_is_not_known_stays(place, changed):
    is_left_alone(place, left(place, **changed) / "w1-0")


def test_a_folder_that_is_held_stays_whatever_it_says(place):
    stale = left(place, boot="before")
    held = os.open(stale, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    is_left_alone(place, stale / "w1-0")
    os.close(held)
    sweep()
    assert not stale.exists()


def test_a_zombie_is_gone_and_a_process_that_sleeps_is_not(place):
    sleeper = subprocess.Popen(["sleep", "1000"])
    started = Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[19]
    stale = left(place, pid=sleeper.pid, started=started)
    is_left_alone(place, stale)
    os.kill(sleeper.pid, signal.SIGKILL)  # and nobody waits for it
    wait_until(lambda: Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    sweep()
    assert not stale.exists()
    sleeper.wait()


def test_a_removal_that_was_interrupted_is_finished(place):
    stale = left(place)
    os.rename(stale, f"{stale}.gone")
    sweep()
    assert everything(place) == [PRIVATE]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 4000, "\0\xff", "9" * 5000, '{"made_by": "Curator"}'])
def test_a_marker_that_is_damaged_proves_nothing(place, text):
    stale = left(place)
    (stale / MARKER).write_text(text)
    is_left_alone(place, stale / "w1-0")


# -- what is not ours ---------------------------------------------------------------------------------------------


def test_folders_and_files_beside_ours_stay_however_they_are_called(place):
    old = time.time() - 3600
    for name in ("curator-my-data", "curator-1-2", "curator-1234-abc", f"{PRIVATE}-1", "curator-0-x"):
        (place / name).mkdir()
        (place / name / "w1-0").write_text("mine")
        (place / name / MARKER).write_text(json.dumps(asdict(replace(this_process(), boot="before"))))
        os.utime(place / name / "w1-0", (old, old))
        os.utime(place / name, (old, old))
    sweep()  # this makes our folder
    is_left_alone(place, place / "curator-my-data" / "w1-0")


def test_what_lies_in_our_folder_without_a_marker_stays(place):
    sweep()
    (place / PRIVATE / "mine").mkdir()
    (place / PRIVATE / "mine/w1-0").write_text("mine")
    (place / PRIVATE / "w1-0").write_text("mine")
    os.mkfifo(place / PRIVATE / "pipe")
    is_left_alone(place, place / PRIVATE / "mine/w1-0", place / PRIVATE / "w1-0")


def test_of_a_folder_that_is_ours_only_our_files_go(place):
    stale = left(place)
    for name in ("w1-0.bak", "notes.txt", "w1", "xw1-0", "w1-0\n"):
        (stale / name).write_text("mine")
    (stale / "w2-0").mkdir()
    (stale / "w2-0/w1-0").write_text("mine")
    sweep()
    assert [name for name in everything(place) if name.endswith("/w1-0")] == [f"{PRIVATE}/{stale.name}.gone/w2-0/w1-0"]
    assert len(everything(place)) == 2 + 5 + 2


@pytest.mark.parametrize("kind", ["the private folder", "a run's folder", "a batch", "the marker"])
def test_no_link_is_followed(place, tmp_path, kind):
    stale = left(place)
    away = tmp_path / "away"
    if kind == "the private folder":
        shutil.move(place / PRIVATE, away)
        (place / PRIVATE).symlink_to(away)
    elif kind == "a run's folder":
        shutil.move(stale, away)
        stale.symlink_to(away)
    elif kind == "a batch":
        away.write_bytes(b"mine")
        (stale / "w7-0").symlink_to(away)
        sweep()
        assert away.read_bytes() == b"mine"
        assert not stale.exists()
        return
    else:
        shutil.move(stale / MARKER, away)
        (stale / MARKER).symlink_to(away)
    before = everything(away)
    is_left_alone(place, stale)
    assert everything(away) == before


def test_a_private_folder_into_which_others_may_look_is_not_used(place):
    stale = left(place)
    (place / PRIVATE).chmod(0o755)
    folder, held = made()
    assert folder.parent == place
    assert folder.stat().st_mode & 0o777 == 0o700
    remove_folder(str(folder))
    os.close(held)
    assert (stale / "w1-0").exists()


@needs_root
def test_a_private_folder_of_another_user_is_not_used(place):
    stale = left(place)
    os.chown(place / PRIVATE, OTHER, OTHER)
    folder, held = made()
    assert folder.parent == place
    remove_folder(str(folder))
    os.close(held)
    assert (stale / "w1-0").exists()


@needs_root
@pytest.mark.parametrize("which", ["", MARKER])
def test_in_our_folder_what_another_user_owns_stays(place, which):
    stale = left(place)
    os.chown(stale / which, OTHER, OTHER)
    is_left_alone(place, stale / "w1-0")


def test_a_file_in_the_place_of_our_folder_stays(place):
    (place / PRIVATE).write_text("mine")
    is_left_alone(place, place / PRIVATE)


# -- where nothing can be made ----------------------------------------------------------------------------------------


NOWHERE = "/proc/1"  # not even root can make anything there


def test_where_shared_memory_cannot_be_used_the_temporary_folder_does(place, monkeypatch):
    monkeypatch.setattr(folders, "shared_memory_parent", lambda: NOWHERE)
    folder, held = made()
    assert folder.parent == place / PRIVATE
    remove_folder(str(folder))
    os.close(held)


def test_where_the_temporary_folder_cannot_be_used_shared_memory_does(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", NOWHERE)
    sweep()
    assert everything(place) == [PRIVATE]


def test_where_no_folder_can_be_made_the_error_says_what_to_do(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", NOWHERE)
    monkeypatch.setattr(folders, "shared_memory_parent", lambda: NOWHERE)
    with pytest.raises(CuratorError, match=r"no folder can be made in /proc/1 \(.*\)\. Set TMPDIR"):
        make_folders()


def test_where_there_is_no_temporary_folder_the_error_says_what_to_do(monkeypatch):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(CuratorError, match="No usable temporary directory found"):
        make_folders()


def test_without_locks_a_run_works_and_nothing_is_removed(place, monkeypatch):
    def none(*_):
        raise OSError(38, "Function not implemented")

    stale = left(place)
    monkeypatch.setattr(fcntl, "flock", none)
    is_left_alone(place, stale)


# -- whole runs -------------------------------------------------------------------------------------------------------


def test_a_run_below_the_temporary_folder_keeps_its_output_and_that_of_others(place, tmp_path):
    mine = place / "curator-my-data"
    mine.mkdir()
    (mine / "file.txt").write_text("an hour old")
    os.utime(mine, (0, 0))
    texts = write_lines(tmp_path / "in", a=["one", "two"], b=["three"])
    out = place / "curator-my-run"
    script = ("import sys; sys.path.insert(0, {here!r}); from tests.engine.small_stages import *; "
              "(lines({texts!r}) >> JsonFiles(path={out!r})).run(workers=2, check=False)")
    code = script.format(here=str(Path(__file__).parents[2]), texts=str(texts), out=str(out))
    environment = {**os.environ, "TMPDIR": str(place)}
    for _ in range(2):  # the second one finds what the first one has left
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
        os.utime(out, (0, 0))
        assert [row["text"] for row in written(out)] == ["one", "two", "three"]
    assert (mine / "file.txt").read_text() == "an hour old"
