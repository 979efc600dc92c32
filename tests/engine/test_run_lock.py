"""One run at a time in a folder: on a disk, on a disk without file locks, in memory and on S3."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from curator import CuratorError
from curator.io.files.folder import Folder, list_files, open_input
from curator.machine import process_id
from curator.run.folder import lock as run_lock
from curator.run.folder.lock import Holder, Lease, holder, newest, take
from curator.run.folder.owner import Owner
from tests.engine.small_stages import JsonFiles, Trouble, lines, wait_until, write_lines, written

ELSEWHERE = {"host": "far-away", "pid": 7, "machine": "another machine", "process": "1"}
BEAT_S, LEASE_S = 0.05, 0.5  # of leases that are `quick`


def no_file_locks(monkeypatch):
    def flock(fd, how):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(run_lock, "fcntl", SimpleNamespace(**{**vars(fcntl), "flock": flock}))


@pytest.fixture(params=["disk", "disk without locks", "memory", "s3"])
def out(request, tmp_path, monkeypatch):
    if request.param == "memory":
        return Folder.open(f"memory://locks-{uuid.uuid4().hex}/out")
    if request.param == "s3":
        return Folder.open(request.getfixturevalue("bucket") + "/out", request.getfixturevalue("s3_options"))
    if request.param == "disk without locks":
        no_file_locks(monkeypatch)
    return Folder.open(str(tmp_path / "out"))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(run_lock, "BEAT_S", BEAT_S)
    monkeypatch.setattr(run_lock, "LEASE_S", LEASE_S)


@pytest.fixture
def s3(bucket, s3_options):
    return Folder.open(bucket + "/out", s3_options)


def leave(folder, **fields):
    """Leave the lease of a run elsewhere; gives its folder."""
    leases = folder.sub("_run").sub("lease")
    leases.make()
    leases.write("00000003.json", replace(Holder.me(), **{**ELSEWHERE, **fields}).to_json())
    return leases


# -- taking it ------------------------------------------------------------------------------------------------------


def test_a_folder_is_held_by_one_at_a_time_who_is_named(out):
    assert holder(out) is None
    for _ in range(2):
        lock = take(out)
        found = holder(out)
        assert (found.pid, found.host) == (os.getpid(), os.uname().nodename)
        with pytest.raises(CuratorError, match=rf"another run \(process {os.getpid()} on .*, since 20.*\) writes to {out.uri}"):
            take(out)
        lock.confirm()
        lock.release()
        assert holder(out) is None
        assert not lock.after_kill


def test_nothing_is_written_before_the_lock_is_held_but_the_lock(out):
    lock = take(out)
    assert all(name == "lock" or name.startswith("lease/") for name in out.sub("_run").names(recursive=True))
    assert out.names() == []
    lock.release()


def test_of_many_at_once_one_gets_the_lease(tmp_path):
    folder, together, got, refused = Folder.open(str(tmp_path)), threading.Barrier(8), [], []

    def compete():
        together.wait()
        try:
            got.append(Lease(folder))
        except CuratorError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1
    assert sum(told.startswith("another run") for told in refused) == 7
    got[0].release()


def test_where_two_can_create_one_file_the_last_one_has_it(tmp_path, monkeypatch):
    """A store that does not know conditions, and does not say so."""
    both, first, got = threading.Barrier(2), threading.local(), []

    def create(self, name, data):
        if not hasattr(first, "done"):
            first.done = True
            both.wait()
        self.write(name, data)
        return True

    monkeypatch.setattr(Folder, "create", create)
    monkeypatch.setattr(run_lock, "SETTLE_S", 0.2)

    def compete():
        try:
            got.append(Lease(Folder.open(str(tmp_path))))
        except CuratorError:
            got.append(None)

    threads = [threading.Thread(target=compete) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(lease is not None for lease in got) == 1
    next(lease for lease in got if lease is not None).release()


def test_a_lease_that_is_not_renewed_is_waited_for_and_taken(s3, quick, capsys):
    leave(s3)
    began = time.monotonic()
    lease = Lease(s3)
    assert time.monotonic() - began >= LEASE_S
    told = capsys.readouterr().err
    assert "process 7 on far-away" in told
    assert "waiting up to 0.5 s" in told
    assert (lease.number, lease.after_kill) == (4, True)
    assert s3.sub("_run").sub("lease").names() == ["00000004.json"]
    assert holder(s3).pid == os.getpid()
    lease.release()


def test_a_lease_that_is_renewed_elsewhere_is_refused(s3, quick, monkeypatch):
    lease = Lease(s3)
    with lease.turn:
        lease.me = replace(lease.me, **ELSEWHERE)
        began = lease.me.beat
    wait_until(lambda: newest(lease.folder)[1].host == "far-away" and lease.me.beat > began)
    monkeypatch.setattr(run_lock, "LEASE_S", 60.0)
    assert holder(s3).pid == 7
    with pytest.raises(CuratorError, match=r"another run .process 7 on far-away.* writes to"):
        Lease(s3)
    lease.release()


def test_who_ended_or_was_killed_here_is_not_waited_for(s3, capsys):
    killed = subprocess.Popen(["sleep", "100"])
    here = {"machine": Holder.me().machine, "pid": killed.pid, "process": process_id.started(killed.pid)}
    leave(s3, **here)
    with pytest.raises(CuratorError, match=f"process {killed.pid} on"):
        Lease(s3)
    killed.kill()
    killed.wait()
    assert holder(s3) is None
    lease = Lease(s3)
    assert lease.after_kill
    lease.release()
    leave(s3, ended=True)
    assert holder(s3) is None
    Lease(s3).release()
    assert capsys.readouterr().err == ""


def test_a_number_of_a_process_that_is_anothers_now_does_not_hold_the_folder(s3):
    leave(s3, machine=Holder.me().machine, pid=os.getpid(), process="another start")
    assert holder(s3) is None
    Lease(s3).release()


def test_a_killed_run_elsewhere_is_told_from_one_that_lives(s3, quick):
    leave(s3)
    assert holder(s3) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"host": 1}', b"host 12"])
def test_a_lock_that_cannot_be_read_is_no_hindrance_once_it_is_let_go(tmp_path, content):
    folder = Folder.open(str(tmp_path))
    folder.sub("_run").write("lock", content)
    take(folder).release()
    fd = os.open(tmp_path / "_run" / "lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.ftruncate(fd, 0)
    with pytest.raises(CuratorError, match=r"another run .unknown. writes to"):
        take(folder)
    os.close(fd)


# -- losing it ------------------------------------------------------------------------------------------------------


def test_who_slept_too_long_asks_before_it_writes(s3, monkeypatch):
    monkeypatch.setattr(run_lock, "BEAT_S", 1000.0)
    lease = Lease(s3)
    taken = replace(Holder.me(), **ELSEWHERE)
    lease.confirm()
    lease.folder.write("00000002.json", taken.to_json())
    lease.confirm()  # nobody can have taken it so soon
    lease.confirmed_at -= run_lock.LEASE_S
    for _ in range(2):
        with pytest.raises(CuratorError, match=r"another run .process 7 on far-away.* has taken over .*this run stops"):
            lease.confirm()
    with pytest.raises(CuratorError, match="has taken over"):
        lease.check()
    lease.release()
    assert newest(lease.folder) == (2, taken)


def test_a_store_that_does_not_answer_for_a_while_costs_nothing(s3, quick, monkeypatch):
    lease, failed = Lease(s3), []
    good = Folder.write

    def write(self, name, data):
        if len(failed) < 3:
            failed.append(name)
            raise CuratorError("the server does not answer")
        return good(self, name, data)

    monkeypatch.setattr(Folder, "write", write)
    before = lease.me.beat
    wait_until(lambda: lease.me.beat > before + 5)
    lease.check()
    lease.release()


@pytest.mark.parametrize("how", ["taken", "removed"])
def test_a_run_that_loses_its_lease_stops_and_writes_nothing_more(tmp_path, monkeypatch, how):
    no_file_locks(monkeypatch)
    monkeypatch.setattr(run_lock, "BEAT_S", 0.05)
    texts, out = write_lines(tmp_path / "in", a=["one"], b=["two"]), tmp_path / "out"
    made = lines(texts) >> Trouble(marks=str(tmp_path)) >> JsonFiles(path=str(out))
    assert made.run(workers=2).ok
    write_lines(tmp_path / "in", c=["gate"])
    leases, ledger, then = Folder.open(str(out / "_run" / "lease")), Folder.open(str(out / "_run" / "ledger")), []

    def watch(snapshot):
        if (tmp_path / "waits").exists():
            then[:] = then or ledger.names()
            if how == "taken":
                leases.write("00000003.json", replace(Holder.me(), **ELSEWHERE).to_json())
            else:
                leases.delete("00000002.json")  # which the run may just be writing again

    told = "process 7 on far-away.* has taken over" if how == "taken" else "/_run/lease was removed; this run stops"
    with pytest.raises(CuratorError, match=told):
        made.run(workers=2, watch=watch)
    assert ledger.names() == then != []
    assert json.loads((out / "_run" / "stats.json").read_text())["status"] == "running"  # it does not say how it ended


def test_what_a_killed_run_leaves_while_the_next_one_works_is_removed_at_its_end(tmp_path, monkeypatch):
    texts, out = write_lines(tmp_path / "in", a=["one", "sleep"] * 20), tmp_path / "out"
    folder = Folder.open(str(out))
    folder.sub("_run").write("lock", replace(Holder.me(), **ELSEWHERE).to_json())
    late = out / "data" / f"part-{'0' * 16}-{Owner.of(folder).id}-0-1-0.json"

    told = []

    def watch(snapshot):
        if not told:  # once while it works: the last time it is told is at its end
            late.parent.mkdir(exist_ok=True)
            late.touch()
        told.append(snapshot)

    assert (lines(texts, batch=2, delay_s=0.05) >> JsonFiles(path=str(out))).run(workers=1, watch=watch).ok
    assert len(told) > 1
    assert not late.exists()
    assert len(written(out)) == 40


# -- whole runs -----------------------------------------------------------------------------------------------------

RUN = """
import json, os, sys
sys.path.insert(0, {tests!r})
from tests.engine.small_stages import Trouble, lines
from curator import CuratorError
from curator.stages import ToJsonl
try:
    sink = ToJsonl(path={out!r}, storage_options={options!r}, compression="none")
    made = (lines({texts!r}) >> Trouble(marks={marks!r}) >> sink).named("both", storage_options={options!r} or {{}})
    result = made.run(workers=1)
    print("done", result.records["written"])
