"""A part of a file of a server: what was asked for comes, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from curator.io.http.client import Client, Limits
from curator.io.http.room import Room, Share
from tests.stages.web_server import Web, page

LIMITS = Limits(max_bytes=1 << 20, connect_timeout_s=5.0, read_timeout_s=5.0, deadline_s=20.0, retries=1, backoff_s=0.0)
DATA = bytes(range(100))


def got(pages, part):
    """What the first page, then the second and so on, answers to a request for a part."""
    web, left = Web(), list(pages)
    client = Client(LIMITS, {}, lambda url, headers, redirect: None, private=True)
    try:
        web.pages["/a"] = lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)
        return client.get(f"{web.url}/a", Share(Room(1 << 20)), part)
    finally:
        client.close()
        web.close()


def part_of(start, stop, said=None, total=100):
    return page(DATA[start:stop], status=206, Content_Range=said or f"bytes {start}-{stop - 1}/{total}", ETag='"one"')


def test_a_part_comes_with_the_size_of_the_whole():
    found = got([part_of(10, 20)], (10, 20))
    assert (found.data, found.total, found.version) == (DATA[10:20], 100, '"one"')
    assert got([part_of(90, 100)], (90, 120)).data == DATA[90:]
    assert got([page(DATA)], (0, 100)).data == DATA  # all there is, from a server that knows no parts


@pytest.mark.parametrize("answer", [page(DATA), page(DATA * 900), part_of(0, 10), part_of(10, 30), part_of(10, 20, said="bytes 10-19/*")])
def test_what_is_not_the_part_is_refused(answer):
    assert got([answer], (10, 20)).reason == "no_ranges"


def test_a_part_that_is_too_short_is_asked_for_again():
    assert got([part_of(10, 15), part_of(10, 20)], (10, 20)).data == DATA[10:20]
    assert "5 of 10 bytes" in got([part_of(10, 15)], (10, 20)).error
