"""How far a unit is read, asked while its source works."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator.io.files.reading import UnitProgress
from curator.io.tables.jsonl import Jsonl
from curator.io.tables.parquet import Parquet


def shares_of(source) -> list[list[float]]:
    """For each unit the share of its bytes that was read when a batch came, and at its end."""
    found = []
    for unit in source.units():
        progress = UnitProgress(unit.parts)
        assert progress.size_bytes == unit.size_bytes
        found.append([*(progress.share() for _ in source.read(unit)), progress.share()])
    return found


def lines(n: int) -> bytes:
    return b"".join(json.dumps({"text": f"{i:09}" * 100}).encode() + b"\n" for i in range(n))


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_by_the_bytes_as_they_lie_there(tmp_path, packed):
    path = tmp_path / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(gzip.compress(lines(60_000), 1) if packed else lines(60_000))
    [shares] = shares_of(Jsonl(path=str(path), unit_bytes=1 << 30))
    assert len(shares) > 4
    assert shares == sorted(shares)
    assert shares[0] < 0.4
    assert 0.3 < shares[len(shares) // 2] < 0.8
    assert shares[-1] > 0.99


def test_ranges_of_a_file_and_files_of_a_group(tmp_path):
    (tmp_path / "big.jsonl").write_bytes(lines(3000))
    for shares in shares_of(Jsonl(path=str(tmp_path / "big.jsonl"), unit_bytes=1 << 20)):
        assert all(0 <= share <= 1 for share in shares)
        assert shares[-1] > 0.99
    for name in "abcd":
        (tmp_path / f"{name}.json.jsonl").write_bytes(lines(10))
    [shares] = shares_of(Jsonl(path=[str(tmp_path / f"{n}.json.jsonl") for n in "abcd"], unit_bytes=1 << 30))
    assert shares[:4] == [0.25, 0.5, 0.75, 1.0]


def test_row_groups_of_parquet(tmp_path):
    table = pa.table({"id": [str(i) for i in range(40_000)], "text": [f"{i * 7919 % 40_000:09}" * 3 for i in range(40_000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4000)
    [shares] = shares_of(Parquet(path=str(tmp_path / "a.parquet")))
    assert len(shares) >= 11
    assert shares == sorted(shares)
    assert 0.3 < shares[len(shares) // 2] < 0.7
    assert shares[-1] > 0.99
