"""The live page: what it is told of a run, who may ask, and what a browser makes of hostile names."""

from __future__ import annotations

import json
import shutil
import threading
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from curator import read, write
from curator.api.errors import CuratorError
from curator.cli.main import main
from curator.explore.board import Board
from curator.explore.server import Server
from curator.io.files.folder import Folder
from curator.run.folder.lock import Holder
from tests.explore.test_server import ask, get

HOSTILE = "<img src=x onerror=\"document.title='hurt'\">"
STAGE = {"name": HOSTILE, "kind": "source", "after": [], "in": 5, "made": 0, "out": {"out": 5}, "dropped": {HOSTILE: 1}, "duplicate": 0,
         "failed": 2, "absorbed": 0, "busy_s": 1.0, "columns": {"x": {}}}
LINE = {"name": HOSTILE, "in": 5, "out": 5, "failed": 2, "rate": 2.0, "busy": 0.5, "workers": 1, "operator": 0}
STATS = {"name": HOSTILE, "status": "running", "message": "", "seconds": 3.0, "out": "out", "limit": HOSTILE, "records": {"in": 5},
         "units": {"done": 0, "total": 1, "skipped": 0}, "stages": [STAGE], "alarms": [{"level": "note", "stage": None, "text": HOSTILE}],
         "first_errors": [{"stage": HOSTILE, "error": f"ValueError: {HOSTILE}\nmore", "traceback": HOSTILE, "file": "a.py", "line": 3,
                           "record": HOSTILE}],
         "alive": {"host": "h", "pid": 1, "time": 0.0, "every_s": 2.0},
         "live": {"share": 0.4, "seconds_left": 12.0, "seconds": 3.0, "rate": 2.0, "stages": [LINE], "bytes_read": 4, "bytes_total": 8,
                  "reading": [{"unit": HOSTILE, "bytes_read": 4, "bytes": 8, "records": 5}], "events": [{"t": 1.0, "text": HOSTILE}],
                  "engine": {"operators": [{"workers": {"starting": 0, "working": 1, "idle": 0}}], "live_bytes": 1, "budget_bytes": 2,
                             "nodes": [{"node": "0", "cores": 2, "cores_used": 1, "gpus": 0, "gpus_used": 0}]}}}


def run_in(path):
    folder = Folder.open(str(path)).sub("_run")
    folder.make()
    folder.write("stats.json", json.dumps(STATS).encode())
    folder.write("lease/00000001.json", Holder.me().to_json())


@contextmanager
def served(board):
    with Server(board, 0, "live") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_the_page_is_told_what_the_folder_says_and_no_more_than_it_shows(tmp_path):
    run_in(tmp_path)
    with served(Board(str(tmp_path))) as server:
        assert get(server, "/", cookie=False)[0] == 403
        assert get(server, "/api/now", "POST", body="{}", cookie=False)[0] == 403
        assert get(server, "/", Host="evil.example")[0] == 403
        for name in ("/", "/live.js", "/live.css", "/dom.js", "/style.css"):
            assert get(server, name)[0] == 200
        assert b"live.js" in get(server, "/")[2]
        status, now = ask(server, "now")
        assert status == 200
        assert (now["state"], now["live"]["share"], now["flow"][0]["failed"]) == ("running", 0.4, 2)
        assert "columns" not in now["flow"][0]
        assert now["history"] == [[3.0, 2.0, 0, 0.5, 0.4]]
        assert ask(server, "rows")[0] == 400
        assert get(server, "/blob?id=1")[0] == 400


def test_a_run_of_this_process_is_shown_before_its_folder_is_there_and_to_its_end(tmp_path):
    board = Board(str(tmp_path / "out"))
    assert board.answer("now", {})["state"] == "starting"
    for second in range(1000):
        board.feed({"share": second / 1000, "seconds": float(second), "stages": []})
    now = board.answer("now", {})
    assert (now["state"], now["live"]["share"]) == ("running", 0.999)
    assert 200 <= len(now["history"]) <= 400
    waiting = threading.Thread(target=board.end, args=(STATS | {"status": "finished"}, 30.0))
    waiting.start()
    while not board.ended:
        time.sleep(0.001)
    assert board.answer("now", {})["state"] == "ended"
    waiting.join(10.0)
    assert not waiting.is_alive(), "it waits though the page has been told"
    with pytest.raises(CuratorError, match="no question"):
        board.answer("records", {})


def test_the_page_is_served_while_a_recipe_runs(tmp_path, monkeypatch):
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": "{i}"}}\n' for i in range(100)))
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"name: demo\nread: {{jsonl: {{path: {tmp_path}/in.jsonl}}}}\nwrite: jsonl\nout: {tmp_path}/out\n")
    seen = []
    feed = Board.feed
    monkeypatch.setattr("curator.cli.main.END_S", 0.05)
    monkeypatch.setattr(Board, "feed", lambda board, shot: (feed(board, shot), seen.append(board.answer("now", {})))[0])
    ran = CliRunner().invoke(main, ["run", "--workers", "0", "--dashboard", str(recipe)])
    assert ran.exit_code == 0, ran.output
    assert "live page: http://127.0.0.1:" in ran.stderr
    assert seen
    assert seen[-1]["state"] == "running"
    again = CliRunner().invoke(main, ["watch", str(tmp_path / "out"), "--dashboard", "70000"])
    assert again.exit_code == 2
    assert "70000" in again.stderr


@pytest.mark.slow
def test_a_browser_shows_hostile_names_as_text(tmp_path):
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no browser is installed")
    run_in(tmp_path)
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        with served(Board(str(tmp_path))) as server:
            driver.get(server.url)
            until = time.monotonic() + 20
            while "Failures" not in driver.page_source and time.monotonic() < until:
                time.sleep(0.05)
            text = driver.find_element("tag name", "body").text
            assert text.count(HOSTILE) >= 6
            assert "about 12 s left" in text
            assert driver.title == f"40 % {HOSTILE}"
            assert driver.find_elements("tag name", "img") == []
            assert driver.get_log("browser") == []
            assert "token" not in driver.current_url
    finally:
        driver.quit()


def test_a_run_can_be_looked_at_from_python_too(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    board = Board(str(tmp_path / "out"))
    (read(str(tmp_path / "in.jsonl")) >> write(str(tmp_path / "out"))).run(workers=0, watch=board.feed)
    assert [stage["name"] for stage in board.answer("now", {})["live"]["stages"]] == ["jsonl", "to_jsonl"]
