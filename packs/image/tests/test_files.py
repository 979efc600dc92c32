"""The reader of image files: which ones it takes from a folder, and that what it reads is decoded."""

from __future__ import annotations

import io

import numpy as np
import pytest
from curator_image.decode import Decode
from curator_image.files import ImageFiles
from PIL import Image

from curator.testing import check_source, run_stage


def written(folder, name, kind, size=(8, 6)):
    file = io.BytesIO()
    Image.fromarray(np.full((size[1], size[0], 3), 90, np.uint8)).save(file, kind)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(file.getvalue())


@pytest.fixture
def folder(tmp_path):
    written(tmp_path, "a.JPG", "JPEG")
    written(tmp_path, "deep/er/b.png", "PNG")
    written(tmp_path, "c.tif", "TIFF")
    written(tmp_path, "drawing.svg", "JPEG")
    written(tmp_path, "wrong.gif", "WEBP")
    (tmp_path / "empty.webp").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no image")
    return tmp_path


def read(**parameters):
    source = ImageFiles(**parameters)
    return [outputs["out"] for unit in source.units() for outputs in source.read(unit)]


def names(batches):
    return sorted(source.rpartition("/")[2] for batch in batches for source in batch.column("source"))


def test_the_source_keeps_its_contract(folder):
    check_source(ImageFiles(path=str(folder)))


def test_a_folder_gives_images_and_a_glob_what_it_names(folder):
    assert names(read(path=str(folder))) == ["a.JPG", "b.png", "c.tif", "empty.webp", "wrong.gif"]
    assert names(read(path=str(folder / "*.svg"))) == ["drawing.svg"]
    assert names(read(path=str(folder), suffixes=["txt", ".svg"])) == ["drawing.svg", "notes.txt"]


def test_what_is_read_is_decoded_whatever_its_name(folder):
    batch, = read(path=[str(folder), str(folder / "drawing.svg")])
    outputs = run_stage(Decode(), batch)
    formats = dict(zip(outputs["out"].column("extension"), outputs["out"].column("format"), strict=True))
    assert formats == {"jpg": "jpeg", "png": "png", "tif": "tiff", "gif": "webp", "svg": "jpeg"}
    assert outputs["failed"].column("error") == ["empty file"]
