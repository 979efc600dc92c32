"""The sound of films: in step with the pictures, to the sample, in parts, and what is wrong with it."""

from __future__ import annotations

import io
from fractions import Fraction

import av
import numpy as np
import pyarrow as pa
import pytest
from curator_video.clips.audio import Audio, quiet_place
from curator_video.clips.packets import sound_of
from curator_video.read.film import Film
from curator_video.read.headers import scanned

from curator.api.tasks import Batch
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, films, numbered, sine, sound_only

X264 = {"crf": "30", "preset": "ultrafast"}
TONE = sine(440, 8.0, 48_000)
WAYS = {"aac": ("mp4", "aac"), "pcm": ("mov", "pcm_s16le"), "opus": ("matroska", "libopus"), "ts": ("mpegts", "aac"),
        "mp3": ("mp4", "libmp3lame"), "flac": ("matroska", "flac"), "avi": ("avi", "pcm_s16le")}


def with_sound(way="aac", sound=TONE, rate=48_000, seconds=8, **options):
    container, codec = WAYS[way]
    video = {"codec": "mpeg4", "options": {}} if container == "avi" else {"options": X264}
    return film(numbered(25 * seconds, 48, 64), 25, **video, container=container, sound=sound, sound_rate=rate, sound_codec=codec,
                **options)


def heard(data, start=None, end=None, **parameters):
    batch = films(data).with_columns({"start_s": pa.array([start], pa.float64()), "end_s": pa.array([end], pa.float64())})
    outputs = run_stage(Audio(**parameters), batch)
    assert set(outputs) == {"out"}, [(port, made.rows.to_pylist()) for port, made in outputs.items()]
    return outputs["out"].rows.to_pylist(), outputs["out"].samples


def lag(samples, rate, begin, hertz=440.0):
    """By how many seconds a tone is late, within half a period of it."""
    at = np.arange(len(samples)) / rate + begin
    found = np.angle(np.mean(samples * np.exp(-2j * np.pi * hertz * at)))
    late = -(found + np.pi / 2) / (2 * np.pi * hertz)
    return (late + 0.5 / hertz) % (1 / hertz) - 0.5 / hertz


@pytest.mark.parametrize("way", WAYS)
def test_a_span_is_in_step_to_the_sample(way):
    data = with_sound(way)
    for begin in (0.0, 2.8, 5.5):
        (row,), (samples,) = heard(data, begin, begin + 2.0, rate=16_000)
        assert samples.shape == (1, 32_000)
        assert samples.dtype == np.float32
        assert (row["sample_rate"], row["source_rate"], row["duration"], row["start_s"]) == (16_000, 48_000, 2.0, begin)
        middle = samples[0, 3000:-3000]
        assert np.sqrt(2 * np.mean(middle**2)) == pytest.approx(0.5, rel=0.05)
        allowed = 1.1e-3 if way in ("opus", "flac") else 0.5 / 16_000  # Matroska has times to the millisecond
        assert abs(lag(middle, 16_000, begin + 3000 / 16_000)) < allowed
        assert row["decode_note"] is None


@pytest.mark.parametrize("way", WAYS)
def test_spans_of_one_film_are_as_each_alone(tmp_path, way):
    file = tmp_path / "film"
    file.write_bytes(with_sound(way))
    spans = [(0.0, 0.7), (2.8, 4.0), (2.0, 3.0), (0.2, 0.7), (5.5, None)]

    def given(spans):
        texts, (starts, ends) = [str(file)] * len(spans), zip(*spans, strict=True)
        rows = {"id": [str(start) for start in starts], "source": texts, "path": texts}
        return Batch(pa.table(rows | {"start_s": pa.array(starts, pa.float64()), "end_s": pa.array(ends, pa.float64())}))

    together = run_stage(Audio(), given(spans))["out"].samples
    for span, samples in zip(spans, together, strict=True):
        assert np.array_equal(samples, run_stage(Audio(), given([span]))["out"].samples[0])


def test_sound_that_begins_behind_a_span_is_found():
    """A jump to before it comes out too late, so it is read from its beginning."""
    data = film(numbered(50, 48, 64), 25, options=X264, sound=TONE, sound_rate=48_000, sound_from=3.0)
    (row,), (samples,) = heard(data, 1.0, 4.0)
    assert row["start_s"] == 1.0
    assert not samples[0, :94_000].any()
    assert np.abs(samples[0, 97_000:]).max() > 0.4


def test_sound_before_the_first_picture_is_all_there_after_pictures_were_read():
    data = film(numbered(50, 48, 64), 25, options={**X264, "bf": "0"}, pts=range(50, 100), sound=TONE, sound_rate=48_000)
    with Film(data) as one:
        assert len(list(one.frames())) == 50
        found = scanned(one)
        packets = sound_of(one, one.container.streams.audio[0].index, -2.0, -1.0)
    assert (found["audio_offset"], found["audio_duration"]) == pytest.approx((-2, 8))
    assert packets[0].pts == -1024  # what AAC wants to have heard


def test_columns_of_a_whole_film():
    (row,), (samples,) = heard(with_sound())
    assert samples.shape[1] == pytest.approx(8 * 48_000, abs=2048)
    assert (row["sample_rate"], row["source_rate"], row["channels"], row["codec"]) == (48_000, 48_000, 1, "aac")
    assert (row["start_s"], row["end_s"], row["duration"]) == (0, samples.shape[1] / 48_000, samples.shape[1] / 48_000)
    assert row["declared_duration"] == pytest.approx(8.0, abs=0.1)
    assert row["audio_offset"] == pytest.approx(0.0, abs=0.03)
    assert row["parent"] is None
    assert "bytes" not in row


