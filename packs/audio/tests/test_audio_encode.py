"""Encoding: exact where it can be, all samples in their places, the same bytes each time."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
import soundfile
from curator_audio.read.decode import Decode
from curator_audio.sound.encode import Encode
from curator_audio.sound.encoders import checksum, with_serial
from curator_audio.sound.pcm import wav
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.sound_files import by_soundfile

STEREO = np.stack([sine(440) * 0.9, noise(level_db=-30)])


def written(*samples, rate=16_000, **parameters):
    outputs = run_stage(Encode(**parameters), recordings(*samples, rate=rate))
    assert set(outputs) == {"out"}, outputs["failed"].column("error")
    return outputs["out"]


def read_back(data):
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return samples.T, rate


@given(st.sampled_from(["flac", "wav"]), st.sampled_from([16, 24]), st.integers(1, 3), st.integers(1, 100_000),
       st.sampled_from([8_000, 22_050, 96_000]))
@settings(max_examples=25, deadline=None)
def test_lossless_formats_are_exact(format, bits, channels, length, rate):
    whole = np.random.default_rng(length).integers(-2**(bits - 1), 2**(bits - 1), (channels, length))
    samples = (whole / 2.0**(bits - 1)).astype(np.float32)
    data = written(samples, rate=rate, format=format, bits=bits).column("bytes")[0]
    again, got_rate = read_back(data)
    assert got_rate == rate
    assert (again == samples).all()
    info = soundfile.info(io.BytesIO(data))
    assert (info.format, info.subtype) == (format.upper(), f"PCM_{bits}")


def test_floats_stay_as_they_are():
    loud = 3 * STEREO
    out = written(loud, format="wav", bits=32)
    assert (read_back(out.column("bytes")[0])[0] == loud).all()
    assert (out.column("codec"), out.column("bits")) == (["pcm_f32le"], [32])


def test_what_is_too_loud_clips():
    for bits in (16, 24):
        again, _ = read_back(written(np.array([[2.0, -2.0, 1.0, -1.0]], np.float32), format="flac", bits=bits).column("bytes")[0])
        assert again[0].tolist() == [1 - 2.0**(1 - bits), -1, 1 - 2.0**(1 - bits), -1]


def test_our_wav_is_that_of_libsndfile():
    for bits, subtype in ((16, "PCM_16"), (24, "PCM_24")):
        ours = wav(STEREO, 16_000, bits)
        theirs = by_soundfile(np.rint(STEREO * 2**(bits - 1)).astype(np.int32) << (32 - bits), 16_000, "WAV", subtype)
        assert ours == theirs
    odd = wav(STEREO[:1, :3], 16_000, 24)
    assert len(odd) % 2 == 0
    assert (read_back(odd)[0].shape) == (1, 3)


@pytest.mark.parametrize(("format", "extension", "container"), [("opus", "opus", "ogg"), ("vorbis", "ogg", "ogg"), ("mp3", "mp3", "mp3")])
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 96_000])
@pytest.mark.parametrize("length", [100, 30_011])
def test_lossy_formats_keep_samples_in_their_places(format, extension, container, rate, length):
    tone = np.stack([sine(440, 5.0, rate), sine(330, 5.0, rate)])[:, :length]
    out = written(tone, rate=rate, format=format)
    assert (out.column("extension"), out.column("format"), out.column("codec"), out.column("bits")) == (
        [extension], [container], [format], [None])
    again = run_stage(Decode(channel="all", rate=rate), out.select(["bytes"]))["out"].samples[0]
    assert 0 <= again.shape[1] - length <= 3 + (format == "mp3") * 100  # of another rate between: rounded up twice
    if length > 1000:
        assert np.corrcoef(again[0, :length - 5], tone[0, :length - 5])[0, 1] > 0.98
        assert np.corrcoef(again[1, :length - 5], tone[1, :length - 5])[0, 1] > 0.98
    assert run_stage(Decode(), out.select(["bytes"]))["out"].column("decode_note") == [None]


@pytest.mark.parametrize("parameters", [{"format": "flac"}, {"format": "wav", "bits": 32}, {"format": "opus"}, {"format": "vorbis"},
                                        {"format": "mp3"}])
def test_the_same_samples_give_the_same_bytes(parameters):
    assert written(STEREO, **parameters).column("bytes") == written(STEREO, **parameters).column("bytes")


def test_the_serial_number_of_an_ogg_stream():
    ogg = by_soundfile(STEREO, 16_000, "OGG", "VORBIS")
    own = int.from_bytes(ogg[14:18], "little")
    assert with_serial(ogg, own) == ogg  # checksums included
    assert (read_back(with_serial(ogg, 7))[0] == read_back(ogg)[0]).all()
    assert checksum(b"123456789") == 0x89A1897F  # CRC-32 with nothing reversed nor inverted, of the usual check string


def test_more_bits_a_second_are_more_bytes():
    for format, values, name in (("opus", (16, 64), "kbps"), ("mp3", (32, 128), "kbps"), ("vorbis", (0.1, 0.9), "quality")):
        small, large = (len(written(noise(2.0), format=format, **{name: value}).column("bytes")[0]) for value in values)
        assert 1.5 * small < large


def test_rates():
    out = written(sine(440, 1.0, 44_100), rate=44_100, format="opus")
    assert soundfile.info(io.BytesIO(out.column("bytes")[0])).samplerate == 48_000
    stage = run_stage(Encode(format="flac", rate=8_000), recordings(sine(440)))["out"]
    assert read_back(stage.column("bytes")[0])[1] == 8_000
    assert stage.column("sample_rate") == [16_000]
    assert stage.samples[0].shape == (1, 16_000)


def test_what_a_format_cannot_hold_fails():
    wide = np.zeros((9, 100), np.float32)
    batch = recordings(wide, sine(440), rate=16_000)
    outputs = run_stage(Encode(format="flac"), batch)
    assert outputs["failed"].column("error") == ["too many channels for flac: 9 (at most 8)"]
    assert outputs["out"].column("id") == ["1"]
    failed = run_stage(Encode(format="flac"), recordings(sine(440), rate=999_999))["failed"]
    assert failed.column("error")[0].startswith("flac cannot hold it: ")
    none = recordings(sine(440)).with_columns({"sample_rate": pa.array([None], pa.int32())})
    assert run_stage(Encode(), none)["failed"].column("error") == ["no sample rate: None"]


@pytest.mark.parametrize("format", ["flac", "wav", "opus", "vorbis", "mp3"])
def test_the_stage_keeps_its_contract(format):
    check_stage(Encode(format=format), recordings(sine(440, 0.3), None, STEREO[:, :5000], np.zeros(0)))


@pytest.mark.parametrize(("wrong", "words"), [
    ({"format": "aac"}, "format"), ({"bits": 8}, "bits"), ({"format": "mp3", "bits": 16}, "bits do not apply"),
    ({"kbps": 64}, "kbps does not apply"), ({"format": "opus", "kbps": 1000}, "kbps"), ({"format": "opus", "rate": 44_100}, "rate"),
    ({"quality": 0.5}, "quality"), ({"format": "vorbis", "quality": 2}, "quality"), ({"rate": 5}, "rate")])
def test_wrong_parameters_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Encode(**wrong)
