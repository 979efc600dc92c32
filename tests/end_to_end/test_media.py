"""Whole runs over media: folders of files to shards, shards to shards and to folders, and what an interruption leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import read, write
from curator.api.errors import ContractError, RecipeError
from curator.front import load
from curator.run.run import run


@pytest.fixture
def files(tmp_path) -> Path:
    for i in range(60):
        path = tmp_path / "in" / f"{i % 3}" / f"{i:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i]) * (1000 + i))
    return tmp_path / "in"


def metadata(folder: Path) -> list[dict]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def members(path: Path) -> dict[str, int]:
    with tarfile.open(path) as archive:
        return {member.name: member.size for member in archive}


RECIPE = """
read: {files: {path: FOLDER/in, unit_bytes: 20000}}
steps:
  - map: {size: octet_length(bytes), folder: "split_part(source, '/', -2)"}
  - drop: {small: size < 1010}
write:
  - webdataset: {records: 10}
  - files: {by: folder}
out: FOLDER/out
"""


def test_files_to_shards_and_to_labelled_folders(files, tmp_path):
    result = run(load(RECIPE.replace("FOLDER", str(tmp_path))), workers=0)
    assert result.records | {"in": 60, "dropped": 10, "failed": 0} == result.records
    about = metadata(tmp_path / "out/data/webdataset")
    assert len(about) == 50
    assert {row["size"] for row in about} == set(range(1010, 1060))
    named = {name: size for path in (tmp_path / "out/data/webdataset").glob("*.tar") for name, size in members(path).items()}
    assert {f"{row['key']}.jpg": row["size"] for row in about} == {n: size for n, size in named.items() if n.endswith(".jpg")}
    placed = metadata(tmp_path / "out/data/files")
    assert {row["file_name"].split("/")[0] for row in placed} == {"0", "1", "2"}
    assert all((tmp_path / "out/data/files" / row["file_name"]).stat().st_size == row["size"] for row in placed)
    again = read(str(tmp_path / "out/data/webdataset" / "*.tar")) >> write(tmp_path / "again", format="webdataset")
    assert again.run(workers=0).records["written"] == 50
    first, second = ({row["id"]: row for row in metadata(tmp_path / name)} for name in ("out/data/webdataset", "again/data"))
    assert first == {name: {k: row[k] for k in first[name]} for name, row in second.items()}


SCRIPT = """
import os, signal, sys
from curator import read, stage, write
@stage
def dies(batch):
    with open({marks!r}, "a") as marks:
        marks.write("x" * len(batch))
    if os.path.getsize({marks!r}) > int(os.environ["AFTER"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return batch
made = read({path!r}, format={format!r}, unit_bytes=20000) >> dies.with_(batch_size=5) >> write({out!r}, format={to!r}, records=4)
result = made.run(workers=0)
print(result.records)
"""


@pytest.mark.parametrize(("format", "to"), [("webdataset", "files"), pytest.param("files", "webdataset", marks=pytest.mark.slow)])
def test_killed_between_and_run_again(files, tmp_path, format, to):
    path = files
    if format == "webdataset":
        path = tmp_path / "tars"
        (read(str(files), format="files", unit_bytes=20000) >> write(path, format="webdataset")).run(workers=0)
    out = tmp_path / "out"
    ended = []
    script = SCRIPT.format(marks=str(tmp_path / "marks"), path=str(path), format=format, out=str(out), to=to)
    for after in ("30", "1000"):
        ended.append(subprocess.run([sys.executable, "-c", script], env=os.environ | {"AFTER": after}, capture_output=True,
                                    text=True, timeout=100, check=False))
    assert [e.returncode for e in ended] == [-signal.SIGKILL, 0], ended[-1].stderr
    assert "'written': 60" in ended[-1].stdout
    data = out / "data"
    about = metadata(data)
    assert len({row["id"] for row in about}) == len(about) == 60
    left = [str(p.relative_to(data)) for p in data.rglob("*") if p.is_file() and p.suffix != ".parquet"]
    if to == "files":
        assert sorted(left) == sorted(row["file_name"] for row in about)
    else:
        assert sorted(left) == sorted(p.with_suffix(".tar").name for p in data.glob("*.parquet"))
        assert len([name for path in data.glob("*.tar") for name in members(path) if name.endswith(".jpg")]) == 60


def test_a_run_in_a_folder_that_it_reads_is_continued_and_does_not_read_what_it_wrote(files):
    pipeline = read(str(files), format="files") >> write(str(files / "z"), format="files")
    first = pipeline.run(workers=0)
    before = sorted(p for p in (files / "z" / "data").rglob("*") if p.is_file())
    again = pipeline.run(workers=0)
    assert (again.records["in"], again.stats["units"]["skipped"]) == (first.records["in"], first.stats["units"]["total"])
    assert sorted(p for p in (files / "z" / "data").rglob("*") if p.is_file()) == before


def test_bytes_inside_an_object_are_pointed_at(tmp_path):
    pq.write_table(pa.table({"image": [{"bytes": b"x", "path": "a.jpg"}]}), tmp_path / "hub.parquet")
    pipeline = read(str(tmp_path / "hub.parquet")) >> write(str(tmp_path / "out"), format="webdataset")
    with pytest.raises(ContractError, match=r"needs 'bytes'.*'image' has it inside: put `map: \{bytes: image\.bytes\}`"):
        pipeline.run(workers=0)


def test_formats_are_told_by_their_suffixes(tmp_path):
    assert type(read(str(tmp_path / "*.tar.gz")).nodes()[0].stage).__name__ == "WebDataset"
    with pytest.raises(RecipeError, match="webdataset, files"):
        read("x.unknown")
