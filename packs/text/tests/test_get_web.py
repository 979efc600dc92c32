"""Large files piece by piece, and few requests at a time whoever asks."""

from __future__ import annotations

import os
import threading
import time

import pytest
from curator_text.get import turns
from curator_text.get.turns import Turns
from curator_text.get.web import WebSource

from curator.api.errors import CuratorError, InputError
from packs.text.tests.archive_server import Archives

DATA = bytes(range(256)) * 9


@pytest.fixture
def server():
    made = Archives({"a": DATA})
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setattr(turns.tempfile, "gettempdir", lambda: str(tmp_path))


def opened(server, **parameters):
    return WebSource(**{"private": True, "backoff_s": 0.0, **parameters}).web()


def test_a_file_is_read_in_pieces_from_any_place(server):
    with opened(server) as web, web.open(f"{server.url}/a", piece_bytes=1000) as file:
        assert file.read() == DATA
        assert server.parts["a"] == [(0, 1000), (1000, 2000), (2000, 2304)]
        file.seek(-4, os.SEEK_END)
        assert file.read() == DATA[-4:]
        file.seek(5)
        assert (file.read(3), file.tell()) == (DATA[5:8], 8)


def test_a_file_that_changes_or_has_another_length_is_told(server):
    with opened(server) as web:
        with web.open(f"{server.url}/a", size_bytes=99) as file, pytest.raises(InputError, match="2304 bytes, not 99"):
            file.read(1)
        with web.open(f"{server.url}/a", piece_bytes=1000) as file:
            file.read(1000)
            server.put("a", DATA[:-1])
            with pytest.raises(InputError, match="2303 bytes, not 2304"):
                file.read()


def test_all_who_ask_a_host_share_its_places():
    turn, inside, most = Turns(2, 0.0), 0, 0
    lock = threading.Lock()

    def work():
        nonlocal inside, most
        for _ in range(20):
            with turn.turn("host"):
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 2


def test_a_pause_stands_between_two_requests_in_one_place():
    began = time.monotonic()
    for _ in range(3):
        with Turns(1, 0.05).turn("host"):
            pass
    assert time.monotonic() - began >= 0.1


def test_a_folder_of_another_is_not_used(tmp_path):
    (tmp_path / f"curator-turns-{os.geteuid()}").symlink_to(tmp_path)
    with pytest.raises(CuratorError, match="not a folder of this user"), Turns(1, 0.0).turn("host"):
        pass
