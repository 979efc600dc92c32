"""Clips: exactly the pictures of their span, sound in step, the same bytes each time."""

from __future__ import annotations

import gc
import io
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_video.clips import encoders
from curator_video.clips.cut import Cut
from curator_video.clips.packets import pictures_of
from curator_video.read.film import Film

from curator import Batch, CuratorError, RecipeError, load
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, number_of, numbered, pan

RATE = 16_000
GOP = {"crf": "20", "preset": "veryfast", "x264-params": "keyint=50:min-keyint=50:scenecut=0"}
OPEN = GOP | {"x264-params": GOP["x264-params"] + ":open-gop=1:bframes=3:b-adapt=0"}
SPANS = [(2.8, 6.0), (0.52, 1.48), (1.99, 3.01), (0.0, 0.4), (7.96, 12.0)]


def chirp(seconds, rate=RATE):
    """A tone that rises, so that there is one place only where it fits."""
    at = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * (200 * at + 60 * at**2))).astype(np.float32)[None]


@pytest.fixture(scope="module")
def films():
    return {
        "mp4": film(numbered(300), options=GOP, sound=chirp(12)),
        "mkv": film(numbered(300), options=GOP, sound=chirp(12), container="matroska"),
        "open": film(numbered(300), options=OPEN, sound=chirp(12)),
        "ts": film(numbered(300), options=GOP, sound=chirp(12), container="mpegts"),
        "turned": film(numbered(300), options=GOP, rotate=90, sound=chirp(12)),
        "avi": film(numbered(300), codec="mpeg4", container="avi", sound=chirp(12), sound_codec="pcm_s16le"),
        "mp3": film(numbered(300), codec="mpeg4", container="avi", sound=chirp(12), sound_codec="libmp3lame"),  # a tick is a packet
        "flv": film(numbered(300), codec="flv", container="flv", sound=chirp(12)),  # pictures without a length
        "vp9": film(numbered(60), codec="libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"}, container="webm"),
    }


def spans(data, *places, **columns):
    ids = [f"f#{k}" for k in range(len(places))]
    return Batch(rows=pa.table({"id": ids, "source": ["test"] * len(ids), "bytes": pa.array([data] * len(ids), pa.binary()),
                                "start_s": pa.array([start for start, _ in places], pa.float64()),
                                "end_s": pa.array([end for _, end in places], pa.float64()), **columns}))


def clips(data, *places, **options):
    answer = run_stage(Cut(**options), spans(data, *places))
    assert "failed" not in answer, answer["failed"].column("error")
    return answer["out"].rows.to_pylist()


def shown(data):
    """Numbers and times of the pictures that PyAV shows."""
    with av.open(io.BytesIO(data)) as file:
        return [(number_of(frame.to_ndarray(format="rgb24")), float(frame.time)) for frame in file.decode(video=0)]


def numbers(data):
    return [number for number, _ in shown(data)]


def of(start, end, last=300):
    return [k for k in range(last) if start - 1e-6 <= k / 25 < end - 1e-6]


def heard(data, seconds):
    """The sound as it lies in time, from 0."""
    line = np.zeros(round(seconds * RATE) + 8_000, np.float32)
    with av.open(io.BytesIO(data)) as file:
        for frame in file.decode(audio=0):
            at, samples = round(frame.time * RATE), frame.to_ndarray()
            samples = samples[0] if frame.format.is_planar else samples[0, ::frame.layout.nb_channels]
            samples = samples[:max(0, len(line) - at)]
            line[at:at + len(samples)] = samples if samples.dtype == np.float32 else samples / 32768
    return line


def offset_ms(clip, whole, start, length):
    """By how much the clip's sound is late, in ms: where it fits best into the film's."""
    part = clip[round(0.2 * RATE):round((length - 0.2) * RATE)]
    lags = range(-800, 801, 4)
    begin = round((start + 0.2) * RATE)
    fits = [float(part @ whole[max(0, begin - lag):][:len(part)]) if begin - lag >= 0 else -1e9 for lag in lags]
    return lags[int(np.argmax(fits))] / RATE * 1000


