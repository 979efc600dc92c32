"""Documents from files: one a file, whatever the encoding; what is no text is told."""

from __future__ import annotations

import os

import pytest
from curator_text.read.text_files import TextFiles

from curator.api.errors import InputError

PAGE = b"<html><head><title>T</title></head><body><nav>menu</nav><main><p>The page says this.</p></main></body></html>"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_bytes("Größe".encode("cp1252"))
    (tmp_path / "b.md").write_bytes("\ufeff# Title\n\nText".encode())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/c.HTML").write_bytes(PAGE)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    return tmp_path


def read(source, units=None):
    ports = {"out": [], "dropped": [], "failed": []}
    for unit in source.units() if units is None else units:
        for outputs in source.read(unit):
            for port, batch in outputs.items():
                ports[port] += batch.rows.to_pylist()
    return ports


def test_one_document_a_file(folder):
    rows = read(TextFiles(path=str(folder)))["out"]
    assert [row["source"] for row in rows] == [str(folder / n) for n in ("a.txt", "b.md", "sub/c.HTML")]
    assert [row["text"] for row in rows] == ["Größe", "# Title\n\nText", "The page says this."]
    assert [row["content_type"] for row in rows] == ["text/plain", "text/markdown", "text/html"]
    assert [row["title"] for row in rows] == [None, None, "T"]
    assert len({row["id"] for row in rows}) == 3
    assert all(len(row["id"]) == 16 for row in rows)


def test_files_of_other_kinds_are_told(folder):
    source = TextFiles(path=str(folder))
    source.units()
    assert "files of other kinds are not read: 1 .png." in source.remarks()[0]


def test_html_can_be_left_for_a_stage(folder):
    rows = read(TextFiles(path=str(folder), extract=False))["out"]
    assert [row["text"] for row in rows] == ["Größe", "# Title\n\nText", None]
    assert [row["html"] for row in rows] == [None, None, PAGE]


def test_small_files_are_one_unit_and_a_glob_names_any_file(folder):
    (folder / "NOTES").write_text("no ending")
    assert len(TextFiles(path=str(folder)).units()) < 3
    assert len(TextFiles(path=str(folder), unit_bytes=1).units()) == 3
    assert [row["text"] for row in read(TextFiles(path=str(folder / "NOTE*")))["out"]] == ["no ending"]


def test_what_cannot_be_read_is_told(folder):
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (folder / "empty.txt").write_bytes(b"")
    (folder / "large.txt").write_bytes(b"x" * 9000)
    found = read(TextFiles(path=str(folder), max_file_bytes=8000))
    assert len(found["out"]) == 4
    assert next(row["text"] for row in found["out"] if row["source"].endswith("empty.txt")) == ""
    [failed] = found["failed"]
    assert failed["id"] == str(folder / "binary.txt")
    assert "no text" in failed["error"]
    assert "Traceback" in failed["traceback"]
    [dropped] = found["dropped"]
    assert (dropped["source"], dropped["reason"]) == (str(folder / "large.txt"), "too_large")


def test_a_file_that_went_away_fails_and_the_others_are_read(folder):
    source = TextFiles(path=str(folder))
    units = source.units()
    os.unlink(folder / "b.md")
    found = read(source, units)
    assert [len(found["out"]), len(found["failed"])] == [2, 1]
    assert "does not exist" in found["failed"][0]["error"]


def test_mistakes_are_told_before_a_run(tmp_path):
    with pytest.raises(InputError, match="nothing"):
        TextFiles(path=str(tmp_path / "nothing.txt")).units()
    with pytest.raises(ValueError, match="max_file_bytes must be 1 or more"):
        TextFiles(path="x", max_file_bytes=0)
