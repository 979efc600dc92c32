"""Films of two fields woven together: they are known, whole pictures are made of them, and what is whole stays as it is."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np
import pyarrow as pa
import pytest
from curator_video.clips.cut import Cut
from curator_video.once.clips import Clips
from curator_video.once.held import Held
from curator_video.read.decode import Decode
from curator_video.read.film import Film
from curator_video.read.interlace import deinterlaced
from curator_video.shots.shots import Shots

from curator.testing import run_stage
from packs.video.tests.films import film, films, pan

MOVING = pan(3, 120, 6)
WOVEN = [np.where(np.arange(len(one))[:, None, None] % 2, other, one) for one, other in zip(MOVING[::2], MOVING[1::2], strict=True)]
FINE = {"crf": "16", "preset": "veryfast"}


@pytest.fixture(scope="module")
def woven():
    return film(WOVEN, 25, options=FINE)


@pytest.fixture(scope="module")
def whole():
    return film(MOVING[::2], 25, options=FINE)


def off(pictures):
    """Mean levels from the first fields' pictures."""
    return float(np.mean([np.abs(one.astype(int) - MOVING[2 * k]).mean() for k, one in enumerate(pictures)]))


@pytest.mark.parametrize("stage", [Shots(), Decode(fps=2)])
def test_woven_films_are_known_and_others_are_not(stage, woven, whole):
    noisy = [np.clip(one + np.random.default_rng(k).normal(0, 12, one.shape), 0, 255).astype(np.uint8) for k, one in enumerate(MOVING[:25])]
    out = run_stage(stage, films(woven, whole, film(noisy, 25), film([WOVEN[0]] * 9, 25, options=FINE)))["out"]
    found = out.column("comb_ratio")
    assert found[0] > 0.1
    assert found[1] < 0.001
    assert found[2] < 0.005
    assert found[3] > 0.1  # two fields of different times, though nothing moves


def test_each_picture_is_made_whole_at_its_time(woven):
    with Film(woven) as opened:
        before = [(time, opened.upright(frame)) for time, frame in opened.frames()]
        after = [(time, opened.upright(frame)) for time, frame in opened.frames(deinterlace=True)]
        part = [time for time, _ in opened.frames(0.4, 1.0, deinterlace=True)]
    assert [time for time, _ in after] == [time for time, _ in before]
    assert part == pytest.approx(np.arange(0.4, 0.999, 0.04))
    assert off(one for _, one in after) < 0.5 * off(one for _, one in before)


def test_nothing_and_other_sizes_go_through():
    assert list(deinterlaced([])) == []
    frames = [av.VideoFrame.from_ndarray(one[:size, :size].copy(), "rgb24").reformat(format="yuv420p") for one, size in
              zip(MOVING, (64, 64, 96, 96, 96), strict=False)]
    made = list(deinterlaced((k / 25, frame) for k, frame in enumerate(_timed(frames))))
    assert [(time, frame.width) for time, frame in made] == [(k / 25, frame.width) for k, frame in enumerate(frames)]


def _timed(frames):
    for k, frame in enumerate(frames):
        frame.pts, frame.time_base = k, Fraction(1, 25)
        yield frame


def test_auto_follows_the_column(woven, whole):
    given = films(woven, whole, woven, comb_ratio=pa.array([0.2, 0.001, None], pa.float32()))
    out = run_stage(Decode(pick="all", size=None), given)["out"]
    assert off(out.frames[0]) < 0.5 * off(out.frames[2])
    assert off(out.frames[1]) < 1.5
    assert out.column("comb_ratio")[:2] == pytest.approx([0.2, 0.001])
    never = run_stage(Decode(pick="all", size=None, deinterlace="no"), given)["out"]
    assert np.array_equal(never.frames[0], out.frames[2])


def test_clips_are_cut_whole(woven, whole):
    given = films(woven, whole, comb_ratio=pa.array([0.2, 0.0], pa.float32()))
    out = run_stage(Cut(crf=12), given)["out"]
    assert out.column("cut_method") == ["deinterlaced", "keyframe"]
    with av.open(io.BytesIO(out.column("bytes")[0])) as clip:
        pictures = [frame.to_ndarray(format="rgb24") for frame in clip.decode(video=0)]
    assert len(pictures) == len(WOVEN)
    assert off(pictures) < 0.6 * off(WOVEN)
    again = run_stage(Decode(), out)["out"]  # not once more
    assert again.column("comb_ratio") == out.column("comb_ratio")
    assert run_stage(Cut(deinterlace="no"), given)["out"].column("cut_method") == ["keyframe"] * 2


@pytest.mark.parametrize("held", [True, False])
def test_clips_of_one_pass_are_made_whole(woven, whole, monkeypatch, held):
    """Those whose pictures are held, and those that are decoded once more."""
    if not held:
        monkeypatch.setattr(Held, "take", lambda self, start, end: None)
    given = films(woven, whole, comb_ratio=pa.array([0.0, 0.2], pa.float32()))  # of the film; here each clip tells
    clips = run_stage(Clips(spans={"min": 1}, decode={"fps": 25.0, "size": None}), given)["out"]
    found = clips.column("comb_ratio")
    assert found[0] > 0.1
    assert found[1] < 0.001
    assert off(clips.frames[0]) < 0.6 * off(WOVEN)
    assert run_stage(Cut(crf=12), clips)["out"].column("cut_method") == ["deinterlaced", "keyframe"]


@pytest.mark.parametrize("wrong", [lambda: Decode(deinterlace="maybe"), lambda: Cut(deinterlace="true"),
                                   lambda: Cut(method="keyframe", deinterlace="yes")])
def test_wrong_parameters(wrong):
    with pytest.raises(ValueError, match="deinterlace"):
        wrong()
