"""report.html: one page that needs nothing else, with examples from the files of the run."""

from __future__ import annotations

import base64
import io
import json
import re
import tarfile
import tracemalloc
from html.parser import HTMLParser

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator.api import format as fmt
from curator.api.counts import Counts
from curator.io.files.folder import Folder
from curator.observe.report.examples import find_examples
from curator.observe.report.page import render_report
from tests.observe.runs import branched, chain, run_of, small


class Balanced(HTMLParser):
    """Fails on a tag that is not closed; collects tags and attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", [small, branched, lambda: run_of(Counts(), 0)], ids=["small", "branched", "empty"])
def test_the_report_is_one_well_formed_file_that_needs_nothing_else(make):
    stats, page = make(), Balanced()
    html = render_report(stats, "steps: []")
    page.feed(html)
    assert page.open == []
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert not any(key in ("src", "href") or key.startswith("on") for _, attrs in page.seen for key in attrs)
    assert "http://" not in html
    assert "https://" not in html
    assert "img-src data:; media-src data:" in html  # what examples show lies in the page


def test_the_report_escapes_what_comes_from_recipe_and_data():
    evil = "<script>alert(1)</script>"
    stats = chain((evil, "source", Counts(30, 0, {"out": 29}, {evil: 1}), [evil]),
                  ("sink", "sink", Counts(29, 0, {"written": 29})), message=evil, out=evil, limit=evil,
                  columns={evil: {"language": {"rows": 30, "nulls": 0, "constant": True, "values": {evil: 30}}}})
    html = render_report(stats, evil)
    assert evil not in html
    assert html.count("&lt;script&gt;") >= 8


def test_the_report_tells_every_reason_and_the_recipe():
    html = render_report(branched(), "read: {jsonl: {path: x}}")
    assert all(f"rule_{i:02}" in html for i in range(30))
    assert "read: {jsonl: {path: x}}" in html


def test_the_report_shows_the_first_error_of_a_stage_with_its_place():
    error = {"stage": "clean", "error": "ZeroDivisionError: <0>", "traceback": "Traceback of clean", "file": "mine.py",
             "line": 7, "record": "doc-3"}
    html = render_report(small() | {"first_errors": [error]}, "steps: []")
    page = Balanced()
    page.feed(html)
    assert page.open == []
    shown = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html))
    assert "clean, record doc-3, mine.py line 7: ZeroDivisionError: &lt;0&gt;" in shown
    assert "Traceback of clean" in shown


@pytest.fixture
def lossy(tmp_path):
    """Stats of a run that wrote, dropped and failed records, with its files."""
    def file(path, port, stage, **columns):
        count = len(next(iter(columns.values())))
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": [f"{path[0]}{i}" for i in range(count)], "source": ["folder/doc.txt"] * count, **columns})
        pq.write_table(table, tmp_path / path)
        return {"path": path, "rows": count, "size_bytes": 1, "stage": stage, "port": port}

    words = "a text with more than a few words in it, <b>bold</b>, " * 20
    files = [file("dropped/rule/a.parquet", "dropped", "rule", text=[words] * 9, reason=["short", "long", "long"] * 3),
             file("b.parquet", "written", "write", text=["red", "green"], thumbnail=[b"\x89PNG\r\n\x1a\n" + bytes(20), b"<svg onload=x>"]),
             file("c.parquet", "written", "write", text=["blue"], thumbnail=[b"\xff\xd8\xff" + bytes(90_000)]),
             {"path": "gone.jsonl.gz", "rows": 3, "size_bytes": 1, "stage": "write", "port": "written"}]
    line = json.dumps({"id": "d", "source": "s", "text": "a line of JSON with some words in it"})
    (tmp_path / "d.jsonl").write_text(line + "\n")
    files.append({"path": "d.jsonl", "rows": 1, "size_bytes": 1, "stage": "write", "port": "written"})
    stats = chain(("read", "source", Counts(12, 0, {"out": 12})), ("rule", "stage", Counts(12, 0, {"out": 3}, {"short": 9})),
                  ("write", "sink", Counts(3, 0, {"written": 3})))
    return stats | {"files": files, "example_columns": {"thumbnail": "image"}}, Folder.open(str(tmp_path))


def test_examples_show_a_few_records_of_each_reason(lossy):
    stats, out = lossy
    groups = find_examples(stats, out)
    assert [(g.port, g.stage, g.reason, len(g.examples)) for g in groups] == [
        ("written", "write", "", 4), ("dropped", "rule", "short", 3), ("dropped", "rule", "long", 6)]
    assert [one["picture"][:15] for one in groups[0].examples] == ["data:image/png;", "", "", ""]
    assert [one["excerpt"] for one in groups[0].examples] == [*["folder/doc.txt"] * 3, "a line of JSON with some words in it"]
    assert all(100 < len(one["excerpt"]) <= 280 for one in groups[1].examples)


@pytest.mark.parametrize("path", ["long.jsonl", "long.parquet"])
def test_examples_of_long_texts_are_looked_for_in_a_few_of_them(tmp_path, path):
    rows = [{"id": str(i), "source": "s", "text": chr(97 + i % 26) * (1 << 20)} for i in range(60)]
    if path.endswith(".jsonl"):
        (tmp_path / path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / path)
    del rows
    stats = {"files": [{"path": path, "port": "written", "stage": "write"}], "stages": [{"name": "write"}]}
    tracemalloc.start()
    try:
        group, = find_examples(stats, Folder.open(str(tmp_path)))
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert [one["id"] for one in group.examples] == list("012345")


def test_examples_in_the_report_are_escaped_and_bounded(lossy):
    stats, out = lossy
    html = render_report(stats, "", out)
    assert "&lt;b&gt;bold" in html
    assert "<b>bold" not in html
    assert "svg onload" not in html
    assert html.count("<img") == 1
    assert len(html) < 100_000


def test_each_stage_has_a_bar_of_what_became_of_its_rows():
    bars = re.findall(r'<div class="stack">(.*?)</div>.*?<b>(\w+)</b>', render_report(branched()), re.S)
    parts = {name: {kind: float(width) for kind, width in re.findall(r'class="(\w+)" style="width:([\d.]+)%"', bar)} for bar, name in bars}
    assert parts["rules"] == {"kept": 75.25, "dropped": 4.65}
    assert parts["best"] == {"written": 70.0}
    assert parts["warc"] == {"kept": 99.9, "failed": 0.1}
    assert "dropped" not in parts["language"]  # its dropped rows go on to a stage
    assert all(sum(part.values()) <= 100 for part in parts.values())


def test_examples_show_the_columns_that_stages_declare(tmp_path):
    rows = [{"id": "a", "source": "folder/a.jpg", "caption": "a cat on a mat", "words": "long " * 50, "score": 0.5}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    stats = {"files": [{"path": "a.parquet", "port": "written", "stage": "write"}], "stages": [{"name": "write"}],
             "example_columns": {"caption": "text", "score": "number", "words": "number", "gone": "image"}}
    group, = find_examples(stats, Folder.open(str(tmp_path)))
    assert group.examples == [{"id": "a", "source": "folder/a.jpg", "picture": "", "about": "score 0.5", "excerpt": "a cat on a mat",
                               "audio": "", "video": "", "more": "", "stays": ""}]


def test_a_hash_is_no_excerpt(tmp_path):
    (tmp_path / "dropped").mkdir()
    pq.write_table(pa.table({"id": ["a"], "source": ["talk.wav"], "hash": ["0f" * 32]}), tmp_path / "dropped/a.parquet")
    stats = {"files": [{"path": "dropped/a.parquet", "port": "dropped", "stage": "s"}], "stages": [{"name": "s"}]}
    (group,) = find_examples(stats, Folder.open(str(tmp_path)))
    assert group.examples[0]["excerpt"] == "talk.wav"


@pytest.mark.parametrize("kind", ["audio", "video"])  # a branch may have sound where the films are elsewhere
def test_sounds_are_played_from_columns_and_from_archives(tmp_path, kind):
    (tmp_path / "dropped").mkdir()
    lost = {"id": ["quiet"], "source": ["a"], "reason": ["quiet"], "bytes": [b"fLaC quiet"]}
    pq.write_table(pa.table(lost), tmp_path / "dropped/a.parquet")
    pq.write_table(pa.table({"id": ["x", "y"], "source": ["b", "b"], "key": ["x", "y"]}), tmp_path / "b.parquet")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, data in (("x.flac", b"fLaC kept"), ("x.json", b"{}"), ("y.opus", b"OggS too"), ("y.json", b"{}")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    files = [{"path": path, "port": port, "stage": "s"} for path, port in (
        ("b.tar", "written"), ("b.parquet", "written"), ("dropped/a.parquet", "dropped"))]
    stats = {"files": files, "stages": [{"name": "s"}], "example_columns": {"bytes": kind}}
    written, dropped = find_examples(stats, Folder.open(str(tmp_path)))
    played = [base64.b64decode(one["audio"].partition("base64,")[2]) for one in (*written.examples, *dropped.examples)]
    assert played == [b"fLaC kept", b"OggS too", b"fLaC quiet"]
    assert written.examples[1]["audio"].startswith("data:audio/ogg;")


def test_small_films_are_played_and_others_have_two_pictures(tmp_path):
    """A contact sheet beside the player, and an animation where there is no player."""
    (tmp_path / "dropped").mkdir()
    clip, long = b"\0\0\0\x20ftypisom", b"\0\0\0\x20ftypisom" + bytes(2 << 20)
    names = {"source": ["f"] * 3, "sheet": [b"\xff\xd8\xff sheet"] * 3, "preview": [b"RIFFsizeWEBP"] * 3}
    pq.write_table(pa.table({"id": ["x", "y", "z"], "key": ["x", "y", "z"]} | names), tmp_path / "b.parquet")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, data in (("x.mp4", clip), ("y.mp4", long), ("z.mp4", b"no film")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    stats = {"files": [{"path": path, "port": "written", "stage": "s"} for path in ("b.tar", "b.parquet")], "stages": [{"name": "s"}],
             "example_columns": {"sheet": "image", "preview": "image", "bytes": "video"}}
    (group,) = find_examples(stats, Folder.open(str(tmp_path)))
    decoded = [[base64.b64decode(one[place].partition("base64,")[2]) for place in ("video", "picture", "more")] for one in group.examples]
    assert decoded == [[clip, b"\xff\xd8\xff sheet", b"RIFFsizeWEBP"], *[[b"", b"\xff\xd8\xff sheet", b"RIFFsizeWEBP"]] * 2]
    assert group.examples[0]["video"].startswith("data:video/mp4;")


def test_measured_values_are_read_without_an_exponent():
    assert [fmt.number(value) for value in (44100, 44100.0, 0.033333, -12345.6, 9999.5, 0, 3e20)] == [
        "44,100", "44,100", "0.03333", "-12,346", "10,000", "0", "3e+20"]
