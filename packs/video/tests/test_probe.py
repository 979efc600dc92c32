"""What films are by header and packets; golden values of films whose truth is known."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import pyarrow as pa
import pytest
from curator_video.read.files import VideoFiles
from curator_video.read.probe import COLUMNS, Probe

from curator.api.errors import ContractError, InputError
from curator.testing import check_source, check_stage, run_stage
from packs.video.tests.films import film, films, numbered, pan, sine, sound_only, texture

X264 = {"crf": "20", "preset": "veryfast", "g": "20", "keyint_min": "20", "sc_threshold": "0"}


def probed(data, **parameters):
    outputs = run_stage(Probe(**parameters), films(data))
    assert set(outputs) == {"out"}, outputs["failed"].column("error")
    return outputs["out"].rows.to_pylist()[0]


def test_a_plain_film():
    row = probed(film(numbered(50), 25, options=X264, sound=sine(440, 2.0)))
    assert (row["container"], row["video_codec"], row["profile"], row["pix_fmt"]) == ("mp4", "h264", "High", "yuv420p")
    assert (row["width"], row["height"], row["coded_width"], row["coded_height"], row["bit_depth"]) == (160, 120, 160, 120, 8)
    assert (row["fps"], row["fps_nominal"], row["vfr"], row["frame_count"], row["declared_frames"]) == (25, 25, False, 50, 50)
    assert (row["duration"], row["declared_duration"], row["start_s"], row["end_s"]) == (2, 2, 0, 2)
    assert row["max_gap"] == pytest.approx(0.04)
    assert (row["missing_ratio"], row["keyframe_interval"], row["open_gop"], row["b_frames"]) == (0, 0.8, False, True)
    assert (row["has_audio"], row["audio_codec"], row["audio_rate"], row["audio_channels"]) == (True, "aac", 16_000, 1)
    assert row["audio_duration"] == pytest.approx(2.0, abs=0.07)
    assert row["audio_offset"] == pytest.approx(0.0, abs=0.001)
    assert row["bit_rate"] == pytest.approx(row["bpp"] * 160 * 120 * 25, rel=1e-3)
    assert (row["hdr"], row["interlaced"], row["rotation"], row["mirrored"], row["probe_note"]) == (None, False, 0, False, None)
    assert (row["n_video"], row["attached_pic"], row["subtitle_tracks"], row["languages"]) == (1, False, 0, [])


@pytest.mark.parametrize(("begins", "seconds"), [(0.0, 9.0), (0.0, 1.0), (3.0, 6.0)])
def test_sound_in_mp4_is_as_long_as_where_all_of_its_packets_are_read(begins, seconds):
    given = {"options": X264, "sound": sine(440, seconds), "sound_from": begins}
    listed, read = (probed(film(numbered(200), 25, container=container, **given)) for container in ("mp4", "mpegts"))
    assert listed["audio_offset"] == pytest.approx(begins, abs=0.07)
    # with what the encoder put before the sound, 64 ms, and what it filled up
    assert (listed["audio_offset"], listed["audio_duration"]) == pytest.approx((read["audio_offset"], read["audio_duration"]), abs=0.13)


def test_sound_of_half_an_mp4_is_as_long_as_there_is():
    data = film(numbered(200), 25, sound=sine(440, 8.0), options=X264, container_options={"movflags": "faststart"})
    row = probed(data[:len(data) * 6 // 10])
    assert row["probe_note"] == "truncated"
    assert (row["audio_duration"], row["duration"]) == pytest.approx((0.6 * 8, 0.6 * 8), abs=1.0)


def test_rates_and_lengths():
    ntsc = probed(film(numbered(60), Fraction(30000, 1001), options=X264))
    assert ntsc["duration"] == pytest.approx(2.002)
    assert ntsc["fps"] == pytest.approx(30000 / 1001)
    pts = [*range(60), *range(60, 120, 3), *(149 + k for k in range(30))]
    for container in ("mp4", "matroska"):
        row = probed(film(numbered(110), 30, pts=pts, time_base=Fraction(1, 30), options=X264, container=container))
        assert row["duration"] == pytest.approx(179 / 30, abs=2e-3)
        assert row["vfr"]
        assert row["max_gap"] == pytest.approx(32 / 30, abs=2e-3)
        assert row["fps"] == pytest.approx(109 / (178 / 30), rel=1e-3)


@pytest.mark.parametrize("container", ["mp4", "matroska", "mpegts"])
def test_a_late_start_is_no_length(container):
    row = probed(film(numbered(60), 25, pts=range(100, 160), options=X264, container=container))
    assert row["duration"] == pytest.approx(2.4)
    assert row["frame_count"] == 60
    assert row["start_time"] == pytest.approx(4.0, abs=0.1)
    assert row["missing_ratio"] < 0.02
    assert row["probe_note"] is None


def test_raw_streams_have_no_times():
    row = probed(film(numbered(50), 25, options=X264, container="h264"))
    assert (row["duration"], row["fps"], row["frame_count"], row["probe_note"]) == (2, 25, 50, "no_times")
    assert row["vfr"] is False
    assert (row["declared_duration"], row["keyframe_interval"]) == (None, None)


@pytest.mark.parametrize(("rotate", "mirrored"), [(90, False), (180, False), (270, False), (0, True)])
def test_rotation_and_size(rotate, mirrored):
    row = probed(film(pan(1, 3, 0), rotate=rotate, mirrored=mirrored))
    assert (row["rotation"], row["mirrored"]) == (rotate, mirrored)
    assert (row["width"], row["height"]) == ((240, 320) if rotate in (90, 270) else (320, 240))
    assert (row["coded_width"], row["coded_height"]) == (320, 240)


def test_aspect_depth_and_hdr():
    wide = probed(film(pan(1, 3, 0), sar=Fraction(4, 3)))
    assert wide["aspect"] == pytest.approx(16 / 9, rel=1e-3)
    assert wide["sar"] == pytest.approx(4 / 3)
    pq = probed(film(pan(1, 3, 0), pix_fmt="yuv420p10le", colours=(9, 16, 9)))
    assert (pq["hdr"], pq["color_primaries"], pq["bit_depth"]) == ("pq", "bt2020", 10)
    assert probed(film(pan(1, 3, 0), colours=(9, 18, 9)))["hdr"] == "hlg"
    assert probed(film(pan(1, 3, 0), colours=(1, 1, 1)))["hdr"] is None


def test_open_gops_and_b_frames():
    opened = {**X264, "x264-params": "open-gop=1:keyint=20:min-keyint=20:scenecut=0:bframes=3"}
    assert probed(film(pan(1, 60, 2), options=opened))["open_gop"]
    plain = probed(film(pan(1, 60, 2), options={**X264, "bf": "0"}))
    assert (plain["open_gop"], plain["b_frames"]) == (False, False)


@pytest.mark.parametrize(("container", "movflags"), [("mp4", {"movflags": "faststart"}), ("matroska", {}), ("mpegts", {})])
def test_half_a_film_says_so(container, movflags):
    data = film(pan(1, 100, 2), 25, options=X264, container=container, container_options=movflags)
    row = probed(data[:len(data) * 6 // 10])
    assert 40 <= row["frame_count"] < 80
    assert row["duration"] == pytest.approx(row["frame_count"] / 25, abs=0.15)  # pictures that others wait for
    if container != "mpegts":  # it says nowhere how long it is
        assert 0.2 < row["missing_ratio"] < 0.6
        assert row["probe_note"] == "truncated"


def test_sound_that_goes_on_is_no_damage():
    row = probed(film(numbered(25), 25, options=X264, container="matroska", sound=sine(440, 4.0)))
    assert row["duration"] == pytest.approx(1.0)
    assert row["audio_duration"] == pytest.approx(4.0, abs=0.1)
    assert row["probe_note"] is None


def test_what_a_header_says_without_a_scan():
    row = probed(film(numbered(50), 25, options=X264), scan=False)
    assert (row["duration"], row["fps"], row["frame_count"], row["vfr"], row["keyframe_interval"]) == (2, 25, None, None, None)
    assert (row["width"], row["start_s"], row["end_s"]) == (160, 0, 2)


def test_languages_and_several_streams():
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        picture = out.add_stream("libx264", rate=25)
        picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
        for language in ("deu", "eng", "und"):
            out.add_stream("libopus", rate=48_000).metadata["language"] = language
        for k, shown in enumerate(pan(1, 5, 0, 48, 64)):
            frame = av.VideoFrame.from_ndarray(shown, "rgb24")
            frame.pts, frame.time_base = k, Fraction(1, 25)
            out.mux(picture.encode(frame))
        out.mux(picture.encode(None))
    row = probed(file.getvalue())
    assert row["languages"] in (["deu", "eng"], ["eng", "ger"])


def test_spans_keep_their_place():
    data = film(numbered(50), 25, options=X264)
    batch = films(data, data, data).with_columns({"start_s": pa.array([0.5, None, 1.5]), "end_s": pa.array([1.25, None, None])})
    rows = run_stage(Probe(), batch)["out"].rows.to_pylist()
    assert [(row["start_s"], row["end_s"], row["duration"]) for row in rows] == [(0.5, 1.25, 0.75), (0, 2, 2), (1.5, 2, 0.5)]
    assert [row["frame_count"] for row in rows] == [50] * 3


def test_what_is_no_film_fails():
    bad = [b"", b"text", sound_only(), sound_only("mp4", "aac", picture=texture(1, 64, 64)), None]
    outputs = run_stage(Probe(), films(*bad, film(numbered(5))))
    assert [e.partition(":")[0] for e in outputs["failed"].column("error")] == ["empty", "not_media", "no_video", "no_video", "no_file"]
    assert len(outputs["out"]) == 1
    assert run_stage(Probe(max_pixels=100), films(film(numbered(5))))["failed"].column("error")[0].startswith("too_large")


def test_the_stage_keeps_the_rules(tmp_path):
    batch = films(film(numbered(30), 25, options=X264, sound=sine(440, 1.2)), b"no film", film(numbered(10), container="matroska"))
    check_stage(Probe(), batch, skip={"needs"})  # it reads bytes or a path, whichever is there
    check_stage(Probe(scan=False), batch, skip={"needs"})
    assert set(run_stage(Probe(), batch)["out"].columns) == {"id", "source", "bytes", *COLUMNS}
    with pytest.raises(ContractError, match="needs `path`"):
        Probe().check({"id": pa.string()})
    with pytest.raises(ContractError, match="`end_s` is to be seconds"):
        Probe().check({"path": pa.string(), "end_s": pa.string()})
    with pytest.raises(ValueError, match="max_pixels"):
        Probe(max_pixels=0)


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.MP4").write_bytes(film(numbered(10)))
    (tmp_path / "two.mkv").write_bytes(film(numbered(20), container="matroska"))
    (tmp_path / "none.webm").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no film")
    return tmp_path


def listed(source):
    return sorted((row for unit in source.units() for batch in source.read(unit) for row in batch.rows.to_pylist()),
                  key=lambda row: row["path"])


def test_films_are_listed_and_not_read(folder):
    rows = listed(VideoFiles(path=str(folder)))
    assert [row["path"].removeprefix(f"{folder}/") for row in rows] == ["a/one.MP4", "none.webm", "two.mkv"]
    assert [row["extension"] for row in rows] == ["mp4", "webm", "mkv"]
    assert [row["size_bytes"] for row in rows] == [(folder / "a" / "one.MP4").stat().st_size, None, (folder / "two.mkv").stat().st_size]
    assert all(row["source"] == row["path"] and "bytes" not in row for row in rows)
    assert len({row["id"] for row in rows}) == 3
    source = VideoFiles(path=str(folder))
    source.units()
    assert "files of other kinds are not read: 1 .txt." in source.remarks()[0]
    assert [row["extension"] for row in listed(VideoFiles(path=str(folder), suffixes=["txt"]))] == ["txt"]
    assert [row["extension"] for row in listed(VideoFiles(path=str(folder / "*.txt")))] == ["txt"]
    check_source(VideoFiles(path=str(folder), unit_bytes=1))


@pytest.mark.parametrize("name", ["films.jsonl", "films.CSV", "films-*.parquet", "films.tar"])
def test_a_table_or_shard_named_as_a_film_is_told_with_what_reads_it(name):
    with pytest.raises(InputError, match=r"is no film.*video\.manifest.*webdataset"):
        VideoFiles(path=["a.mp4", name]).units()


def test_films_are_probed_by_their_path(folder):
    source = VideoFiles(path=str(folder))
    outputs = [run_stage(Probe(), batch) for unit in source.units() for batch in source.read(unit)]
    assert [count for o in outputs if "out" in o for count in o["out"].column("frame_count")] == [10, 20]
    errors = [error for o in outputs if "failed" in o for error in o["failed"].column("error")]
    assert [error.partition(":")[0] for error in errors] == ["empty"]


def test_what_a_header_does_not_tell_is_no_alarm():
    stage = Probe(scan=False)
    row, = run_stage(stage, films(film(numbered(10), sound=sine(440, 0.4))))["out"].rows.to_pylist()
    assert {name for name in COLUMNS if row[name] is None} <= set(stage.sparse)


@pytest.mark.parametrize("wrong", [{"unit_bytes": 0}, {"suffixes": []}, {"path": ""}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        VideoFiles(**{"path": "x", **wrong})