@pytest.mark.parametrize("name", ["mp4", "mkv", "open", "ts", "turned", "avi", "flv"])
@pytest.mark.parametrize("method", ["auto", "exact"])
def test_exactly_the_pictures_of_the_span(films, name, method):
    for (start, end), row in zip(SPANS, clips(films[name], *SPANS, method=method), strict=True):
        found = shown(row["bytes"])
        assert [number for number, _ in found] == of(start, end), (name, start, row["cut_method"])
        assert [time for _, time in found] == pytest.approx([k / 25 for k in range(len(found))], abs=2e-3)
        assert (row["clip_frames"], row["extension"]) == (len(found), "mp4")
        assert row["clip_start"] == pytest.approx(of(start, end)[0] / 25, abs=2e-3)
        assert row["hidden_s"] >= 0 if row["cut_method"] == "edit_list" else row["hidden_s"] == 0


def test_how_it_is_cut(films):
    def ways(name, **options):
        return [row["cut_method"] for row in clips(films[name], *SPANS, **options)]

    for name in ("mp4", "mkv", "turned"):
        assert ways(name) == ["edit_list", "edit_list", "keyframe", "keyframe", "edit_list"], name
    assert ways("mp4", max_hidden=0.6) == ["exact", "edit_list", "keyframe", "keyframe", "exact"]
    assert ways("ts") == ["exact"] * 5
    assert ways("open")[0] == "exact"  # its first keyframe has leading pictures
    assert {row["cut_method"] for row in clips(films["vp9"], (0.4, 1.2))} == {"edit_list"}


def test_other_readers_see_the_same(films, tmp_path):
    for method in ("auto", "exact"):
        Path(tmp_path / "clip.mp4").write_bytes(clips(films["mp4"], (2.8, 6.0), method=method)[0]["bytes"])
        reader, found = cv2.VideoCapture(str(tmp_path / "clip.mp4")), []
        while (got := reader.read())[0]:
            found.append(number_of(got[1]))
        assert found == of(2.8, 6.0)
    assert numbers(clips(films["vp9"], (0.4, 1.2))[0]["bytes"]) == of(0.4, 1.2)


def test_keyframe_begins_earlier_and_says_so(films):
    row = clips(films["mp4"], (2.8, 6.0), method="keyframe")[0]
    assert numbers(row["bytes"]) == of(2.0, 6.0)
    assert (row["start_s"], row["end_s"], row["duration"], row["clip_start"]) == (2.0, 6.0, 4.0, 2.0)
    answer = run_stage(Cut(method="keyframe"), spans(films["ts"], (2.8, 6.0)))
    assert answer["failed"].column("error")[0].startswith("cut_failed:")


@pytest.mark.parametrize("name", ["mp4", "mkv", "avi", "mp3"])
@pytest.mark.parametrize("method", ["auto", "exact", "keyframe"])
def test_sound_stays_in_step(films, name, method):
    if (name, method) in (("avi", "keyframe"), ("mp3", "keyframe")):
        return
    start, end = 2.8, 6.0
    row = clips(films[name], (start, end), method=method)[0]
    length = end - row["clip_start"]
    late = offset_ms(heard(row["bytes"], length), heard(films[name], 12), row["clip_start"], length)
    assert abs(late) < 5, late
    with av.open(io.BytesIO(row["bytes"])) as file:
        assert file.duration / 1e6 == pytest.approx(length, abs=0.005)
    assert not av.open(io.BytesIO(clips(films[name], (start, end), method="exact", audio=False)[0]["bytes"])).streams.audio


def test_sound_that_goes_back_is_left_out_as_pictures_are(films):
    twice = clips(films["ts"] * 2, (8.0, 12.0))[0]
    assert twice["bytes"] == clips(films["ts"], (8.0, 12.0), method="exact")[0]["bytes"]


def test_where_one_keyframe_is_far_before_the_packets_between_are_not_held():
    data = film(numbered(1000, 32, 64), options={"preset": "ultrafast", "g": "10000"})
    with Film(data) as opened:
        assert len(pictures_of(opened, 38.0, 39.0, 2.0).packets) < 30
        assert len(pictures_of(opened, 38.0, 39.0).packets) == 975
    assert [(row["cut_method"], row["clip_frames"]) for row in clips(data, (1.96, 3.0), (38.0, 39.0))] == [("edit_list", 26), ("exact", 25)]


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_what_is_refreshed_little_by_little_is_encoded_as_marks_there_are_no_keyframes(container):
    options = {"preset": "fast", "crf": "18", "x264-params": "intra-refresh=1:keyint=40:bframes=0"}
    pictures = [np.roll(one, k, 0) for k, one in enumerate(pan(1, 200, 2, 96, 128))]
    data = film(pictures, container=container, options=options)
    for row in clips(data, (0.0, 1.0), (3.44, 4.0), (6.7, 7.2)):
        first = round(row["clip_start"] * 25)
        assert row["cut_method"] == ("exact" if first else "keyframe")
        with av.open(io.BytesIO(row["bytes"])) as file:
            for k, frame in enumerate(file.decode(video=0), first):
                assert np.abs(frame.to_ndarray(format="rgb24") - pictures[k].astype(int)).mean() < 5, k


