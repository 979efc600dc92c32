"""Whole runs on other filesystems than the disk, and on names that are hard to say."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupExact

from curator import read, write
from curator.api.errors import InputError
from curator.front import load
from curator.io.files.folder import Folder
from curator.recipe.inputs import reads
from curator.scaffold.recipe import new_recipe
from curator.stages import Drop

DOCUMENTS = [{"id": f"d{i}", "text": f"document number {i % 40}", "when": "2024-05-01", "tags": ["a", str(i)]} for i in range(60)]


def lines(documents) -> bytes:
    return "".join(json.dumps(d) + "\n" for d in documents).encode()


def pipeline(path: str, out: str, options: dict | None = None, least: int = 10):
    given = {"storage_options": options} if options else {}
    made = read(path, **given) >> Drop(conditions={"low": f"CAST(split_part(text, ' ', 3) AS INT) < {least}"}) \
        >> DedupExact(column="text")
    return (made >> write(out, compression=None, **given)).named("x", storage_options=options or {})


def records(folder: Folder) -> list[dict]:
    data = folder.sub("data")
    found = [json.loads(line) for n in data.names() for line in data.read(n).splitlines()]
    return sorted(found, key=lambda d: d["id"])


def check_run_edit_and_growth(place: str, options: dict | None, **how) -> None:
    source = Folder.open(f"{place}/in", options)
    source.write("a.jsonl", lines(DOCUMENTS[:45]))
    source.write("b.jsonl", lines(DOCUMENTS[45:]))
    out = Folder.open(f"{place}/out", options)
    first = pipeline(f"{place}/in/*.jsonl", f"{place}/out", options).run(**how)
    assert first.ok, first.stats["message"]
    assert first.records == {"in": 60, "made": 0, "written": 30, "dropped": 20, "duplicate": 10, "failed": 0, "absorbed": 0}
    assert [d["text"] for d in records(out)] == [d["text"] for d in DOCUMENTS[10:40]]
    assert records(out)[0]["tags"] == ["a", "10"]
    again = pipeline(f"{place}/in/*.jsonl", f"{place}/out", options).run(**how)
    assert again.records == first.records
    assert again.stats["units"]["skipped"] == again.stats["units"]["total"]
    edited = pipeline(f"{place}/in/*.jsonl", f"{place}/out", options, least=30).run(replace=True, **how)
    assert edited.records["written"] == 10
    assert len(records(out)) == 10
    source.write("c.jsonl", lines([{"id": "new", "text": "document number 99"}]))
    grown = pipeline(f"{place}/in/*.jsonl", f"{place}/out", options, least=30).run(**how)
    assert grown.records["written"] == 11
    assert {"stats.json", "report.html", "recipe.yaml", "manifest.json"} <= set(out.sub("_run").names())


def check_shards(place: str, options: dict | None, **how) -> None:
    """What shards wrote is copied into the run's folder, and gone from theirs."""
    source = Folder.open(f"{place}/in", options)
    for i in range(6):
        source.write(f"{i}.jsonl", lines(DOCUMENTS[10 * i:10 * i + 10]))
    made = pipeline(f"{place}/in/*.jsonl", f"{place}/parts", options)
    parts = [made.run(shard=f"{i}/2", **how) for i in (1, 2)]
    assert sum(part.records["in"] for part in parts) == 60
    whole = made.run(**how)
    assert whole.records == {"in": 60, "made": 0, "written": 30, "dropped": 20, "duplicate": 10, "failed": 0, "absorbed": 0}
    out = Folder.open(f"{place}/parts", options)
    assert [d["text"] for d in records(out)] == [d["text"] for d in DOCUMENTS[10:40]]
    assert not [name for name in out.sub("_run/shards").names(recursive=True) if "part-" in name]
    assert made.run(**how).stats["units"]["skipped"] == whole.stats["units"]["total"]


def test_memory():
    check_run_edit_and_growth("memory://runs", None)
    check_shards("memory://shards", None)


