"""The image pack, whole: its stages keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from curator_image import (
    Aesthetic,
    Alignment,
    Caption,
    CaptionServer,
    Classify,
    Decode,
    Embed,
    Encode,
    Faces,
    Hash,
    Head,
    ImageFiles,
    Nsfw,
    Ocr,
    Resize,
    Signals,
    Thumbnail,
    ZeroShot,
)
from PIL import Image

from curator.api.tasks import Batch
from curator.testing import check_pack
from packs.image.tests.chat_server import Model
from packs.image.tests.drawn_faces import scene
from packs.image.tests.image_batches import images, sized
from packs.image.tests.tiny_captioners import llava
from packs.image.tests.tiny_models import image, save_clip, save_vit

PIXELS = [image(1), None, image(2, 64, 33), np.full((20, 30, 3), 255, np.uint8), image(3, 33, 90)]
CAPTIONS = ["a cat", "no image", None, "", "two dogs"]
LABELS = ("normal", "nsfw", "drawing")


def encoded():
    """Files of several formats, a cut one, and what is no image."""
    def saved(pixels, kind):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        return file.getvalue()

    data = [saved(image(1), kind) for kind in ("JPEG", "PNG", "WEBP", "GIF", "TIFF")]
    data += [None, b"", b"<html>", data[0][:300]]
    return Batch(rows=pa.table({"id": [f"f{n}" for n in range(len(data))], "source": ["s"] * len(data),
                                "bytes": pa.array(data, pa.binary())}))


def of_files(folder):
    (folder / "images").mkdir()
    for name, data in (("a.jpg", image(1)), ("b.png", image(2))):
        Image.fromarray(data).save(folder / "images" / name)
    yield ImageFiles(path=str(folder / "images"))


def of_pixels():
    seen = images(*PIXELS)
    yield Signals(), sized(*PIXELS)
    yield Faces(blur=True), sized(scene((100, 60, 160)), *PIXELS[1:])
    yield from ((Decode(**options), encoded()) for options in ({}, {"size": 20}, {"frames": "all"}))
    yield from ((Encode(format=kind, size=20), seen) for kind in ("jpeg", "png", "webp"))
    yield from ((Resize(**options), seen) for options in ({"size": 24}, {"size": [20, 30], "crop": "center"}))
    yield Thumbnail(size=32), seen
    yield Hash(kinds=["phash", "dhash", "pdq"], variants="all"), seen
    yield Ocr(boxes=True), seen


def of_models(folder):
    clip, vit = save_clip(folder / "clip"), save_vit(folder / "vit", LABELS)
    seen = images(*PIXELS, txt=pa.array(CAPTIONS, pa.string()))
    yield Embed(model=clip), seen
    yield Alignment(model=clip), seen
    yield ZeroShot(model=clip, labels=["cat", "dog"], templates="a {}", scores=True), seen
    yield Classify(model=vit), seen
    yield Nsfw(model=vit), seen
    yield Caption(model=llava(folder / "llava"), max_new_tokens=4), seen
    linear = head(folder / "linear.safetensors")
    vectors = [*np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32), None, np.ones(12, np.float32)]
    embedded = images(*[None] * 5, embedding=pa.array(vectors, pa.list_(pa.float32())), caption=list("abcde"))
    yield Head(weights=linear), embedded
    yield Aesthetic(weights=linear), embedded


def head(path):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(3)
    save_file(torch.nn.Linear(12, 1).state_dict(), path)
    return str(path)


@pytest.mark.slow  # each stage passes the kit in its own file, too
def test_the_pack(tmp_path):
    for extra in ("transformers", "rapidocr"):
        pytest.importorskip(extra)
    models = [(stage, batch, {"tolerance": 1e-2}) for stage, batch in of_models(tmp_path)]
    server = Model()
    asked = CaptionServer(url=server.url, model="tiny", backoff_s=0.0), encoded()
    check_pack("image", [*of_files(tmp_path), *of_pixels(), *models, asked])
    server.close()
