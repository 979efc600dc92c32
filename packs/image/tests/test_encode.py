"""Encoding: what is written is what the pixels are, as near as the format can."""

from __future__ import annotations

import io

import numpy as np
import pytest
from curator_image.decode import Decode
from curator_image.encode import LONGEST, Encode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images


def picture(width=80, height=60):
    y, x = np.mgrid[0:height, 0:width]
    red, green = 255 * x // max(1, width - 1), 255 * y // max(1, height - 1)
    return np.stack([red, green, np.full_like(red, 90)], axis=-1).astype(np.uint8)


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_the_stage_keeps_its_contract(kind):
    data = images(picture(), None, picture(30, 200), picture(1, 1), picture(5, 70_000) if kind != "png" else picture(3, 3))
    check_stage(Encode(format=kind), data)
    check_stage(Encode(format=kind, size=20), data)


@pytest.mark.parametrize(("kind", "extension", "tolerance"), [("jpeg", "jpg", 3), ("png", "png", 0), ("webp", "webp", 4)])
def test_what_is_written_is_read_again(kind, extension, tolerance):
    out = run_stage(Encode(format=kind), images(picture(), None, picture(33, 77), bytes=[b"old"] * 3, format=["tiff"] * 3))["out"]
    assert out.column("extension") == [extension, None, extension]
    assert out.column("format") == [kind, None, kind]
    assert out.column("width") == [80, None, 33]
    assert out.column("height") == [60, None, 77]
    assert out.column("bytes")[1] is None
    again = run_stage(Decode(), out.filter([True, False, True]))["out"]
    assert again.column("format") == [kind, kind]
    for before, after in zip([picture(), picture(33, 77)], again.pixels, strict=True):
        assert np.abs(before.astype(int) - after).mean() <= tolerance


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 120))
@settings(max_examples=30)
def test_a_png_keeps_pixels_and_size_is_the_shorter_side(width, height, size):
    out = run_stage(Encode(format="png", size=size), images(picture(width, height)))["out"]
    written = np.asarray(Image.open(io.BytesIO(out.column("bytes")[0])))
    assert written.shape[1::-1] == (out.column("width")[0], out.column("height")[0])
    assert min(written.shape[:2]) == min(width, height, size)
    if size >= min(width, height):
        assert (written == picture(width, height)).all()


def test_quality_is_that_of_libjpeg():
    for quality in (1, 40, 75, 100):
        out = run_stage(Encode(quality=quality), images(picture()))["out"]
        assert run_stage(Decode(), out)["out"].column("jpeg_quality") == [quality]
    sizes = [len(run_stage(Encode(format="webp", quality=q), images(picture()))["out"].column("bytes")[0]) for q in (5, 100)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("kind", ["jpeg", "webp", "png"])
def test_what_a_format_cannot_hold_fails(kind):
    longest = LONGEST[kind]
    outputs = run_stage(Encode(format=kind), images(np.zeros((1, longest, 3), np.uint8), np.zeros((longest + 1, 1, 3), np.uint8),
                                                    np.zeros((0, 4, 3), np.uint8)))
    assert outputs["out"].column("width") == [longest]
    first, second = outputs["failed"].column("error")
    assert first.startswith(f"too large for {kind}: 1 x {longest + 1}")
    assert second == "no pixels: 4 x 0"


@pytest.mark.parametrize(("wrong", "message"), [({"format": "gif"}, "format is one of"), ({"quality": 0}, "quality is 1 to 100"),
                                                ({"format": "png", "quality": 90}, "quality does not apply"),
                                                ({"size": 0}, "size must be 1")])
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Encode(**wrong)