@pytest.mark.parametrize("method", ["auto", "exact"])
def test_sound_that_begins_so_late_that_no_header_tells_its_rate_is_kept(method):
    late = {"options": GOP, "sound": chirp(4), "sound_from": 12.0}
    row, = clips(film(numbered(400), container="mpegts", **late), (13.0, 15.0), method=method)
    assert numbers(row["bytes"]) == of(13.0, 15.0, 400)
    assert abs(offset_ms(heard(row["bytes"], 2.0), heard(film(numbered(400), **late), 16.0), 13.0, 2.0)) < 1


def test_joined_clips_are_the_film(films):
    places = [(k * 1.5, (k + 1) * 1.5) for k in range(8)]
    for method in ("auto", "exact"):
        assert [k for row in clips(films["mp4"], *places, method=method) for k in numbers(row["bytes"])] == list(range(300))


@pytest.mark.parametrize("options", [{}, {"method": "exact"}, {"method": "keyframe"}, {"fps": 25.0}])
def test_a_clip_is_cut_again_by_the_times_of_its_film(films, options):
    whole, = run_stage(Cut(**options), spans(films["mp4"], (2.8, 6.0)))["out"].rows.to_pylist()
    for start, end in ((3.52, 4.48), (whole["start_s"], 6.0), (5.0, None)):
        again = Batch(rows=pa.Table.from_pylist([whole | {"start_s": start, "end_s": end}]))
        row, = run_stage(Cut(), again)["out"].rows.to_pylist()
        assert numbers(row["bytes"]) == of(start, end or 6.0), (start, row["cut_method"])
        assert (row["start_s"], row["end_s"]) == (start, end)
        assert row["clip_start"] == pytest.approx(of(start, 6.0)[0] / 25, abs=2e-3)


def test_a_turned_film_stays_turned(films):
    for method in ("auto", "exact", "keyframe"):
        with Film(clips(films["turned"], (2.8, 3.6), method=method)[0]["bytes"]) as made:
            assert (made.rotation, made.width, made.height) == (90, 120, 160)


def test_odd_sizes_high_depths_and_varying_rates():
    odd = film((picture[:119, :159] for picture in numbered(30)), pix_fmt="yuv444p")
    with Film(clips(odd, (0.2, 1.0), method="exact")[0]["bytes"]) as made:
        assert (made.width, made.height) == (158, 118)
    deep = film(numbered(30), pix_fmt="yuv420p10le", colours=(9, 16, 9))
    with Film(clips(deep, (0.2, 1.0), method="exact")[0]["bytes"]) as made:
        context = made.stream.codec_context
        assert (context.pix_fmt, context.color_trc, context.color_primaries) == ("yuv420p10le", 16, 9)
    times = [k * 2 for k in range(20)] + [40 + 5 * k for k in range(10)]
    for method in ("auto", "exact"):
        varying = film(numbered(30), pts=times, time_base=Fraction(1, 50))
        found = shown(clips(varying, (0.4, 1.4), method=method)[0]["bytes"])
        assert [number for number, _ in found] == [k for k, tick in enumerate(times) if 20 <= tick < 70]
        assert [time for _, time in found] == pytest.approx([tick / 50 - 0.4 for tick in times if 20 <= tick < 70], abs=1e-3)


def test_the_same_bytes_each_time(films):
    for method in ("auto", "exact"):
        one, two = (clips(films["mp4"], (2.8, 6.0), method=method)[0]["bytes"] for _ in range(2))
        assert one == two
    converted = film(pan(1, 30, 2), pix_fmt="yuv444p")  # in memory that was used before
    assert len({clips(converted, (0.2, 1.1), method="exact")[0]["bytes"] for _ in range(5)}) == 1


