"""A run seen from outside, by its folder."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from curator import read, write
from curator.api.errors import CuratorError
from curator.cli.main import main
from curator.io.files.folder import Folder
from curator.results.watching import Watching
from curator.run.folder.lock import Holder
from curator.stages.drop import Drop

LIVE = {"share": 0.25, "seconds_left": 31.0, "seconds": 10.0, "units_done": 1, "units_total": 4, "bytes_read": 30, "bytes_total": 100,
        "records_in": 7, "reading": [{"unit": "a.jsonl", "bytes_read": 5, "bytes": 25, "records": 2}],
        "stages": [{"name": "jsonl", "in": 7, "out": 7, "failed": 0, "rate": 2.0, "busy": 0.5}]}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def stats_of(**more):
    return {"name": "demo", "status": "running", "message": "", "seconds": 10.0, "out": "x", "limit": "", "stages": [], "outputs": [],
            "records": {"in": 7, "made": 0, "written": 0, "dropped": 0, "duplicate": 0, "failed": 0, "absorbed": 0, "unfinished": 7},
            "units": {"done": 1, "total": 4, "skipped": 0}, "files": [], "alarms": [], "first_errors": [], "live": LIVE,
            "alive": {"host": "h", "pid": 1, "time": 0.0, "every_s": 2.0}, **more}


def folder_of(path, by: Holder | None = None, **more) -> Folder:
    folder = Folder.open(str(path)).sub("_run")
    folder.make()
    folder.write("stats.json", json.dumps(stats_of(**more)).encode())
    if by is not None:
        folder.write("lease/00000001.json", by.to_json())
    return folder


def test_a_run_is_alive_while_its_process_is_there(tmp_path):
    folder_of(tmp_path, Holder.me())
    clock = Clock()
    watching = Watching(str(tmp_path), clock=clock)
    assert watching.look() == "running"
    clock.now = 1e4  # it may be busy with something else
    assert watching.look() == "running"
    assert watching.snapshot() == LIVE


def test_a_process_that_is_gone_is_told_at_once_and_where_the_run_was(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder_of(tmp_path, replace(Holder.me(), pid=gone.pid))
    watching = Watching(str(tmp_path))
    assert watching.look() == "dead"
    assert "was killed; the same command continues it" in watching.snapshot()["limit"]
    shown = CliRunner().invoke(main, ["watch", str(tmp_path)])
    assert shown.exit_code == 2
    assert "25% of the work, 1 of 4 units, 30 B of 100 B read\nin a.jsonl: 5 B of 25 B, 2 records\n" in shown.stdout
    assert "\x1b" not in shown.output


@pytest.mark.parametrize("url", ["memory://watched-elsewhere/out", None])
def test_a_run_of_another_machine_is_silent_when_its_numbers_stand_still(tmp_path, url):
    path = url or tmp_path
    elsewhere = replace(Holder.me(), machine="another")
    folder = folder_of(path, elsewhere)
    clock = Clock()
    watching = Watching(str(path), clock=clock)
    assert watching.look() == "running"
    clock.now = 25.0
    assert watching.look() == "running"
    clock.now = 27.0
    assert watching.look() == "silent"
    assert "has given no sign of life for 27.0 s" in watching.message
    folder.write("stats.json", json.dumps(stats_of(seconds=12.0)).encode())
    assert watching.look() == "running"
    folder.write("stats.json", json.dumps(stats_of(status="finished")).encode())
    assert watching.look() == "ended"


def test_a_folder_without_a_run_and_one_that_has_no_numbers_yet(tmp_path):
    with pytest.raises(CuratorError, match="holds no run"):
        Watching(str(tmp_path))
    folder = Folder.open(str(tmp_path)).sub("_run")
    folder.write("manifest.json", b"{}")
    assert Watching(str(tmp_path)).look() == "starting"
    for damaged in (b'{"name": ', b"[1]", b'{"name": "x"}', b'{"status": "running"}'):  # it is written whole: waiting mends nothing
        folder.write("stats.json", damaged)
        watching = Watching(str(tmp_path))
        with pytest.raises(CuratorError, match=r"stats\.json is damaged .*given again, writes it anew"):
            watching.look()


def test_a_real_run_is_watched_until_it_ends(tmp_path, monkeypatch):
    import curator.run.run as running

    for name in ("STATS_S", "WATCH_S"):
        monkeypatch.setattr(running, name, 0.0)
    monkeypatch.setattr(running, "STATS_SHARE", 1.0)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": "{i:09}", "more": "{"x" * 500}"}}\n' for i in range(20_000)))
    out, shots = tmp_path / "out", []

    def look(_):
        if (out / "_run" / "stats.json").exists():
            watching = Watching(str(out))
            assert watching.look() == "running"
            shots.append(watching.snapshot())

    pipeline = read(str(tmp_path / "in.jsonl")) >> Drop(conditions={"odd": "text like '%1'"}) >> write(str(out))
    pipeline.run(workers=0, watch=look)
    inside = [unit for shot in shots for unit in shot["reading"] if unit["records"]]
    assert inside
    assert all(0 < unit["bytes_read"] <= unit["bytes"] for unit in inside)
    assert {"queue_rows", "queue_bytes", "workers"} <= set(shots[-1]["stages"][1])
    watched = CliRunner().invoke(main, ["watch", str(out)])
    assert watched.exit_code == 0
    assert "records written" in watched.stdout
    told = json.loads(CliRunner().invoke(main, ["watch", str(out), "--once", "--json"]).stdout)
    assert (told["state"], told["status"], told["records"]["in"]) == ("ended", "finished", 20_000)


def test_one_look_in_words_and_as_json(tmp_path):
    folder_of(tmp_path, Holder.me())
    shown = CliRunner().invoke(main, ["watch", str(tmp_path), "--once", "--stages"])
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0] == ("25%; 1 of 4 units, 30 B of 100 B read; 7 read; 0 written; 10.0 s so far; about 31.0 s left")
    assert shown.stdout.splitlines()[2].split() == ["jsonl", "7", "7", "2", "0.5"]
    told = json.loads(CliRunner().invoke(main, ["watch", str(tmp_path), "--once", "--json"]).stdout)
    assert told["state"] == "running"
    assert told["live"] == LIVE
