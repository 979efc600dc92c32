"""Pictures of films as records: which, when, of what size, and whose."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_video.clips import frames as module
from curator_video.clips.frames import Frames

from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, films, number_of, numbered, pan, sound_only

X264 = {"crf": "20", "preset": "veryfast", "g": "20", "keyint_min": "20", "sc_threshold": "0"}
PLAIN = film(numbered(100), 25, options=X264)


def pictures(out):
    return [cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB) for data in out.column("bytes")]


def test_a_record_a_picture():
    batch = films(PLAIN, film(numbered(30), 25, options=X264)).with_columns(
        {"start_s": pa.array([1.0, None]), "end_s": pa.array([3.0, None]), "duration": pa.array([2.0, None]), "title": ["a", "b"]})
    out = run_stage(Frames(fps=2), batch)["out"]
    assert out.column("id") == ["0#0", "0#1", "0#2", "0#3", "1#0", "1#1", "1#2"]
    assert out.column("parent") == ["0"] * 4 + ["1"] * 3
    assert [number_of(one) for one in pictures(out)] == [25, 37, 50, 62, 0, 12, 25]
    assert out.column("timestamp") == [1.0, 1.48, 2.0, 2.48, 0.0, 0.48, 1.0]
    assert out.column("frame_index") == [0, 1, 2, 3, 0, 1, 2]
    assert out.column("title") == ["a"] * 4 + ["b"] * 3
    assert set(out.column("extension")) == {"jpg"}
    assert not {"start_s", "end_s", "duration"} & set(out.columns)


@pytest.mark.parametrize("format", ["jpg", "png", "webp"])
def test_formats_and_sizes(format):
    data = film(pan(1, 5, 0), 5, options={"crf": "12"}, rotate=90)
    out = run_stage(Frames(format=format, size=160), films(data))["out"]
    (picture,) = pictures(out)
    assert picture.shape == (160, 120, 3)
    assert (out.column("width"), out.column("height"), out.column("extension")) == ([120], [160], [format])
    true = np.rot90(pan(1, 1, 0)[0], -1)
    small = cv2.resize(true, (120, 160), interpolation=cv2.INTER_AREA)
    assert np.abs(picture.astype(int) - small).mean() < 8


def test_keyframes_and_uniform():
    assert [number_of(one) for one in pictures(run_stage(Frames(pick="keyframes"), films(PLAIN))["out"])] == [0, 20, 40, 60, 80]
    assert [number_of(one) for one in pictures(run_stage(Frames(pick="uniform", count=4), films(PLAIN))["out"])] == [12, 37, 62, 87]
    between = films(PLAIN).with_columns({"start_s": pa.array([0.9]), "end_s": pa.array([1.3])})
    assert run_stage(Frames(pick="keyframes"), between)["dropped"].column("reason") == ["no_frames"]


def test_a_picture_that_is_shown_for_long_is_one_record():
    slides = film(numbered(4), 1, pts=[0, 1000, 2000, 3_000_000], options={**X264, "bf": "0"}, container="matroska")
    out = run_stage(Frames(fps=5), films(slides))["out"]
    assert out.column("timestamp") == [0, 1000, 2000, 3_000_000]
    assert [number_of(one) for one in pictures(out)] == [0, 1, 2, 3]


def test_a_long_film_comes_in_pieces(monkeypatch):
    whole = run_stage(Frames(pick="all"), films(PLAIN))["out"]
    monkeypatch.setattr(module, "ANSWER_BYTES", 20_000)
    stage = Frames(pick="all")
    stage.setup(None)
    answers = list(stage.process(films(PLAIN)))
    assert len(answers) > 3
    assert [one for outputs in answers for one in outputs["out"].column("id")] == whole.column("id")
    assert [number_of(one) for one in pictures(whole)] == list(range(100))


def test_what_is_no_film_fails():
    outputs = run_stage(Frames(), films(b"", b"text", sound_only(), None, PLAIN))
    assert [error.partition(":")[0] for error in outputs["failed"].column("error")] == ["empty", "not_media", "no_video", "no_file"]
    assert len(outputs["out"]) == 4


def test_the_stage_keeps_the_rules():
    batch = films(film(numbered(30), 25, options=X264), b"no film", film(numbered(10), container="matroska"))
    check_stage(Frames(fps=2), batch, skip={"needs"})


@pytest.mark.parametrize("wrong", [{"pick": "none"}, {"fps": 0}, {"size": 1}, {"side": "left"}, {"format": "gif"}, {"quality": 0},
                                   {"max_pixels": 0}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Frames(**wrong)