def test_disk(tmp_path):
    check_run_edit_and_growth(str(tmp_path), None, workers=2)


@pytest.mark.slow
def test_s3(monkeypatch):
    boto3 = pytest.importorskip("boto3")
    from moto.server import ThreadedMotoServer

    for name, value in {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1",
                        "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
        check_run_edit_and_growth("s3://bucket/runs", {"endpoint_url": endpoint}, workers=2)
        check_shards("s3://bucket/shards", {"endpoint_url": endpoint}, workers=2)
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_names_that_are_not_utf8_are_read_and_said_with_their_bytes_escaped(tmp_path, kind, monkeypatch):
    place = os.fsencode(tmp_path) + b"/in/\xe4_sub"
    monkeypatch.setattr("sys.argv", ["curator", "run", "recipe.yaml", os.fsdecode(place)])
    os.makedirs(place)
    rows = pa.table({"text": ["a", "b"]})
    for name in (b"plain", b"\xff\xfe"):
        with open(place + b"/" + name + b"." + kind.encode(), "wb") as file:
            if kind == "parquet":
                pq.write_table(rows, file)
            else:
                file.write(b'{"text": "a"}\n{"text": "b"}\n{"text": \n')
    given = {"folder": str(tmp_path / "in"), "glob": str(tmp_path / "in" / "*" / f"*.{kind}"), "as bytes": os.fsdecode(place),
             "below": os.fsdecode(place + b"/**")}
    for how, path in given.items():
        run = (read(path, format=kind) >> write(str(tmp_path / how), format="jsonl", compression=None)).run
        found = run(workers=0, check=False)
        assert (found.records["written"], found.records["failed"]) == (4, 2 * (kind == "jsonl"))
        assert run(workers=0, check=False).stats["units"]["skipped"] == found.stats["units"]["total"]
        text = "".join(file.read_text() for file in (tmp_path / how / "data").iterdir())
        assert {Path(json.loads(line)["source"]).stem for line in text.splitlines()} == {"plain", r"\xff\xfe"}
    with pytest.raises(InputError, match=r"cannot open .*/out\\xff: its name is not UTF-8"):
        (read(path, format=kind) >> write(os.fsdecode(os.fsencode(tmp_path) + b"/out\xff"))).run(workers=0)


def test_a_name_that_is_not_utf8_is_given_to_a_recipe(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.jsonl")
    Path(path).write_text('{"text": "a"}\n')
    recipe = "name: x\nread: {jsonl: {path: docs/}}\nwrite: jsonl\nout: " + str(tmp_path / "out")
    assert load(recipe, reads(recipe, [path])).run(workers=0).records["written"] == 1
    [new] = new_recipe(str(tmp_path / "new"), read=path)
    assert load(new).run(workers=0, out=str(tmp_path / "new-out")).records["written"] == 1


@pytest.mark.parametrize("path", ["docs", "docs/*.jsonl"])
def test_a_link_to_nothing_among_inputs_fails_under_its_name(tmp_path, path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "docs/gone.jsonl").symlink_to(tmp_path / "moved.jsonl")
    (tmp_path / "docs/itself.jsonl").symlink_to("itself.jsonl")
    made = read(str(tmp_path / path), format="jsonl") >> write(str(tmp_path / "out"), format="jsonl")
    found = made.run(workers=0, check=False)
    assert (found.records["written"], found.records["failed"]) == (1, 2)
    [error] = found.first_errors
    assert "docs/gone.jsonl: it does not exist" in error.error
    (tmp_path / "moved.jsonl").write_text('{"text": "b"}\n')
    assert made.run(workers=0, check=False).records["written"] == 2


def test_a_link_to_itself_is_told(tmp_path):
    (tmp_path / "a.jsonl").symlink_to("a.jsonl")
    with pytest.raises(InputError, match=r"a.jsonl: it is a symbolic link that leads to itself"):
        (read(str(tmp_path / "a.jsonl")) >> write(str(tmp_path / "out"))).run(workers=0)