def test_channels():
    left = np.concatenate([TONE, 0.5 * TONE])
    data = with_sound("pcm", sound=left)
    both, mixed, first = (heard(data, 0.0, 1.0, channel=channel)[1][0] for channel in ("all", "mix", "first"))
    assert both.shape == (2, 48_000)
    assert np.allclose(mixed[0], both.mean(axis=0), atol=1e-6)
    assert np.array_equal(first[0], both[0])
    assert np.abs(both[0] - TONE[0, :48_000]).max() < 1e-4
    assert heard(data, 0.0, 1.0, channel="all", rate=8_000)[1][0].shape == (2, 8_000)


def test_silence_stands_where_no_sound_is():
    late = _film_with_late_sound(1.5)
    (row,), (samples,) = heard(late, 0.5, 3.0)
    assert samples.shape[1] == 2.5 * 16_000
    assert not samples[:, : 16_000 - 100].any()
    assert np.abs(samples[:, 16_000 + 100:17_000]).max() > 0.4
    assert row["audio_offset"] == pytest.approx(1.5, abs=0.01)
    (row,), (samples,) = heard(with_sound("pcm", sound=TONE[:, :96_000]), 1.0, 5.0)
    assert samples.shape[1] == 48_000
    assert (row["end_s"], row["decode_note"]) == (2.0, "short")


def _film_with_late_sound(offset):
    file = io.BytesIO()
    with av.open(file, "w", format="mov") as out:
        picture = out.add_stream("libx264", rate=25, options=X264)
        picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
        voice = out.add_stream("pcm_s16le", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray((sine(440, 2.0) * 32767).astype(np.int16), "s16", "mono")
        frame.sample_rate, frame.pts, frame.time_base = 16_000, round(offset * 16_000), Fraction(1, 16_000)
        out.mux(voice.encode(frame))
        out.mux(voice.encode(None))
        for k, shown in enumerate(numbered(100, 48, 64)):
            image = av.VideoFrame.from_ndarray(shown, "rgb24")
            image.pts, image.time_base = k, Fraction(1, 25)
            out.mux(picture.encode(image))
        out.mux(picture.encode(None))
    return file.getvalue()


def test_long_sound_comes_in_parts():
    loud = TONE.copy()
    loud[:, round(2.6 * 48_000):round(2.75 * 48_000)] = 0
    rows, samples = heard(with_sound("pcm", sound=loud), part_s=3.0)
    assert [row["id"] for row in rows] == [f"0#{k}" for k in range(len(rows))]
    assert {row["parent"] for row in rows} == {"0"}
    assert np.array_equal(np.concatenate(samples, axis=1), heard(with_sound("pcm", sound=loud), part_s=None)[1][0])
    assert 2.6 < rows[0]["end_s"] < 2.75
    assert all(row["duration"] <= 3.0 for row in rows)
    assert [row["start_s"] for row in rows[1:]] == [row["end_s"] for row in rows[:-1]]


def test_a_quiet_place():
    assert quiet_place(np.ones((1, 100), np.float32), 16_000) == 100
    samples = np.ones((2, 160_000), np.float32)
    samples[:, 120_000:121_600] = 0
    assert 120_000 < quiet_place(samples, 16_000) < 121_600


def test_what_has_no_sound():
    outputs = run_stage(Audio(), films(film(numbered(10)), b"text", sound_only(), with_sound()))
    assert outputs["dropped"].column("reason") == ["no_audio"]
    assert [error.partition(":")[0] for error in outputs["failed"].column("error")] == ["not_media", "no_video"]
    assert len(outputs["out"]) == 1
    batch = films(with_sound("pcm", sound=TONE[:, :48_000])).with_columns({"start_s": pa.array([3.0]), "end_s": pa.array([4.0])})
    assert run_stage(Audio(), batch)["dropped"].column("reason") == ["no_audio"]
    assert run_stage(Audio(audio_stream=1), films(with_sound()))["dropped"].column("reason") == ["no_audio"]


def test_damage_is_passed_over():
    data = bytearray(with_sound())
    rng = np.random.default_rng(0)
    for at in rng.integers(len(data) // 4, len(data) // 2, 200):
        data[at] ^= 0xFF
    rows, samples = heard(bytes(data))
    assert samples[0].shape[1] > 4 * 48_000
    assert np.isfinite(samples[0]).all()
    assert rows[0]["sample_rate"] == 48_000


def test_stages_of_sound_go_on():
    """Columns and payload are those that audio.decode gives."""
    decode = pytest.importorskip("curator_audio.read.decode")
    own = {name: kind for name, kind in Audio().contract().adds.items() if name in decode.COLUMNS}
    assert own == {name: decode.COLUMNS[name] for name in own}
    assert set(decode.COLUMNS) - set(own) == {"format", "bits"}


def test_the_stage_keeps_the_rules():
    batch = films(with_sound(), b"no film", film(numbered(10)), with_sound("pcm"))
    check_stage(Audio(rate=16_000), batch, skip={"needs"})


@pytest.mark.parametrize("wrong", [{"rate": 10}, {"channel": "left"}, {"part_s": 0.5}, {"audio_stream": -1}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Audio(**wrong)