except CuratorError as error:
    print("refused", error)
"""


def start(tmp_path, out):
    code = RUN.format(tests=str(Path(__file__).parents[2]), texts=str(tmp_path / "in"), marks=str(tmp_path), out=out.uri,
                      options=out.storage_options)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ids(out):
    """Of all that was written."""
    return sorted(json.loads(line)["id"] for f in list_files(out.uri, out.storage_options)
                  for line in open_input(f.uri, out.storage_options).read().splitlines())


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.slow)])
def place(request, tmp_path):
    if request.param == "s3":
        return Folder.open(request.getfixturevalue("bucket") + "/out", request.getfixturevalue("s3_options"))
    return Folder.open(str(tmp_path / "out"))


def test_of_two_runs_at_once_one_works_and_one_is_refused(tmp_path, place):
    write_lines(tmp_path / "in", a=["one", "gate"], b=["two"], c=["three"])
    runs = [start(tmp_path, place) for _ in range(2)]
    wait_until(lambda: any(run.poll() is not None for run in runs))
    refused = next(run for run in runs if run.poll() is not None)
    winner = next(run for run in runs if run is not refused)
    assert f"refused another run (process {winner.pid} on " in refused.communicate()[0]
    (tmp_path / "open").touch()
    assert winner.communicate(timeout=120)[0] == "done 4\n"
    assert ids(place) == ["a:0", "a:1", "b:0", "c:0"]
    assert holder(place) is None


def test_a_run_that_was_killed_is_continued_at_once(tmp_path, place):
    write_lines(tmp_path / "in", a=["one", "gate"], b=["two"], c=["three"])
    killed = start(tmp_path, place)
    wait_until(lambda: (tmp_path / "waits").exists() or killed.poll() is not None)
    assert holder(place).pid == killed.pid
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert holder(place) is None
    (tmp_path / "open").touch()
    replay = start(tmp_path, place)
    assert replay.communicate(timeout=120) == ("done 4\n", "")
    assert ids(place) == ["a:0", "a:1", "b:0", "c:0"]
