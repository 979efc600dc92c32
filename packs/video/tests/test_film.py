"""Open films: exact times and jumps in any container, upright pictures, and files that are hostile."""

from __future__ import annotations

import io
import os
from fractions import Fraction
from itertools import pairwise

import av
import cv2
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter
from curator_video.read.film import BadFilm, Film
from curator_video.read.interlace import unmarked
from curator_video.read.pixels import Pixels

from packs.video.tests.films import film, number_of, numbered, pan, sine, sound_only, texture

X264 = {"crf": "20", "preset": "veryfast", "g": "20", "keyint_min": "20", "sc_threshold": "0"}
COUNT = 90


def numbers(opened, start_s=0.0, end_s=None):
    return [number_of(opened.upright(frame)) for _, frame in opened.frames(start_s, end_s)]


def made(**options):
    return film(numbered(COUNT), 25, **{"options": X264, **options})


# -- jumps ------------------------------------------------------------------------------------------------------------

FILMS = {
    "mp4": {},
    "faststart": {"container_options": {"movflags": "faststart"}},
    "no b frames": {"options": {**X264, "bf": "0"}},
    "open gop": {"options": {**X264, "x264-params": "open-gop=1:keyint=20:min-keyint=20:scenecut=0:bframes=3"}},
    "one key": {"options": {**X264, "g": "250"}},
    "hevc": {"codec": "libx265", "options": {"preset": "ultrafast", "x265-params": "keyint=20:log-level=none"}},
    "vp9": {"codec": "libvpx-vp9", "container": "webm", "options": {"deadline": "realtime", "cpu-used": "8", "g": "20"}},
    "mkv": {"container": "matroska"},
    "ts": {"container": "mpegts"},
    "mpeg": {"codec": "mpeg2video", "container": "mpeg", "options": {"g": "12", "bf": "2", "q:v": "4"}},
    "avi": {"codec": "mpeg4", "container": "avi", "options": {"g": "20"}},
    "avi with b frames": {"container": "avi"},
    "flv": {"container": "flv"},
    "raw": {"container": "h264"},
}


