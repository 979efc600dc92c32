"""Films of a high dynamic range give the pictures, thumbnails and hashes of the same film in the usual range."""

from __future__ import annotations

import numpy as np
import pytest
from curator_video.copies.frame_hashes import picture_hashes
from curator_video.read.decode import Decode
from curator_video.read.film import Film
from curator_video.read.tone import GAMMA, HDR, PEAK, WHITE, compressed, linear, luma_of, shown

from curator.testing import run_stage
from packs.video.tests.films import film, films, texture

CODES = {name: number for number, name in HDR.items()}
GREY = np.repeat(texture(3).mean(axis=2, keepdims=True).astype(np.uint8) // 2 + 20, 3, axis=2)  # below the knee
LEVELS = np.linspace(0, 1, 4001)


def coded(light, kind):
    """The signal, 0 to 1, that is shown as so much light (1: white), found in a table of what signals are shown as."""
    shines = linear(LEVELS, kind)
    if kind == "hlg":
        shines = shines * np.maximum(shines * WHITE / PEAK, 1e-6) ** 0.2
    return np.interp(light, shines, LEVELS)


def deep(kind):
    """A film of 10 bits that an HDR screen shows like an ordinary one shows GREY."""
    signal = coded((GREY / 255.0) ** GAMMA, kind)
    pictures = [np.round(signal * 65535).astype(np.uint16)] * 4
    return film(pictures, 25, pix_fmt="yuv420p10le", colours=(9, CODES[kind], 9), options={"crf": "8"})


def test_signals_are_those_of_the_standard():
    """BT.2408: white of 203 cd/m2 is 58 % of PQ and 75 % of HLG; PQ of 75 % is 1000 cd/m2."""
    assert linear(np.array([0.58, 0.7518]), "pq") == pytest.approx([1, 1000 / 203], rel=0.01)
    assert coded(1.0, "hlg") == pytest.approx(0.75, abs=0.005)
    assert linear(np.array([1.0]), "pq") * WHITE == pytest.approx(10_000)


@pytest.mark.parametrize("kind", ["pq", "hlg"])
def test_pictures_and_thumbnails_are_those_of_the_usual_range(kind):
    with Film(deep(kind)) as opened, Film(film([GREY] * 4, 25, options={"crf": "8"})) as usual:
        (_, frame), (_, other) = next(iter(opened.frames())), next(iter(usual.frames()))
        assert (opened.hdr, usual.hdr) == (kind, None)
        assert np.abs(opened.upright(frame).astype(int) - usual.upright(other)).mean() < 2
        assert np.abs(opened.thumb(frame).astype(int) - usual.thumb(other)).mean() < 2
        (one, another), _ = picture_hashes(np.stack([opened.thumb(frame), usual.thumb(other)]), (0, 36, 0, 64))
        assert np.bitwise_count(one ^ another) <= 4


def test_decode_says_so():
    out = run_stage(Decode(), films(deep("pq"), film([GREY] * 4, 25)))["out"]
    assert out.column("hdr") == ["pq", None]


def test_what_is_brighter_is_pressed_together_and_stays_in_order():
    light = np.linspace(0, PEAK / WHITE, 1000)
    made = compressed(light)
    assert np.all(np.diff(made) > 0)
    assert made[-1] == pytest.approx(1)
    assert np.array_equal(made[light <= 0.5], light[light <= 0.5])
    for kind in CODES:
        assert np.all(np.diff(luma_of(kind).astype(int)[16:]) >= 0)
        assert (luma_of(kind)[16], luma_of(kind)[235]) == (16, 235)
    red = shown(np.array([[[50000, 9000, 9000]]], np.uint16), "pq", 9)[0, 0]
    assert red[0] > red[1]  # a colour stays one
