"""The core's pack, whole: every stage, source and sink that recipes can name keeps the rules that strangers' keep."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from curator.api.tasks import ImageBatch, TextBatch
from curator.registry import packs
from curator.stages import (
    Arrow,
    Checkpoint,
    Csv,
    Drop,
    Each,
    Fetch,
    Files,
    Hub,
    Jsonl,
    Limit,
    Map,
    Merge,
    Mix,
    Parquet,
    Rename,
    Repeat,
    Route,
    Sample,
    ScoreBins,
    Select,
    Shuffle,
    Split,
    ToArrow,
    ToCsv,
    ToFile,
    ToFiles,
    ToHub,
    ToJsonl,
    Top,
    ToParquet,
    ToWebDataset,
    WebDataset,
)
from curator.testing import check_pack
from tests.io.hub_server import HubServer

ROOT = Path(__file__).parents[1]
ROWS = {"text": ["a line\nand another", "a line", "", None, "a line\nand another", "so", "A line", "é"],
        "lang": ["en", "de", None, "fr"] * 2, "n": [*range(7), None],
        "quality": [1.0, 3.0, 2.0, 3.0, None, 0.5, 2.5, 3.0]}


def batch(**columns):
    rows = len(next(iter(columns.values())))
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(rows)], "source": ["s"] * rows, **columns}))


def one_by_one():
    rows = batch(**ROWS)
    shown = ImageBatch(rows.rows, encoded=[b"x"] * 8, pixels=[np.zeros((1, 1, 3), np.uint8)] * 8)
    yield Drop(conditions={"few": "n < 3", "empty": "text = ''"}), rows
    yield Route(routes={"few": "n < 3", "rest": "n >= 4"}), rows
    yield Merge(), shown
    yield Checkpoint(), shown
    yield from ((Limit(records=count), rows) for count in (0, 5))
    yield from ((Sample(**how), rows) for how in (
        {"fraction": 0.5, "seed": 1}, {"by": "lang", "fractions": {"en": 0.5, "de": 0.0}}))
    yield from ((Select(**names), shown) for names in ({"keep": ["text", "pixels"]}, {"drop": ["text", "pixels"]}))
    yield from ((Rename(columns=names), shown) for names in ({"text": "caption"}, {"text": "n", "n": "text"}))
    yield Each(payload="text", as_="word", steps=[Map(columns={"size": "length(word)"})], gather={"size": ["max", "count"]}), batch(
        text=[["a", "bcd"], [], None, ["é"]])
    yield Map(columns={"n": "n * 0.5", "new": "upper(text)"}), shown
    yield from ((stage, rows) for stage in (
        ScoreBins(scores="quality", by="lang", ensemble="max"), ScoreBins(scores="quality", edges={"quality": [0.5]}),
        Repeat(times=1.5), Mix(by="lang", shares={"en": 1, "de": 2}, repeats=2), Shuffle(),
        Split(shares={"train": 0.5, "validation": 0.5}, by="lang")))
    yield from ((Top(by="quality", **how), rows) for how in ({"n": 2}, {"n": 1, "key": "lang"}, {"n": 2, "order": "asc"}))


def reads_and_writes(folder):
    table = pa.table({"text": [f"text {n}" for n in range(60)], "n": range(60)})
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b"\n".join(json.dumps(row).encode() for row in table.to_pylist())))
    (folder / "b.jsonl").write_text('{"text": "x"}\n{"text": \n{"text": "y"}\n')
    (folder / "a.csv").write_text("text,n\n" + "".join(f"text {n},{n}\n" for n in range(60)))
    pq.write_table(table, folder / "a.parquet", row_group_size=20)
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=20)
    rows = batch(text=["x", None, "é\n"], n=[1, 2, None])
    for source, file in ((Jsonl, "*.jsonl*"), (Csv, "a.csv"), (Parquet, "a.parquet"), (Arrow, "a.arrow")):
        yield source(path=str(folder / file))
        yield source(path=str(folder / file), unit_bytes=100)
    yield ToParquet(path=str(folder / "out-parquet")), rows, {"read": pq.read_table}
    yield ToFile(file=str(folder / "one.jsonl")), rows, {"read": pq.read_table}
    yield ToJsonl(path=str(folder / "out-jsonl")), rows
    yield ToCsv(path=str(folder / "out-csv")), rows
    yield ToArrow(path=str(folder / "out-arrow")), rows, {"read": feather.read_table}


def hub(server, folder):
    server.put("o/n", {"data/train.parquet": (folder / "a.parquet").read_bytes(), "data/test.parquet": (folder / "a.parquet").read_bytes()})
    yield Hub(path="o/n", unit_bytes=100)
    yield ToHub(repo="o/made", path=str(folder / "out-hub")), batch(text=["x", None, "é"], n=[1, 2, None]), {"read": pq.read_table}


def media(folder):
    (folder / "in").mkdir()
    for name, data in {"a.jpg": b"A", "B.PNG": b"B", "empty": b"", "sub.txt": b"text"}.items():
        (folder / "in" / name).write_bytes(data)
    with tarfile.open(folder / "samples.tar", "w") as archive:
        for name, data in {"1.jpg": b"A", "1.json": b'{"n": 1}', "2.jpg": b"B", "2.txt": b"two", "3.json": b"{"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    yield Files(path=str(folder / "in"))
    yield Files(path=str(folder / "in"), unit_bytes=1, max_file_bytes=2)
    yield WebDataset(path=str(folder / "samples.tar"))
    rows = batch(bytes=[b"A", b"", None], extension=["jpg", "png", None], txt=["one", None, "three"], n=[1, None, 2])
    yield ToWebDataset(path=str(folder / "out-webdataset")), rows
    yield ToFiles(path=str(folder / "out-files")), rows
    yield ToFiles(path=str(folder / "out-folders"), by="n"), rows
    yield Fetch(root=str(folder / "in")), batch(url=["a.jpg", "B.PNG", None, "none.jpg", "../samples.tar", "ftp://x/y", ""])


def test_the_pack(tmp_path, monkeypatch):
    for name in ("files", "media"):
        (tmp_path / name).mkdir()
    server = HubServer()
    server.stand_in(monkeypatch)
    check_pack("core", [*reads_and_writes(tmp_path / "files"), *hub(server, tmp_path / "files"), *media(tmp_path / "media"),
                        *one_by_one()], without=("lance", "to_lance", "iceberg"))  # tests/io/test_lance.py, test_iceberg.py
    server.close()


def ours() -> list[str]:
    """The installed packs that lie in this repository."""
    places = {pack.name: importlib.util.find_spec(pack.module.partition(".")[0]) for pack in packs.installed()}
    return [name for name, spec in places.items() if spec is not None and Path(spec.origin).is_relative_to(ROOT)]


@pytest.mark.parametrize("name", ours())
def test_each_pack_of_ours_is_tested_like_this(name):
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("packs/*/tests/test_*.py")]
    assert any(f'check_pack("{name}"' in file.read_text(encoding="utf-8") for file in files)
