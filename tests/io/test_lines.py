from __future__ import annotations

import gzip
import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.io.files.compression import decompressed
from curator.io.tables.lines import BOM, Block, Unreadable, line_spans, read_blocks

LINE = st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))


def lines_of(data: bytes, start: int = 0, stop: int | None = None, **limits) -> list[tuple[int, bytes]]:
    found = []
    for block in read_blocks(io.BytesIO(data), start, stop, **{"max_line_bytes": 10**9, **limits}):
        assert isinstance(block, Block)
        starts, ends, _ = line_spans(block.data)
        found += [(block.offset + int(s), block.data[s:e]) for s, e in zip(starts, ends, strict=True)]
    return found


@given(st.lists(LINE, max_size=30), st.sampled_from([b"\n", b"\r\n"]), st.booleans(), st.sets(st.integers(1, 200)),
       st.integers(1, 20))
def test_ranges_side_by_side_give_each_line_once(lines, ending, final, cuts, block_bytes):
    data = ending.join(lines) + (ending if final else b"")
    lines = [lines[0].removeprefix(BOM), *lines[1:]] if lines else []
    edges = [0, *sorted(c for c in cuts if c < len(data)), len(data)]
    ranges = [found for start, stop in pairwise(edges)
              for found in lines_of(data, start, stop, block_bytes=block_bytes)]
    whole = lines_of(data)
    assert ranges == whole
    assert [line for _, line in whole] == [line for line in lines if line]
    assert all(data[at:at + len(line)] == line for at, line in whole)


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(1, 25), st.integers(1, 25))
def test_a_line_that_is_too_long_is_told_and_the_others_come(lengths, limit, block_bytes):
    data = b"".join(b"x" * n + b"\n" for n in lengths)
    good, bad = [], []
    for block in read_blocks(io.BytesIO(data), max_line_bytes=limit, block_bytes=block_bytes):
        if isinstance(block, Unreadable):
            bad.append(block.offset)
        else:
            starts, ends, _ = line_spans(block.data)
            good += [int(e - s) for s, e in zip(starts, ends, strict=True)]
    assert [n for n in good if n < limit] == [n for n in lengths if 0 < n < limit]
    assert len(good) + len(bad) == sum(1 for n in lengths if n)
    # A line inside a block is not measured here; one that needs more than a block and the limit is.
    assert all(n <= max(limit, block_bytes, 3) for n in good)


def test_a_long_line_says_its_length_and_how_it_begins():
    data = b"ok\n" + b"y" * 500 + b"\nok\n"
    found = list(read_blocks(io.BytesIO(data), max_line_bytes=100, block_bytes=64))
    bad = [b for b in found if isinstance(b, Unreadable)]
    assert [(b.offset, b.raw[:3]) for b in bad] == [(3, b"yyy")]
    assert "501 bytes, more than max_record_bytes (100)" in str(bad[0].error)
    assert b"".join(b.data for b in found if isinstance(b, Block)) == b"ok\nok\n"


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 100])
def test_a_byte_order_mark_is_skipped(block_bytes):
    assert lines_of(b"\xef\xbb\xbfa\nb", block_bytes=block_bytes) == [(3, b"a"), (5, b"b")]


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\r\n\n"])
def test_nothing_but_blank_lines(data):
    assert lines_of(data) == []


def test_the_lines_before_a_damage_come_and_the_place_is_told():
    data = b"".join(b"line %d\n" % (n * 7919 % 10007) for n in range(20_000))
    packed = gzip.compress(data)[:-len(gzip.compress(data)) // 2]
    found = list(read_blocks(decompressed(io.BytesIO(packed), "gz", "f"), max_line_bytes=100))
    assert isinstance(found[-1], Unreadable)
    good = b"".join(b.data for b in found[:-1])
    assert data.startswith(good)
    assert good.endswith(b"\n")
    assert found[-1].offset == len(good)
    assert data.startswith(good + found[-1].raw)
