"""The fork servers of tests are as those of users."""

import os
from pathlib import Path

from curator.worker.processes import Processes
from tests.engine.small_stages import TOKEN, orphans, wait_until


def test_it_has_the_environment_and_the_folder_of_who_wants_it_and_is_found_by_its_token(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    processes = Processes()
    try:
        pid = processes.fork_server_process.pid
        wait_until(lambda: orphans(str(tmp_path)))
        wait_until(lambda: os.readlink(f"/proc/{pid}/cwd") == str(tmp_path))
        assert os.getsid(pid) == pid
        assert len(os.listdir(f"/proc/{pid}/task")) == 1
    finally:
        processes.close()
    wait_until(lambda: not orphans(str(tmp_path)))
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
