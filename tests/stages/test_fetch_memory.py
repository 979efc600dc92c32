"""How many bytes `fetch` holds, however many threads, sizes and tries there are, and however slowly its rows are taken."""

from __future__ import annotations

import gzip
import threading
import time
import tracemalloc

import pyarrow as pa
import pytest

from curator.api.batch import Batch
from curator.api.stage import Context
from curator.io.http import connections
from curator.io.http.room import Room, Share
from curator.stages.fetch.fetch import Fetch
from tests.stages.web_server import Web, page

MB = 1 << 20
FILE = b"\xff\xd8" + bytes(MB - 2)


@pytest.fixture
def web():
    web = Web()
    yield web
    web.close()


@pytest.fixture(autouse=True)
def little_room(monkeypatch):
    monkeypatch.setattr("curator.stages.fetch.fetch.HELD_BYTES", 8 * MB)
    monkeypatch.setattr("curator.stages.fetch.fetch.PART_BYTES", 2 * MB)


def breaks_off_once(body):
    """A page that ends in the middle when it is asked for the first time."""
    asked = []

    def answer(handler) -> None:
        asked.append(1)
        if len(asked) > 1:
            return page(body)(handler)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(body[:len(body) // 2])
        handler.close_connection = True

    return answer


def drips(body, chunk=1 << 15):
    """A page without a length, in small pieces."""

    def answer(handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for at in range(0, len(body), chunk):
            some = body[at:at + chunk]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(some), some))
        handler.wfile.write(b"0\r\n\r\n")

    return answer


KINDS = {"of known size": lambda: page(FILE), "of unknown size": lambda: page(FILE, length=False),
         "in chunks": lambda: drips(FILE), "broken off once": lambda: breaks_off_once(FILE),
         "compressed": lambda: page(gzip.compress(FILE), Content_Encoding="gzip")}


def manifest(web, pages) -> Batch:
    for number, one in enumerate(pages):
        web.pages[f"/{number}"] = one
    return Batch(pa.table({"id": [str(n) for n in range(len(pages))], "source": ["m"] * len(pages),
                           "url": [f"{web.url}/{n}" for n in range(len(pages))]}))


def taken_slowly(stage: Fetch, batch: Batch) -> tuple[list[int], int]:
    """Sizes of what comes, and the most bytes that Python held. Before a part is taken everything goes as far as it can."""
    stage.setup(Context())
    sizes = []
    try:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for outputs in stage.process(batch):
            assert set(outputs) == {"out"}, outputs
            sizes += [len(data) for data in outputs["out"].rows["bytes"].to_pylist()]
            del outputs
            until, seen = time.monotonic() + 0.5, -1
            while time.monotonic() < until and seen != stage._room.used:  # as long as more comes, others may work
                seen = stage._room.used
                time.sleep(0.02)
        return sizes, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        stage.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_fetched_and_not_sent_on_has_a_bound(web, kind):
    stage = Fetch(private=True, backoff_s=0.0, threads=32, per_host=32, max_bytes=2 * MB)
    sizes, held = taken_slowly(stage, manifest(web, [KINDS[kind]() for _ in range(60)]))
    assert sizes == [len(FILE)] * 60
    assert stage._room.most_used <= 8 * MB + stage.max_bytes
    assert stage._room.used == 0
    # Beside the room: a chunk for each thread, with what the connection and the decompression keep of it; this test's own list.
    assert held < 8 * MB + stage.max_bytes + 32 * (4 << 16) + 2 * MB


def test_files_of_all_kinds_and_larger_than_all_the_room_come_one_beyond_it(web):
    large = bytes(11 * MB)
    pages = [page(large, length=n % 2 == 0) if n % 3 == 0 else list(KINDS.values())[n % 5]() for n in range(24)]
    stage = Fetch(private=True, backoff_s=0.0, threads=16, per_host=16, max_bytes=12 * MB)
    sizes, _ = taken_slowly(stage, manifest(web, pages))
    assert sorted(sizes) == sorted(len(large) if n % 3 == 0 else len(FILE) for n in range(24))
    assert stage._room.most_used <= 8 * MB + stage.max_bytes
    assert stage._room.used == 0


def test_files_below_a_root_count_too(tmp_path):
    for number in range(40):
        (tmp_path / str(number)).write_bytes(FILE)
    (tmp_path / "large").write_bytes(bytes(3 * MB))
    names = [*map(str, range(40)), "large"]
    batch = Batch(pa.table({"id": names, "source": ["m"] * 41, "url": names}))
    stage = Fetch(root=str(tmp_path), max_bytes=2 * MB)
    stage.setup(Context())
    ports = [(port, len(one)) for outputs in stage.process(batch) for port, one in outputs.items()]
    stage.close()
    assert sum(rows for port, rows in ports if port == "out") == 40
    assert sum(rows for port, rows in ports if port == "dropped") == 1
    assert stage._room.most_used <= 8 * MB + stage.max_bytes


def test_who_leaves_in_the_middle_leaves_nobody_waiting(web):
    stage = Fetch(private=True, threads=16, per_host=16)
    stage.setup(Context())
    answers = stage.process(manifest(web, [page(FILE) for _ in range(40)]))
    next(answers)
    answers.close()
    stage.close()
    for thread in stage._pool._threads:
        thread.join(30)
        assert not thread.is_alive()


def test_time_in_which_there_is_no_room_is_not_the_servers(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(connections.time, "monotonic", lambda: now[0])

    class Slow(Share):
        def grow(self, nbytes):
            now[0] += 1000
            assert transfer.remaining_s() > 0
            return True

    transfer = connections.Transfer(10.0, True, Slow(Room(1)))
    now[0] += 4
    transfer.hold(5)
    assert transfer.remaining_s() == 6.0
    assert transfer.waited
    transfer.check()


def test_one_share_at_a_time_goes_beyond_the_room():
    room = Room(10)
    first, second, third = (Share(room) for _ in range(3))
    assert not first.grow(8)
    assert not second.grow(7)  # beyond
    assert not second.grow(9), "it may grow on"
    waiting = threading.Thread(target=third.grow, args=(1,))
    waiting.start()
    while not room.crowded:
        time.sleep(0.001)
    first.shrink()
    waiting.join(30)
    assert (first.held, second.held, third.held) == (0, 9, 1)
    assert room.most_used == 17