@pytest.mark.parametrize("name", FILMS)
def test_any_span_is_exact(name):
    with Film(made(**FILMS[name])) as opened:
        assert [round(time * 25, 6) for time, _ in opened.frames()] == list(range(COUNT))
        assert numbers(opened) == list(range(COUNT))
        for start, end in ((1.96, 2.16), (0.04, 0.12), (2.4, 2.48), (0.0, 0.04), (3.56, 9.0), (1.99, 2.05), (0.76, 0.92)):
            first, behind = -round(-start * 25 // 1), -round(-min(end, COUNT / 25) * 25 // 1)
            assert numbers(opened, start, end) == list(range(first, behind)), (start, end)
        assert numbers(opened, 4.0, 5.0) == []
        assert (opened.corrupt, opened.backward, opened.truncated) == (0, 0, False)
        assert opened.by_count == (name in ("raw", "avi with b frames"))


def test_spans_that_follow_each_other_give_each_picture_once():
    with Film(made()) as opened:
        spans = list(pairwise([0.0, 0.5, 1.28, 1.28, 3.0, 3.6]))
        assert [n for span in spans for n in numbers(opened, *span)] == list(range(COUNT))
        assert [n for span in reversed(spans) for n in numbers(opened, *span)][:15] == list(range(75, 90))


@pytest.mark.parametrize("container", ["mpeg", "mpegts"])
def test_spans_out_of_order_have_the_pictures_of_the_whole_film(container):
    codec, options = ("mpeg2video", {"g": "12", "bf": "2", "q:v": "4"}) if container == "mpeg" else ("libx264", X264)
    parts = [film(numbered(count, first=first), 25, codec=codec, container=container, options=options)
             for count, first in (((2550, 0),) if container == "mpeg" else ((500, 2000), (1000, 0)))]  # times of the second begin anew
    with Film(b"".join(parts)) as opened:
        whole = [(time, number_of(opened.upright(frame))) for time, frame in opened.frames()]
        for start in (100.0, 30.0, 17.53, 17.0, 2.5):
            assert numbers(opened, start, start + 0.4) == [n for time, n in whole if start - 0.001 <= time < start + 0.399]


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_what_lies_far_ahead_is_jumped_to(container, monkeypatch):
    decoded, tried = [], Film._tried
    monkeypatch.setattr(Film, "_tried", lambda self, packet: decoded.append(packet.pts) or tried(self, packet))
    with Film(film(numbered(1000, 32, 64), 25, container=container, options={"crf": "30", "preset": "ultrafast", "g": "25"})) as opened:
        assert numbers(opened, 38.0, 38.4) == list(range(950, 960))
    assert len(decoded) < 100


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_where_keyframes_lie_far_apart_little_is_decoded_twice(container, monkeypatch):
    decoded, tried = [], Film._tried
    monkeypatch.setattr(Film, "_tried", lambda self, packet: decoded.append(packet.pts) or tried(self, packet))
    options = {"crf": "30", "preset": "ultrafast", "g": "10000"}
    with Film(film(numbered(1000, 32, 64), 25, container=container, options=options)) as opened:
        for start in range(1, 40, 4):
            assert numbers(opened, start, start + 0.2) == list(range(25 * start, 25 * start + 5))
    assert len(decoded) < 1500  # with a jump to the one keyframe for each span 5000


def test_a_jump_into_pictures_that_are_refreshed_little_by_little_misses_nothing():
    options = {"preset": "fast", "x264-params": "intra-refresh=1:keyint=40:bframes=0"}
    pictures = [np.roll(one, k, 0) for k, one in enumerate(pan(1, 200, 2, 96, 128))]
    with Film(film(pictures, 25, options=options)) as opened:
        whole = {time: opened.upright(frame) for time, frame in opened.frames()}
        for start in (4.0, 4.6, 7.2):
            for time, frame in opened.frames(start, start + 0.4):
                assert (opened.upright(frame) == whole[time]).all(), time


def test_a_walk_that_is_left_may_be_begun_anew():
    with Film(made()) as opened:
        for time, _ in opened.frames(1.0):
            if time > 1.5:
                break
        assert numbers(opened, 1.6, 1.8) == [40, 41, 42, 43, 44]
        assert numbers(opened, 1.0, 1.1) == [25, 26, 27]


def test_times_are_those_of_the_file():
    pts = [*range(60), *range(60, 120, 3), *(149 + k for k in range(30))]
    data = film(numbered(110), 30, pts=pts, time_base=Fraction(1, 30), options=X264)
    with Film(data) as opened:
        assert np.allclose([time for time, _ in opened.frames()], np.array(pts) / 30)
        assert numbers(opened, 5.0 - 0.04, 5.0) == [80]
    later = film(numbered(60), 25, pts=list(range(100, 160)), container="matroska", options=X264)
    with Film(later) as opened:
        assert opened.first_s == pytest.approx(4.0)
        assert numbers(opened, 1.0, 1.2) == [25, 26, 27, 28, 29]


def test_rates_that_are_no_whole_numbers_do_not_drift():
    with Film(film(numbered(60), Fraction(30000, 1001))) as opened:
        times = [time for time, _ in opened.frames()]
    assert times[-1] == pytest.approx(59 * 1001 / 30000)


# -- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rotate", "mirrored"), [(0, False), (90, False), (180, False), (270, False), (0, True), (90, True)])
def test_pictures_stand_upright(rotate, mirrored):
    picture = texture(3, 120, 160)
    data = film([picture] * 3, rotate=rotate, mirrored=mirrored, options={"crf": "10"})
    with Film(data) as opened:
        _, frame = next(opened.frames())
        found, thumb, chroma = opened.upright(frame), opened.thumb(frame), opened.small(frame)[1]
    wanted = np.rot90(picture[:, ::-1] if mirrored else picture, -rotate // 90)
    assert (opened.rotation, opened.mirrored) == (rotate, mirrored)
    assert found.shape == wanted.shape == (opened.height, opened.width, 3)
    assert np.abs(found.astype(int) - wanted).mean() < 6
    with Film(film([np.ascontiguousarray(wanted)] * 3, options={"crf": "10"})) as straight:
        _, frame = next(straight.frames())
        assert np.abs(thumb.astype(int) - straight.thumb(frame)).mean() < 2
        assert np.abs(chroma.astype(int) - straight.small(frame)[1]).mean() < 2
    assert thumb.shape == (36, 64)
    assert chroma.shape == (2, 18, 32)


def test_pixels_are_square():
    with Film(film(pan(1, 3, 0), sar=Fraction(4, 3))) as opened:
        assert (opened.width, opened.height) == (427, 240)
        _, frame = next(opened.frames())
        assert opened.upright(frame).shape == (240, 427, 3)
        assert opened.fitted(200) == (200, 112)
        assert opened.fitted(120, "short") == (214, 120)
        assert opened.fitted(4000) == (428, 240)


@pytest.mark.parametrize(("pix_fmt", "codec"), [("yuv420p", "libx264"), ("yuv444p", "libx264"), ("yuv420p10le", "libx264"),
                                                ("yuvj420p", "mjpeg"), ("bgr0", "ffv1"), ("rgb8", "gif")])
def test_luma_is_the_same_in_any_format(pix_fmt, codec):
    picture = texture(5)
    container = {"gif": "gif"}.get(codec, "matroska")
    options = {"crf": "12"} if codec == "libx264" else {"q:v": "2"}
    with Film(film([picture] * 2, pix_fmt=pix_fmt, codec=codec, container=container, options=options)) as opened:
        _, frame = next(opened.frames())
        thumb, chroma, rgb = opened.thumb(frame), opened.small(frame)[1], opened.upright(frame)
    weights = np.array([0.299, 0.587, 0.114])
    true = 16 + (picture @ weights) * 219 / 255
    assert abs(thumb.mean() - true.mean()) < 3
    assert np.abs(chroma.astype(int) - 128).mean() < 40
    assert np.abs(rgb.astype(int) - picture).mean() < (25 if codec == "gif" else 6)


def test_thumbnails_of_large_pictures_are_near_the_mean_of_each_area():
    frame = av.VideoFrame.from_ndarray(texture(7, 1080, 1920), "rgb24").reformat(format="yuv420p")
    pixels, planes = Pixels(0, False, VideoReformatter()), [np.frombuffer(one, np.uint8) for one in frame.planes]
    luma = planes[0].reshape(36, 30, 64, 30).mean((1, 3))
    assert np.abs(pixels.thumb(frame) - luma).max() < 3
    u, v = (plane.reshape(18, 30, 32, 30).mean((1, 3)) for plane in planes[1:])
    assert np.abs(pixels.small(frame)[1] - np.stack([u, v])).max() < 3


@pytest.mark.parametrize(("rows", "columns", "options"), [
    (480, 640, {"crf": "0"}), (480, 640, {"crf": "0", "x264-params": "tff=1", "flags": "+ildct+ilme"}), (50, 100, {"crf": "0"})],
    ids=["plain", "interlaced", "small"])
@pytest.mark.parametrize("rotate", [0, 90])
def test_thumbnails_are_the_mean_of_each_area_also_of_interlaced_and_of_small_pictures(rows, columns, options, rotate):
    picture = np.repeat(texture(7, rows, columns)[:, :, :1], 3, axis=2)
    with Film(film([picture] * 3, options=options, rotate=rotate)) as opened:
        _, frame = next(opened.frames())
        assert opened.first.interlaced_frame == ("flags" in options)
        luma = frame.to_ndarray()[:rows].astype(np.float32)
        wanted = cv2.resize(np.rot90(luma, -rotate // 90), (64, 36), interpolation=cv2.INTER_AREA)
        assert np.abs(opened.thumb(frame) - wanted).mean() < 1  # of one field after the other 6 and more
        assert (opened.small(frame)[0] == opened.thumb(frame)).all()


def test_what_is_marked_as_interlaced_is_scaled_as_what_is_not():
    """Fields of a picture that is not woven lie a line apart: one after the other they would be scaled to other places."""
    marks = {"flags": "+ildct+ilme", "x264-params": "tff=1"}
    with Film(film([texture(7, 480, 640)] * 3, options={"crf": "0"})) as plain, \
            Film(film([texture(7, 480, 640)] * 3, options={"crf": "0"} | marks)) as marked:
        assert marked.first.interlaced_frame
        assert not plain.first.interlaced_frame
        (_, one), (_, other) = next(plain.frames()), next(marked.frames())
        for size in ((640, 480), (384, 216), (64, 36)):
            assert (plain.upright(one, size) == marked.upright(other, size)).all()


@pytest.mark.parametrize("kind", ["rgb24", "bgr0", "yuyv422", "yuvj420p", "yuv420p10le"])
def test_marks_are_taken_from_pictures_of_every_kind(kind):
    plain = av.VideoFrame.from_ndarray(texture(7, 480, 640), "rgb24").reformat(format=kind)
    plain.pts, plain.time_base = 7, Fraction(1, 25)
    graph = av.filter.Graph()
    graph.link_nodes(graph.add_buffer(width=640, height=480, format=plain.format, time_base=plain.time_base),
                     graph.add("setfield", "mode=tff"), graph.add("buffersink")).configure()
    graph.push(plain)
    marked = graph.pull()
    marked.colorspace, marked.color_range = plain.colorspace, plain.color_range
    assert marked.interlaced_frame
    ((time, other),) = unmarked([(0.28, marked)])
    assert (time, other.pts, other.time_base, other.interlaced_frame) == (0.28, 7, Fraction(1, 25), False)
    pixels, others = (Pixels(0, False, VideoReformatter()) for _ in range(2))
    assert (pixels.rgb(plain, (384, 216)) == others.rgb(other, (384, 216))).all()
    for one, two in zip(pixels.small(plain), others.small(other), strict=True):
        assert (one == two).all()


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_what_is_made_much_smaller_is_not_deblocked_where_that_is_not_seen(codec):
    """Of pictures that no other refers to, and with a jump as without; with less the pictures are as they are coded."""
    options = {"crf": "32", "preset": "fast", "g": "20", **({"x265-params": "log-level=none"} if codec == "libx265" else {})}
    data = film(pan(1, 50, 2, 240, 320), codec=codec, container="matroska", options=options)

    def pictures(start=0.0, **how):
        with Film(data, **how) as opened:
            return np.stack([opened.upright(frame, (192, 144)) for _, frame in opened.frames(start)]).astype(int)

    coded, rough = pictures(), pictures(longest=192)
    assert (pictures(longest=240) == coded).all()
    off = ((rough - coded) ** 2).mean(axis=(1, 2, 3))
    assert 10 < np.count_nonzero(off) < 40
    assert off.max() < 255**2 / 10**4  # 40 dB
    assert (pictures(1.0, longest=192) == rough[25:]).all()


def test_colours_that_nobody_knows_are_taken_as_not_tagged():
    with Film(film(pan(1, 3, 0))) as plain, Film(film(pan(1, 3, 0))) as tagged:
        wanted = plain.upright(next(plain.frames())[1])
        _, frame = next(tagged.frames())
        frame.colorspace = 3  # reserved
        assert np.abs(tagged.upright(frame).astype(int) - wanted).mean() < 3
        frame.color_primaries = 3
        assert tagged.upright(frame).shape == wanted.shape


def test_the_largest_film_is_taken_and_covers_are_none():
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        streams = []
        for width, height in ((160, 120), (320, 240)):
            stream = out.add_stream("libx264", rate=25)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            streams.append(stream)
        for stream in streams:
            for k, picture in enumerate(pan(1, 5, 0, stream.height, stream.width)):
                frame = av.VideoFrame.from_ndarray(picture, "rgb24")
                frame.pts, frame.time_base = k, Fraction(1, 25)
                out.mux(stream.encode(frame))
            out.mux(stream.encode(None))
    with Film(file.getvalue()) as opened:
        assert (opened.width, opened.height) == (320, 240)
        assert len(list(opened.frames())) == 5


# -- hostile files ----------------------------------------------------------------------------------------------------

WHOLE = film(numbered(100), 25, options=X264, sound=sine(440, 4.0), container_options={"movflags": "faststart"})


@pytest.mark.parametrize(("data", "begins"), [
    (b"", "empty"),
    (b"x", "not_media"),
    (b"no film at all, but text\n" * 100, "not_media"),
    (b"<html><body>404</body></html>" * 50, "not_media"),
    (bytes(100_000), "not_media"),
    (np.random.default_rng(0).bytes(100_000), "not_media"),
    (b"#EXTM3U\n#EXT-X-VERSION:3\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n", "not_media"),
    (b"ffconcat version 1.0\nfile /etc/passwd\n", "not_media"),
    (film(numbered(20))[:-400], "no"),
    (WHOLE[:900], "no"),
    (sound_only(), "no_video"),
    (sound_only("mp4", "aac"), "no_video"),
    (sound_only("mp4", "aac", picture=texture(1, 64, 64)), "no_video"),
], ids=["no bytes", "one byte", "text", "html", "zeros", "random", "playlist", "concat", "no moov", "cut in moov", "wav", "m4a", "cover"])
def test_what_is_no_film_says_what_it_is(data, begins):
    with pytest.raises(BadFilm) as caught:
        Film(data)
    assert str(caught.value).startswith(begins)


def test_a_header_without_pictures():
    moov = WHOLE.index(b"mdat")
    with pytest.raises(BadFilm, match=r"^no_frames"):
        Film(WHOLE[:moov + 4] + bytes(200))


def test_bombs_are_refused():
    with pytest.raises(BadFilm, match=r"^too_large"):
        Film(WHOLE, max_pixels=160 * 120 - 1)
    gif = bytearray(film(numbered(2), codec="gif", container="gif", pix_fmt="rgb8"))
    gif[6:10] = b"\xff\xff\xff\xff"
    with pytest.raises(BadFilm):
        Film(bytes(gif))


def test_the_content_decides_and_not_the_name(tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(made(container="matroska"))
    with Film(str(path)) as opened:
        assert (opened.format, len(list(opened.frames()))) == ("matroska", COUNT)
    with pytest.raises(BadFilm, match=r"^unreadable"):
        Film(str(tmp_path / "none.mp4"))


@pytest.mark.parametrize(("container", "least"), [("mp4", 40), ("matroska", 40), ("mpegts", 40)])
def test_half_a_film_gives_what_it_has(container, least):
    extra = {"container_options": {"movflags": "faststart"}} if container == "mp4" else {}
    data = film(pan(1, 100, 2), 25, options=X264, container=container, **extra)
    with Film(data[:len(data) * 6 // 10]) as opened:
        times = [time for time, _ in opened.frames()]
    assert least <= len(times) < 100
    assert np.allclose(times, np.arange(len(times)) / 25)


def test_corrupt_packets_are_counted():
    data = bytearray(film(pan(1, 100, 2), 25, options=X264))
    start = bytes(data).index(b"mdat")
    rng = np.random.default_rng(0)
    for at in rng.integers(start + len(data) // 5, len(data) - len(data) // 5, 20):
        data[at] ^= 0xFF
    with Film(bytes(data)) as opened:
        times = [time for time, _ in opened.frames()]
        assert opened.corrupt > 0
    assert len(times) > 60
    assert np.all(np.diff(times) > 0)


def test_a_duration_that_lies_is_not_believed():
    data = bytearray(WHOLE)
    for box in (b"mvhd", b"tkhd", b"mdhd"):
        at = bytes(data).index(box) + {b"mvhd": 20, b"tkhd": 24, b"mdhd": 20}[box]
        data[at:at + 4] = (2**31 - 1).to_bytes(4, "big")
    with Film(bytes(data)) as opened:
        assert len(list(opened.frames())) == 100
        assert numbers(opened, 3.9) == [98, 99]


def test_times_that_go_back_are_left_out():
    data = film(numbered(50), 25, container="mpegts", options=X264)
    with Film(data + data) as opened:
        times = [time for time, _ in opened.frames()]
        assert opened.backward > 0
    assert np.all(np.diff(times) > 0)


def test_one_time_far_off_does_not_end_a_film():
    with Film(made()) as opened:
        opened._num, opened._den, opened.origin = 1, 25, 0
        pictures = [(k, None) for k in [*range(10), 1_000_000, *range(11, 20)]]
        times = [time for time, _ in opened._ordered(iter(pictures))]
        gap = [time for time, _ in opened._ordered(iter([(0, None), (1, None), (5_000, None), (5_001, None)]))]
    assert np.allclose(np.array(times) * 25, [*range(10), *range(11, 20)])
    assert gap == [0, 0.04, 200, 200.04]


def test_many_are_opened_and_closed():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        with Film(WHOLE) as opened:
            next(opened.frames(1.0))
    assert len(os.listdir("/proc/self/fd")) <= before + 1
