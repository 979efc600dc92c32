"""Decoding films, spans and clips: which pictures, when, how large, and what is said of damage."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from curator_video.read.decode import COLUMNS, Decode
from curator_video.read.sampling import Choice, Seen, chosen
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import ContractError
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, films, number_of, numbered, pan, sound_only

X264 = {"crf": "20", "preset": "veryfast", "g": "20", "keyint_min": "20", "sc_threshold": "0"}
PLAIN = film(numbered(100), 25, options=X264)
CONTAINERS = {"mp4": PLAIN, "ts": film(numbered(100), 25, options=X264, container="mpegts")}


def decoded(data=PLAIN, span=None, **parameters):
    batch = films(data)
    if span is not None:
        batch = batch.with_columns({"start_s": pa.array([span[0]], pa.float64()), "end_s": pa.array([span[1]], pa.float64())})
    outputs = run_stage(Decode(**parameters), batch)
    assert set(outputs) == {"out"}, [(port, batch.rows.to_pylist()) for port, batch in outputs.items() if port != "out"]
    return outputs["out"]


def numbers(out):
    return [number_of(picture) for picture in out.frames[0]]


def test_two_pictures_a_second_and_a_thumbnail_of_each():
    out = decoded()
    assert numbers(out) == [0, 12, 25, 37, 50, 62, 75, 87]
    assert out.frames[0].shape == (8, 120, 160, 3)
    assert out.frames[0].dtype == np.uint8
    assert np.allclose(out.timestamps[0] * 25, [0, 12, 25, 37, 50, 62, 75, 87])
    assert out.thumbs[0].shape == (100, 36, 64)
    assert out.thumbs[0].dtype == np.uint8
    assert np.allclose(out.thumb_times[0] * 25, np.arange(100))
    row = out.rows.to_pylist()[0]
    assert {name: row[name] for name in COLUMNS} == {
        "decoded_frames": 100, "corrupt_frames": 0, "decode_note": None, "comb_ratio": 0, "hdr": None,
        "start_s": 0, "end_s": 4, "duration": 4}


def test_golden_samples():
    """10 s at 24 fps: 0 12 24 … 228. Of varying rate: by time, and not by index."""
    assert numbers(decoded(film(numbered(240), 24, options=X264))) == list(range(0, 240, 12))
    pts = [*range(60), *range(60, 120, 3), *(150 + k for k in range(30))]
    varying = film(numbered(110), 30, pts=pts, time_base=Fraction(1, 30), options=X264)
    out = decoded(varying)
    assert numbers(out) == [0, 15, 30, 45, 60, 65, 70, 75, 79, 79, 80, 95]
    assert np.allclose(out.timestamps[0] * 30, [pts[k] for k in numbers(out)])
    assert out.column("end_s") == [pytest.approx(6.0)]


@pytest.mark.parametrize("name", CONTAINERS)
def test_spans_are_exact(name):
    out = decoded(CONTAINERS[name], (1.2, 2.6))
    assert numbers(out) == [30, 42, 55]
    assert np.allclose(out.thumb_times[0] * 25, np.arange(30, 65))
    assert out.column("decoded_frames") == [35]
    assert (out.column("start_s"), out.column("end_s")) == ([1.2], [2.6])
    assert numbers(decoded(CONTAINERS[name], (2.0, None), thumbs=False)) == [50, 62, 75, 87]
    assert numbers(decoded(CONTAINERS[name], (1.21, 1.31), pick="all")) == [31, 32]


def test_each_way_to_pick():
    assert numbers(decoded(pick="uniform", count=4)) == [12, 37, 62, 87]
    assert numbers(decoded(span=(1.0, 3.0), pick="uniform", count=2)) == [37, 62]
    assert numbers(decoded(pick="keyframes")) == numbers(decoded(pick="keyframes", thumbs=False)) == [0, 20, 40, 60, 80]
    assert numbers(decoded(pick="all")) == list(range(100))
    out = decoded(pick="none")
    assert out.frames is None
    assert len(out.thumbs[0]) == 100
    assert decoded(thumbs=False).thumbs is None


def test_sizes():
    data = film(pan(1, 10, 0), 10, options=X264, rotate=90)
    assert decoded(data, size=None).frames[0].shape[1:] == (320, 240, 3)
    assert decoded(data, size=100).frames[0].shape[1:] == (100, 76, 3)
    assert decoded(data, size=100, side="short").frames[0].shape[1:] == (134, 100, 3)
    assert decoded(data, size=1000).frames[0].shape[1:] == (320, 240, 3)


def test_clips_that_were_cut_lie_in_their_film():
    clip = films(PLAIN).with_columns({"start_s": pa.array([10.0]), "end_s": pa.array([14.0]), "cut_method": pa.array(["exact"])})
    out = run_stage(Decode(), clip)["out"]
    assert numbers(out) == [0, 12, 25, 37, 50, 62, 75, 87]
    assert np.allclose(out.timestamps[0], np.array([0, 12, 25, 37, 50, 62, 75, 87]) / 25 + 10)
    assert out.thumb_times[0][0] == 10
    assert (out.column("start_s"), out.column("end_s"), out.column("decode_note")) == ([10], [14], [None])
    earlier = clip.with_columns({"clip_start": pa.array([9.0])})
    inside = run_stage(Decode(), earlier)["out"]  # the bytes begin at 9 s, and a span of them is asked for
    assert (inside.timestamps[0][0], numbers(inside)[0], inside.column("end_s")) == (10.0, 25, [14])


def test_many_spans_of_one_film_open_it_once(tmp_path, monkeypatch):
    from curator_video.read import film as module

    path = tmp_path / "film.mp4"
    path.write_bytes(PLAIN)
    opened = []
    real = module.open_input
    monkeypatch.setattr(module, "open_input", lambda *given, **named: opened.append(given) or real(*given, **named))
    starts = [0.0, 0.8, 2.0, 3.2, 0.4]
    batch = films(*[None] * 5, path=pa.array([str(path)] * 5)).with_columns(
        {"start_s": pa.array(starts), "end_s": pa.array([start + 0.4 for start in starts])})
    out = run_stage(Decode(pick="all"), batch)["out"]
    assert [[number_of(one) for one in pictures] for pictures in out.frames] == [
        list(range(round(25 * start), round(25 * start) + 10)) for start in starts]
    assert len(opened) == 1


def test_damage_is_said():
    cut = film(pan(1, 100, 2), 25, options=X264, container_options={"movflags": "faststart"})
    out = decoded(cut[:len(cut) * 6 // 10])
    assert "truncated" in out.column("decode_note")[0]
    assert 40 <= out.column("decoded_frames")[0] < 100
    flipped = bytearray(cut)
    for at in range(len(cut) // 2, len(cut) // 2 + 400, 7):
        flipped[at] ^= 0xFF
    out = decoded(bytes(flipped))
    assert out.column("corrupt_frames")[0] > 0
    assert out.column("decode_note") == ["damaged"]
    twice = film(numbered(50), 25, options=X264, container="mpegts")
    assert "times_go_back" in decoded(twice + twice).column("decode_note")[0]
    assert decoded(film(numbered(9), container="h264")).column("decode_note") == ["no_times"]
    assert decoded(span=(3.0, 6.0)).column("decode_note") == ["truncated"]


def test_what_cannot_be_decoded_fails():
    batch = films(b"", b"text", sound_only(), None, PLAIN, PLAIN, PLAIN).with_columns({
        "start_s": pa.array([None, None, None, None, 7.0, 2.0, None]), "end_s": pa.array([None, None, None, None, 9.0, 1.0, None])})
    outputs = run_stage(Decode(), batch)
    assert [error.partition(":")[0] for error in outputs["failed"].column("error")] == [
        "empty", "not_media", "no_video", "no_file", "no_frames", "no_span"]
    assert outputs["out"].column("id") == ["6"]


def test_a_span_behind_the_end():
    batch = films(PLAIN, PLAIN).with_columns({"start_s": pa.array([4.0, 9.0])})
    for stage in (Decode(pick="uniform"), Decode(), Decode(pick="keyframes", thumbs=False)):
        failed = run_stage(stage, batch)["failed"]
        assert [error.partition(":")[0] for error in failed.column("error")] == ["no_frames"] * 2


def test_what_is_too_long_or_too_large_is_dropped():
    stage = {"max_seconds": 3.0}
    outputs = run_stage(Decode(**stage), films(PLAIN, film(numbered(50), 25, options=X264)))
    assert outputs["dropped"].column("reason") == ["too_long"]
    assert outputs["out"].column("id") == ["1"]
    assert run_stage(Decode(max_seconds=1.0), films(film(numbered(50), container="h264")))["dropped"].column("reason") == ["too_long"]
    large = film(pan(1, 60, 0, 480, 640), 25, options=X264)
    assert run_stage(Decode(pick="all", size=None, max_mb=20), films(large))["dropped"].column("reason") == ["too_large"]
    assert len(run_stage(Decode(pick="all", size=64, max_mb=20), films(large))["out"]) == 1


def test_answers_are_given_as_they_come(monkeypatch):
    from curator_video.read import decode as module

    monkeypatch.setattr(module, "ANSWER_BYTES", 1 << 20)
    stage = Decode()
    stage.setup(None)
    sizes = [len(outputs["out"]) for outputs in stage.process(films(*[PLAIN] * 6))]
    assert sum(sizes) == 6
    assert max(sizes) <= 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.floats(0.3, 30), st.integers(1, 9), st.booleans())
def test_pictures_at_times(gaps, fps, number, uniform):
    """Each is the last not after its time; all are seen; the number follows from the length."""
    times = (np.cumsum(gaps) - gaps[0]) / 100
    end = float(times[-1]) + 0.5
    seen = Seen()
    choice = Choice("uniform" if uniform else "fps", fps, number)
    found = [k for _, k in chosen([(float(t), k) for k, t in enumerate(times)], choice, 0.0, end, seen)]
    wanted = [(k + 0.5) * end / number for k in range(number)] if uniform else [
        k / fps for k in range(int(end * fps) + 2) if k / fps < end - 1e-6]
    assert found == [max(0, int(np.searchsorted(times, t + 1e-6, side="right")) - 1) for t in wanted]
    assert seen.times == times.tolist()
    single = [k for _, k in chosen([(float(t), k) for k, t in enumerate(times)], choice, 0.0, end, Seen(), once=True)]
    assert single == sorted(set(found))


@pytest.mark.parametrize("parameters", [{}, {"pick": "uniform", "count": 3, "thumbs": False}, {"pick": "none"}])
def test_the_stage_keeps_the_rules(parameters):
    batch = films(film(numbered(30), 25, options=X264), b"no film", film(numbered(10), container="matroska"))
    check_stage(Decode(**parameters), batch, skip={"needs"})


def test_types_without_any_row():
    out = run_stage(Decode(), films(b"no film"))
    assert set(out) - {"out"} == {"failed"}
    with pytest.raises(ContractError, match="needs `path`"):
        Decode().check({"id": pa.string()})


@pytest.mark.parametrize("wrong", [{"pick": "best"}, {"fps": 0}, {"count": 0}, {"size": 0}, {"side": "left"}, {"max_seconds": 0},
                                   {"max_mb": 0}, {"max_pixels": 0}, {"pick": "none", "thumbs": False}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Decode(**wrong)


def test_importing_is_free():
    code = ("import sys, curator_video; heavy = {'av', 'cv2', 'torch'} & set(sys.modules); assert not heavy, heavy")
    subprocess.run([sys.executable, "-c", code], check=True)