def test_clips_of_one_film_open_it_once_and_once_more_to_encode(films, tmp_path, monkeypatch):
    place = tmp_path / "film.mp4"
    place.write_bytes(films["mp4"])
    opened = []
    real = Film.__init__
    monkeypatch.setattr(Film, "__init__", lambda self, *args, **options: (opened.append(1), real(self, *args, **options))[1])
    batch = spans(None, *SPANS).with_columns({"path": [str(place)] * len(SPANS)})
    rows = run_stage(Cut(), batch)["out"].rows.to_pylist()
    assert [numbers(row["bytes"]) for row in rows] == [of(*place) for place in SPANS]
    assert {row["cut_method"] for row in rows} <= {"keyframe", "edit_list"}
    assert len(opened) == 1
    assert len(run_stage(Cut(method="exact"), batch)["out"]) == len(SPANS)
    assert len(opened) == 3
    other = tmp_path / "other.mp4"
    other.write_bytes(films["mp4"])
    mixed = spans(None, *SPANS[::-1]).with_columns({"path": [str((place, other)[k % 2]) for k in range(len(SPANS))]})
    told = run_stage(Cut(), mixed)["out"].rows.to_pylist()
    assert len(opened) == 5
    assert [(row["id"], row["bytes"]) for row in told] == [(f"f#{k}", row["bytes"]) for k, row in enumerate(rows[::-1])]


def test_what_cannot_be_cut_says_why(films):
    batch = spans(films["mp4"], (20.0, 25.0), (1.0, 2.0), (0.0, 1.0), (3.0, 2.0))
    batch = batch.with_columns({"bytes": pa.array([films["mp4"], b"no film", None, films["mp4"]], pa.binary())})
    answer = run_stage(Cut(), batch)
    assert [error.partition(":")[0] for error in answer["failed"].column("error")] == ["no_frames", "not_media", "no_file", "no_span"]


def test_without_an_end_until_the_end(films):
    batch = spans(films["mp4"], (10.0, 11.0)).with_columns({"end_s": pa.nulls(1, pa.float64())})
    row = run_stage(Cut(), batch)["out"].rows.to_pylist()[0]
    assert numbers(row["bytes"]) == of(10.0, 12.0)


def test_the_stage_keeps_the_rules(films):
    batch = spans(films["mp4"], (2.8, 3.2), (0.52, 1.0), (20.0, 21.0))
    check_stage(Cut(), batch, skip={"needs"})  # it reads bytes or a path, whichever is there
    check_stage(Cut(method="exact"), batch, skip={"needs"})


@pytest.mark.parametrize("options", [{"method": "copy"}, {"max_hidden": -1}, {"crf": 60}, {"preset": "quick"},
                                     {"codec": "h266"}, {"size": 2}, {"side": "left"}, {"fps": 0}, {"encoder": "libx266"}])
def test_nonsense_is_refused(options):
    with pytest.raises((ValueError, CuratorError), match=next(iter(options))):
        run_stage(Cut(**options), spans(b"", (0, 1)))


@pytest.mark.parametrize("codec", ["h264", "h265", "vp9", "av1"])
def test_encoders_write_nothing_between_the_lines_of_a_run(films, codec, capfd):
    encoders._refused.cache_clear()
    clips(films["mp4"], (0.0, 0.4), codec=codec, method="exact", preset="ultrafast")
    gc.collect()  # x265 speaks when it is let go
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("codec", "name"), [("h265", "hevc"), ("vp9", "vp9"), ("av1", "av1")])
def test_other_codecs(films, codec, name):
    """Exactly the span, the same bytes each time, ten bits kept, and sound in step."""
    one, two = (clips(films["mp4"], (2.8, 4.0), method="exact", codec=codec, preset="superfast")[0] for _ in range(2))
    assert one["bytes"] == two["bytes"]
    assert numbers(one["bytes"]) == of(2.8, 4.0)
    assert abs(offset_ms(heard(one["bytes"], 1.2), heard(films["mp4"], 12), one["clip_start"], 1.2)) < 5
    with av.open(io.BytesIO(one["bytes"])) as file:
        assert file.streams.video[0].codec_context.codec.canonical_name == name
        assert file.streams.video[0].codec_context.codec_tag != "hev1"
    deep = film(numbered(10), pix_fmt="yuv420p10le")
    with Film(clips(deep, (0, 0.4), method="exact", codec=codec, preset="superfast")[0]["bytes"]) as made:
        assert made.stream.codec_context.pix_fmt == ("yuv420p" if codec == "vp9" else "yuv420p10le")  # libvpx is built for 8 bits


