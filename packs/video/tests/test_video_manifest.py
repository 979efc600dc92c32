"""Manifests of films: spans in all spellings, films inside Parquet; and video/split over every kind of input."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile

import av
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from curator_video.read.decode import Decode
from curator_video.read.manifest import SPANS, Manifest
from curator_video.read.probe import Probe
from curator_video.shots.spans import Spans

from curator.cli.main import main
from curator.testing import check_source, run_stage
from packs.video.tests.films import film, number_of, numbered
from packs.video.tests.hostile import two_shots
from packs.video.tests.test_video_recipes import run, table
from tests.stages.web_server import Web, page

FILM = film(numbered(100), 25, options={"crf": "20", "preset": "ultrafast", "g": "20"})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "a.mp4").write_bytes(FILM)
    return tmp_path


def read(source):
    """Batches by port."""
    found = {"out": [], "failed": []}
    for unit in source.units():
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                found[port].append(batch)
    return found


def rows(batches):
    return [row for batch in batches for row in batch.rows.to_pylist()]


def lines(folder, *records):
    (folder / "list.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return str(folder / "list.jsonl")


def shown(batch):
    return [[number_of(picture) for picture in frames] for frames in batch.frames]


def test_only_the_part_that_a_line_names_is_decoded(folder):
    path = lines(folder, {"path": "films/a.mp4", "start_s": "1.0", "end_s": 1.2, "caption": "one"},
                 {"path": "films/a.mp4", "start_s": "0:00:03.8"}, {"path": "films/a.mp4", "start_s": "soon"}, {"caption": "lost"})
    found = read(Manifest(path=path))
    assert [(row["start_s"], row["end_s"], row["extension"], row["bytes"]) for row in rows(found["out"])] == [
        (1.0, 1.2, "mp4", None), (3.8, None, "mp4", None)]
    assert [row["error"] for row in rows(found["failed"])] == ["no number: start_s is 'soon'", "no path: path is None"]
    probed = run_stage(Probe(), found["out"][0])["out"]
    assert probed.column("duration") == pytest.approx([0.2, 0.2])
    assert probed.column("frame_count") == [100, 100]
    decoded = run_stage(Decode(pick="all", size=None), probed)["out"]
    assert shown(decoded) == [[25, 26, 27, 28, 29], [95, 96, 97, 98, 99]]
    check_source(Manifest(path=path))


@pytest.mark.parametrize(("spans", "none"), [
    ([{"start": 1, "end": 1.2}, {"start": 3.8, "end": 4}], [{"start": 3.0, "end": None}]), ([[1.0, 1.2], [3.8, 4]], [[3.0]]),
    ("[['0:00:01.0', '0:00:01.2'], [3.8, 4]]", "from noon")], ids=["objects", "pairs", "text"])
def test_a_list_of_spans_becomes_records(folder, spans, none):
    path = lines(folder, {"video": "films/a.mp4", "spans": spans}, {"video": "films/a.mp4", "spans": none},
                 {"video": "films/a.mp4"})
    source = Manifest(path=path)
    assert source.columns()["spans"] == SPANS
    found = read(source)
    assert [row["error"] for row in rows(found["failed"])] == [f"no spans: {none!r}"]
    clips = run_stage(Spans(by="spans", min=0.1), found["out"][0])
    assert clips["dropped"].column("reason") == ["no_clips"]
    assert shown(run_stage(Decode(pick="all", size=None), clips["out"])["out"]) == [[25, 26, 27, 28, 29], [95, 96, 97, 98, 99]]


def test_films_inside_parquet(folder):
    """As datasets of the Hugging Face hub have them, or as a run wrote them: there the name leads nowhere."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    hub = pa.table({"video": pa.array([{"bytes": FILM, "path": "x.mp4"}, {"bytes": None, "path": "films/a.mp4"}], kind), "end_s": [1, 2]})
    pq.write_table(hub, folder / "hub.parquet")
    pq.write_table(pa.table({"bytes": [FILM], "extension": ["mp4"], "start_s": [3.0]}), folder / "plain.parquet")
    for name, ends in (("hub", [1.0, 2.0]), ("plain", [4.0])):
        source = Manifest(path=str(folder / f"{name}.parquet"))
        out = read(source)["out"][0]
        assert out.column("extension") == ["mp4"] * len(ends)
        assert run_stage(Probe(), out)["out"].column("end_s") == ends
        check_source(source)


# -- runs -------------------------------------------------------------------------------------------------------------


def inputs(folder, web):
    """The same film by every way into a recipe: what is read, steps before the first."""
    data = (folder / "film.mp4").read_bytes()
    lines(folder, {"path": "film.mp4", "start_s": 0, "end_s": 4.8})
    yield "jsonl", {"video.manifest": {"path": str(folder / "list.jsonl")}}, []
    (folder / "list.csv").write_text("path,start_s,end_s\nfilm.mp4,0,4.8\n")
    yield "csv", {"video.manifest": {"path": str(folder / "list.csv")}}, []
    pq.write_table(pa.table({"path": [str(folder / "film.mp4")], "start_s": [0], "end_s": [4.8]}), folder / "columns.parquet")
    yield "columns", {"parquet": {"path": str(folder / "columns.parquet")}}, []
    pq.write_table(pa.table({"video": [{"bytes": data, "path": "f.mp4"}]}), folder / "hub.parquet")
    yield "hub", {"video.manifest": {"path": str(folder / "hub.parquet")}}, []
    with tarfile.open(folder / "shard.tar", "w") as archive:
        for name, content in (("a.mp4", data), ("a.json", b'{"caption": "two pictures"}')):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    yield "shards", {"webdataset": {"path": str(folder / "shard.tar")}}, []
    web.pages["/film.mp4"] = page(data, Content_Type="video/mp4")
    (folder / "urls.jsonl").write_text(json.dumps({"url": f"{web.url}/film.mp4"}) + "\n")
    yield "urls", {"jsonl": {"path": str(folder / "urls.jsonl")}}, [{"fetch": {"private": True, "content_types": ["video/*"]}}]


@pytest.mark.slow
def test_video_split_takes_films_from_everywhere(tmp_path):
    (tmp_path / "film.mp4").write_bytes(two_shots(1))
    recipe = CliRunner().invoke(main, ["recipes", "video/split"]).output
    clips = {}
    with contextlib.closing(Web()) as web:
        for name, read, before in inputs(tmp_path, web):
            begin, end = recipe.index("\nread:"), recipe.index("\nsteps:")
            text = f"{recipe[:begin]}\nread: {json.dumps(read)}\nsteps:\n" + "".join(f"  - {json.dumps(one)}\n" for one in before)
            (tmp_path / "recipe.yaml").write_text(text + recipe[end + len("\nsteps:\n"):])
            run(tmp_path / name, str(tmp_path / "recipe.yaml"))
            clips[name] = sorted((row["start_s"], row["end_s"], row["clip_frames"]) for row in table(tmp_path / name / "data"))
    wanted = [(0.0, pytest.approx(2.4), 60), (pytest.approx(2.4), pytest.approx(4.8), 60)]
    assert {name: found for name, found in clips.items() if found != wanted} == {}
    assert len(clips) == 6
    with tarfile.open(next((tmp_path / "shards/data").glob("*.tar"))) as archive:
        names = archive.getnames()
        first = archive.extractfile(next(name for name in names if name.endswith("mp4"))).read()
    with av.open(io.BytesIO(first)) as clip:
        assert len(list(clip.decode(video=0))) == 60