@pytest.mark.parametrize("options", [{}, {"size": 60}, {"codec": "av1", "preset": "superfast"}, {"codec": "h265", "size": 60}])
@pytest.mark.parametrize("odd", [False, True])
def test_full_range_stays_as_light_as_it_was(options, odd):
    full = film((picture[:119 if odd else 120] for picture in numbered(10)), pix_fmt="yuvj444p" if odd else "yuvj420p")

    def first(data):
        with Film(data) as opened:
            return cv2.resize(opened.upright(next(opened.frames())[1]), (80, 60), interpolation=cv2.INTER_AREA).astype(int)

    assert np.abs(first(clips(full, (0, 0.4), method="exact", **options)[0]["bytes"]) - first(full)).mean() < 3


def test_encoders_that_are_not_here_say_so(films):
    with pytest.raises(CuratorError, match=r"no 'libx266'; for h264 it has .*libx264"):
        run_stage(Cut(encoder="libx266"), spans(films["mp4"], (0, 1)))
    with pytest.raises(CuratorError, match="'libx265' encodes hevc, and codec is h264"):
        run_stage(Cut(encoder="libx265"), spans(films["mp4"], (0, 1)))
    with pytest.raises(CuratorError, match="no 'libx266'"):  # before a film is read, however many stages come before
        Cut(encoder="libx266").check({"path": pa.string()})


def test_an_encoder_of_gpus_in_a_step_without_one_is_refused_before_a_film_is_read(tmp_path, films):
    (tmp_path / "a.mp4").write_bytes(films["mp4"])
    recipe = f"read: {{video.files: {{path: {tmp_path}/*.mp4}}}}\nsteps:\n  - video.cut: {{encoder: h264_nvenc}}\n" \
             f"write: {{parquet: {{path: {tmp_path}/out}}}}"
    with pytest.raises(RecipeError, match=r"'h264_nvenc' does not open in a step without a GPU; it wants .* give the step one") as raised:
        load(recipe).plan()
    assert "steps[0].video.cut: stage 'cut'" in str(raised.value)
    Cut(encoder="h264_nvenc").with_(resources={"gpus": 0.2}).check({"path": pa.string()})


def test_a_gpu_encodes_if_it_is_there(monkeypatch):
    monkeypatch.setattr(encoders, "_refused", lambda name: "")
    assert encoders.chosen("h265", None, gpu=True) == "hevc_nvenc"
    assert encoders.chosen("h265", None, gpu=False) == "libx265"
    assert encoders.chosen("vp9", None, gpu=True) == "libvpx-vp9"
    monkeypatch.setattr(encoders, "_refused", lambda name: "no driver" if "nvenc" in name else "")
    assert encoders.chosen("h265", None, gpu=True) == "libx265"
    with pytest.raises(CuratorError, match=r"'h264_nvenc' does not open here \(no driver\); it wants a GPU"):
        encoders.chosen("h264", "h264_nvenc", gpu=True)


def test_smaller_and_never_larger(films):
    row = clips(films["mp4"], (2.8, 4.0), size=60)[0]
    assert row["cut_method"] == "exact"
    assert numbers(row["bytes"]) == of(2.8, 4.0)
    with Film(row["bytes"]) as made:
        assert (made.width, made.height) == (80, 60)
    assert clips(films["mp4"], (2.8, 4.0), size=120)[0]["cut_method"] == "edit_list"
    with Film(clips(films["turned"], (2.8, 3.6), size=80, side="long")[0]["bytes"]) as made:
        assert (made.rotation, made.width, made.height) == (90, 60, 80)
    wide = film(numbered(20), sar=Fraction(4, 3))
    with Film(clips(wide, (0, 0.4), size=60)[0]["bytes"]) as made:
        assert (made.coded, made.sar, made.width) == ((80, 60), Fraction(4, 3), 107)
    odd = film((picture[:119, :159] for picture in numbered(10)), pix_fmt="yuv444p")
    with Film(clips(odd, (0, 0.4), size=60)[0]["bytes"]) as made:
        assert (made.width, made.height) == (80, 60)


@pytest.mark.parametrize("fps", [10, 12.5, 50, 30000 / 1001])
def test_another_rate(films, fps):
    row = clips(films["mp4"], (2.8, 6.0), fps=fps)[0]
    found = shown(row["bytes"])
    count = round(3.2 * fps)
    assert [time for _, time in found] == pytest.approx([k / fps for k in range(count)], abs=1e-3)
    assert [number for number, _ in found] == [70 + int(k / fps * 25 + 1e-6) for k in range(count)]
    assert abs(offset_ms(heard(row["bytes"], 3.2), heard(films["mp4"], 12), row["clip_start"], 3.2)) < 5
