"""Decoding: every format to the sample, parts that join, pieces by offset, and the columns."""

from __future__ import annotations

import io
import subprocess
import sys
import weakref
from typing import ClassVar

import av
import numpy as np
import pyarrow as pa
import pytest
from curator_audio.read.by_av import AvSound
from curator_audio.read.decode import Decode
from curator_audio.read.reading import Reading
from curator_audio.read.sound import About, Wanted
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.api.errors import ContractError
from curator.api.stage import Context
from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, sine
from packs.audio.tests.sound_files import by_av, by_soundfile, files

RATE = 16_000
SOUND = sine(440, 3.0) * np.linspace(0.1, 1, 3 * RATE, dtype=np.float32) + noise(3.0, level_db=-50)
STEREO = np.stack([SOUND, 0.25 * SOUND[::-1]])
HIGH = sine(440, 3.0, 44_100)


def one(data, **parameters):
    """The only record that a file becomes."""
    outputs = run_stage(Decode(**parameters), files(data))
    assert set(outputs) == {"out"}, outputs["failed"].column("error")
    assert len(outputs["out"]) == 1
    return outputs["out"].rows.to_pylist()[0], outputs["out"].samples[0]


# -- formats --------------------------------------------------------------------------------------------------------

# name: content, true samples, format, codec, bits, SNR in dB that it has at least (of these signals, less than 1 dB below)
EXACT = {
    "wav": (by_soundfile(SOUND, RATE), "wav", "pcm_s16le", 16, 82),
    "24": (by_soundfile(SOUND, RATE, subtype="PCM_24"), "wav", "pcm_s24le", 24, 130),
    "8": (by_soundfile(SOUND, RATE, subtype="PCM_U8"), "wav", "pcm_u8", 8, 34),
    "mu": (by_soundfile(SOUND, RATE, subtype="ULAW"), "wav", "pcm_mulaw", 8, 35),
    "float": (by_soundfile(SOUND, RATE, subtype="FLOAT"), "wav", "pcm_f32le", 32, np.inf),
    "flac": (by_soundfile(SOUND, RATE, "FLAC"), "flac", "flac", 16, 82),
    "rf64": (by_soundfile(SOUND, RATE, "RF64"), "wav", "pcm_s16le", 16, 82),
    "aiff": (by_soundfile(SOUND, RATE, "AIFF"), "aiff", "pcm_s16be", 16, 82),
    "au": (by_soundfile(SOUND, RATE, "AU"), "au", "pcm_s16be", 16, 82),
    "caf": (by_soundfile(SOUND, RATE, "CAF"), "caf", "pcm_s16be", 16, 82),
    "w64": (by_soundfile(SOUND, RATE, "W64"), "w64", "pcm_s16le", 16, 82),
    "alac": (by_soundfile(SOUND, RATE, "CAF", "ALAC_16"), "caf", "alac", 16, 82),
    "vorbis": (by_soundfile(SOUND, RATE, "OGG", "VORBIS"), "ogg", "vorbis", None, 10),
    "opus": (by_soundfile(SOUND, RATE, "OGG", "OPUS"), "ogg", "opus", None, 10),
    "mp3": (by_av(SOUND, RATE, "mp3", "libmp3lame"), "mp3", "mp3", None, 10),
    "m4a": (by_av(SOUND, RATE, "ipod", "aac"), "m4a", "aac", None, 10),
    "mka": (by_av(SOUND, RATE, "matroska", "flac"), "mkv", "flac", 16, 82),
    "alac m4a": (by_av(SOUND, RATE, "ipod", "alac"), "m4a", "alac", None, 100),
    "mp4": (by_av(SOUND, RATE, "mp4", "aac", video=True), "mp4", "aac", None, 10),
    "avi": (by_av(SOUND, RATE, "avi", "pcm_s16le", video=True), "avi", "pcm_s16le", 16, 82),
}


@pytest.mark.parametrize("name", EXACT)
def test_formats_have_all_samples_in_their_places(name):
    data, format, codec, bits, snr = EXACT[name]
    row, samples = one(data)
    assert samples.shape == (1, len(SOUND))
    assert samples.dtype == np.float32
    assert samples.flags.c_contiguous
    error = np.sum((samples[0] - SOUND).astype(float) ** 2)
    assert error == 0 or 10 * np.log10(np.sum(SOUND.astype(float) ** 2) / error) >= snr - 1
    assert (row["format"], row["codec"], row["bits"], row["decode_note"]) == (format, codec, bits, None)
    assert (row["sample_rate"], row["source_rate"], row["channels"]) == (RATE, RATE, 1)
    assert (row["duration"], row["start_s"], row["end_s"], row["parent"]) == (3.0, 0.0, 3.0, None)
    assert row["declared_duration"] == (None if format in ("ogg", "avi") else 3.0)
    assert row["bytes"] == data


def test_raw_aac_has_no_length_and_a_delay():
    """ADTS says neither how much is the encoder's silence nor how long it is: 1,024 samples come before."""
    row, samples = one(by_av(SOUND, RATE, "adts", "aac"))
    assert row["declared_duration"] is None
    assert len(SOUND) + 1024 <= samples.shape[1] <= len(SOUND) + 2 * 1024
    assert np.corrcoef(samples[0, 1024:1024 + len(SOUND)], SOUND)[0, 1] > 0.99


def test_an_mp3_without_an_index_is_whole():
    """What libsndfile takes for the length then, 28 % of a file of 60 s, is not believed."""
    loud = np.concatenate([sine(440, 5.0, 44_100) * 0.01, noise(15.0, 44_100)])
    data = by_av(loud, 44_100, "mp3", "libmp3lame", options={"compression_level": "7", "global_quality": "236", "flags": "qscale"},
                 container_options={"write_xing": "0"})
    row, samples = one(data)
    assert len(loud) <= samples.shape[1] <= len(loud) + 2 * 1152
    assert row["declared_duration"] is None
    assert row["decode_note"] is None


def test_two_mp3_in_one_file():
    data = by_av(HIGH, 44_100, "mp3", "libmp3lame")
    row, samples = one(data + data)
    assert 2 * len(HIGH) <= samples.shape[1] <= 2 * len(HIGH) + 4 * 1152
    assert row["decode_note"] in (None, "damaged")  # the second one's header is no sound


@pytest.mark.parametrize("name", ["vorbis", "opus"])
def test_ogg_streams_one_behind_the_other_are_read_to_the_end(name):
    """As broadcasts are recorded; libsndfile stops behind the first, and says nothing."""
    row, samples = one(EXACT[name][0] + EXACT[name][0], rate=RATE)
    assert len(SOUND) * 2 <= samples.shape[1] <= len(SOUND) * 2 + 2000
    assert np.corrcoef(samples[0, :len(SOUND)], SOUND)[0, 1] > 0.95
    assert np.corrcoef(samples[0, -len(SOUND):], SOUND)[0, 1] > 0.95
    assert row["format"] == "ogg"


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "m4a"])
def test_the_content_decides_and_not_the_name(name, tmp_path):
    path = tmp_path / "song.ogg"
    path.write_bytes(EXACT[name][0])
    batch = files(None, path=pa.array([str(path)]), extension=["ogg"])
    out = run_stage(Decode(), batch)["out"]
    assert out.column("format") == [EXACT[name][1]]
    assert (out.samples[0] == one(EXACT[name][0])[1]).all()


def test_an_opus_file_that_does_not_begin_at_zero_is_in_its_place():
    """Its encoder was given no times, so that all pages are told 312 samples late; FFmpeg knows what is meant."""
    heard, file = noise(10.0, 48_000), io.BytesIO()
    with av.open(file, "w", format="ogg") as output:
        stream = output.add_stream("libopus", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(heard[None], "flt", "mono")
        frame.sample_rate = 48_000
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    whole = np.concatenate(list(AvSound(file, 0).blocks()), axis=1)
    assert np.dot(whole[0], heard) > 0.5 * np.linalg.norm(whole) * np.linalg.norm(heard)
    offsets = [None, 0.0, 0.01, 3.0, 9.0]
    out = run_stage(Decode(), files(*[file.getvalue()] * 5, offset=pa.array(offsets, pa.float64())))["out"]
    assert out.column("codec") == ["opus"] * 5
    for offset, samples in zip(offsets, out.samples, strict=True):
        assert np.abs(samples - whole[:, round((offset or 0) * 48_000):]).max() < 1e-5


@pytest.mark.parametrize(("subtype", "rate", "codec", "snr"), [("IMA_ADPCM", RATE, "adpcm_ima_wav", 20), ("MS_ADPCM", RATE, "adpcm_ms", 20),
                                                               ("GSM610", 8_000, "gsm_ms", 5)])
def test_codecs_of_blocks_fill_the_last_one(subtype, rate, codec, snr):
    sound = sine(440, 3.0, rate)
    row, samples = one(by_soundfile(sound, rate, subtype=subtype))
    assert row["codec"] == codec
    assert 0 <= samples.shape[1] - len(sound) < 2048
    error = np.sum((samples[0, :len(sound)] - sound).astype(float) ** 2)
    assert 10 * np.log10(np.sum(sound.astype(float) ** 2) / error) > snr


def test_files_on_another_filesystem():
    import fsspec

    fsspec.filesystem("memory").pipe("/sounds/a.flac", EXACT["flac"][0])
    batch = files(None, path=pa.array(["memory://sounds/a.flac"]), offset=[1.0], duration=[0.5])
    out = run_stage(Decode(), batch)["out"]
    assert (out.samples[0] == one(EXACT["flac"][0])[1][:, RATE:RATE * 3 // 2]).all()


def test_of_several_streams_one_is_taken():
    data = by_av(SOUND, RATE, "matroska", "flac", streams=2)
    assert np.abs(one(data, audio_stream=1)[1] - one(data)[1] / 2).max() < 1e-4
    failed = run_stage(Decode(audio_stream=2), files(data))["failed"]
    assert failed.column("error") == ["no such audio stream: 2, the file has 2, which count from 0"]
    assert (one(EXACT["wav"][0], audio_stream=0)[1] == one(EXACT["wav"][0])[1]).all()


# -- channels, rate -------------------------------------------------------------------------------------------------


def test_channels():
    data = by_soundfile(STEREO, RATE, subtype="FLOAT")
    assert (one(data)[1] == STEREO.mean(axis=0, keepdims=True, dtype=np.float32)).all()
    assert (one(data, channel="first")[1] == STEREO[:1]).all()
    assert (one(data, channel="all")[1] == STEREO).all()
    assert (one(data, channel="loudest")[1] == STEREO[:1]).all()
    assert (one(by_soundfile(STEREO[::-1], RATE, subtype="FLOAT"), channel="loudest")[1] == STEREO[:1]).all()
    row, samples = one(data, channel="all")
    assert row["channels"] == 2
    assert samples.flags.c_contiguous


def test_split_makes_each_channel_a_record():
    out = run_stage(Decode(channel="split"), files(by_soundfile(STEREO, RATE, subtype="FLOAT"), EXACT["wav"][0]))["out"]
    assert out.column("id") == ["0#0", "0#1", "1#0"]
    assert out.column("parent") == ["0", "0", "1"]
    assert out.column("channel") == [0, 1, 0]
    assert out.column("bytes") == [None] * 3
    assert all((out.samples[c] == STEREO[c:c + 1]).all() for c in range(2))


def test_the_rate_is_that_of_the_resampler():
    from curator_audio.sound.resampler import resampled

    data = by_soundfile(np.stack([HIGH, -0.5 * HIGH]), 44_100, subtype="FLOAT")
    row, samples = one(data, rate=16_000)
    assert (samples == resampled(0.25 * HIGH[None], 44_100, 16_000)).all()
    assert (row["sample_rate"], row["source_rate"], row["duration"]) == (16_000, 44_100, 3.0)


# -- parts ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 200_000), st.sampled_from([None, 8_000, 22_050]), st.sampled_from(["mix", "all"]), st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_parts_join_to_the_whole(length, rate, channel, part_s):
    stereo = np.stack([noise(1.0, length, seed=1), noise(1.0, length, seed=2)])
    data = by_soundfile(stereo, RATE, subtype="FLOAT")
    whole = run_stage(Decode(part_s=None, rate=rate, channel=channel), files(data))["out"]
    out = run_stage(Decode(part_s=part_s, rate=rate, channel=channel), files(data))["out"]
    assert (np.concatenate(out.samples, axis=1) == whole.samples[0]).all()
    assert max(out.column("duration")) <= part_s
    starts, ends = out.column("start_s"), out.column("end_s")
    assert starts[1:] == ends[:-1]
    used = rate or RATE
    assert [round(s * used) for s in starts] == np.cumsum([0, *(p.shape[1] for p in out.samples)])[:-1].tolist()


def test_parts_are_cut_where_it_is_quiet():
    sound = noise(95.0)
    sound[50 * RATE:50 * RATE + RATE // 2] = 0  # not in the last 30 s of the first part
    sound[int(82.2 * RATE):int(82.4 * RATE)] *= 0.01  # a pause in the second one
    sound[36 * RATE:36 * RATE + RATE // 5] *= 0.01
    out = run_stage(Decode(part_s=50), files(by_soundfile(sound, RATE)))["out"]
    assert out.column("id") == ["0#0", "0#1", "0#2"]
    assert out.column("parent") == ["0"] * 3
    assert 36.0 < out.column("end_s")[0] < 36.2
    assert 82.2 < out.column("end_s")[1] < 82.4
    assert out.column("end_s")[2] == 95.0
    assert out.column("bytes") == [None] * 3
    whole = run_stage(Decode(part_s=95), files(by_soundfile(sound, RATE)))["out"]
    assert whole.column("id") == ["0"]
    assert whole.column("parent") == [None]


def test_a_part_that_was_given_is_let_go():
    stage = Decode(part_s=600)
    stage.setup(Context())
    seen = []
    for outputs in stage.process(files(by_soundfile(np.zeros(1300 * RATE, np.int16), RATE, "FLAC"))):
        seen.append(weakref.ref(outputs["out"].samples[0]))
        del outputs
        assert seen[-1]() is None
    assert len(seen) == 3


def test_a_parent_that_was_there_stays():
    batch = files(EXACT["wav"][0], by_soundfile(noise(3.0), RATE), parent=pa.array(["a", "b"]))
    out = run_stage(Decode(part_s=2), batch.slice(0, 1))["out"]
    assert out.column("parent") == ["0", "0"]
    assert run_stage(Decode(), batch)["out"].column("parent") == ["a", "b"]


def test_what_is_too_long_is_dropped():
    long, short = by_soundfile(noise(5.0), RATE), by_soundfile(noise(2.0), RATE)
    outputs = run_stage(Decode(max_seconds=3), files(long, short))
    assert outputs["dropped"].column("id") == ["0"]
    assert outputs["dropped"].column("reason") == ["too_long"]
    assert outputs["out"].column("id") == ["1"]
    assert Decode(max_seconds=3).reasons() == ("too_long",)


@pytest.mark.parametrize("data", [by_soundfile(noise(5.0), RATE, "OGG", "VORBIS"), by_av(noise(5.0), RATE, "adts", "aac")],
                         ids=["vorbis", "adts"])
def test_what_is_too_long_is_dropped_whole_where_no_header_tells(data):
    outputs = run_stage(Decode(max_seconds=4, part_s=2), files(data))
    assert set(outputs) == {"dropped"}
    assert set(run_stage(Decode(max_seconds=5.2, part_s=2), files(data))) == {"out"}


def test_a_header_that_says_less_has_the_rest_dropped():
    class Liar:
        about = About(format="x", codec="x", bits=None, rate=RATE, channels=1, declared_s=1.0, expected_s=1.0)
        notes: ClassVar = []

        def blocks(self, start=0, count=None):
            yield from np.split(noise(10.0)[None], 10, axis=1)

    pieces = list(Reading(Wanted(max_seconds=5, part_s=2), 0, Liar(), None, None).pieces())
    assert [p.port for p in pieces] == ["out"] * (len(pieces) - 1) + ["dropped"]
    assert [p.number for p in pieces] == list(range(len(pieces)))
    assert sum(p.samples.shape[1] for p in pieces[:-1]) <= 5 * RATE
    (dropped,) = Reading(Wanted(max_seconds=5), 0, Liar(), None, None).pieces()
    assert (dropped.port, dropped.number, dropped.why) == ("dropped", None, "too_long")


# -- pieces by offset -----------------------------------------------------------------------------------------------

PLACES = [(0.0, 0.5), (0.3, 0.7), (1.23456, 1.0), (2.9, 0.5), (0.01, None), (2.0, 0.1), (1.7, 0.25)]


@pytest.mark.parametrize("name", ["wav", "flac", "aiff", "opus", "vorbis", "mp3", "m4a", "mka", "mp4"])
def test_a_piece_is_that_of_the_whole(name):
    data = EXACT[name][0]
    whole = one(data)[1]
    batch = files(*[data] * len(PLACES), offset=pa.array([o for o, _ in PLACES], pa.float64()),
                  duration=pa.array([d for _, d in PLACES], pa.float64()))
    out = run_stage(Decode(), batch)["out"]
    for (offset, seconds), samples, row in zip(PLACES, out.samples, out.rows.to_pylist(), strict=True):
        start = round(offset * RATE)
        stop = whole.shape[1] if seconds is None else min(whole.shape[1], round((offset + seconds) * RATE))
        assert samples.shape == (1, stop - start)
        assert np.abs(samples - whole[:, start:stop]).max() < 1e-6
        assert row["start_s"] == start / RATE
        assert row["duration"] == samples.shape[1] / RATE
        assert row["declared_duration"] == (seconds if seconds is not None else one(data)[0]["declared_duration"])
        assert row["bytes"] == data


@pytest.mark.parametrize("name", ["wav", "flac", "opus", "mp3", "m4a", "mka"])
def test_pieces_of_one_path_are_read_in_any_order(name, tmp_path):
    path = tmp_path / "sound"
    path.write_bytes(EXACT[name][0])
    whole = one(EXACT[name][0])[1]
    offsets = [2.0, 0.0, 1.7, 0.6, 1.7, None, 2.5, 9.0, 0.1]
    batch = files(*[None] * len(offsets), path=pa.array([str(path)] * len(offsets)), offset=pa.array(offsets, pa.float64()),
                  duration=pa.array([0.3] * len(offsets)))
    outputs = run_stage(Decode(), batch)
    assert outputs["failed"].column("id") == ["7"]
    for offset, samples in zip([o for o in offsets if o != 9.0], outputs["out"].samples, strict=True):
        start, stop = (0, None) if offset is None else (round(offset * RATE), round((offset + 0.3) * RATE))
        assert np.abs(samples - whole[:, start:stop]).max() < 1e-6


def test_a_duration_without_an_offset_is_only_declared():
    row, samples = run_one(EXACT["wav"][0], duration=2.5)
    assert samples.shape[1] == len(SOUND)
    assert (row["duration"], row["declared_duration"]) == (3.0, 2.5)


@pytest.mark.parametrize(("offset", "error"), [(30.0, "no samples: the offset lies behind the end of the wav"),
                                               (-1.0, "no such place: offset is -1 seconds"),
                                               ("soon", "no number: offset is 'soon'")])
def test_places_that_are_none(offset, error):
    failed = run_stage(Decode(), files(EXACT["wav"][0], offset=pa.array([offset])))["failed"]
    assert failed.column("error") == [error]


def run_one(data, **columns):
    out = run_stage(Decode(), files(data, **{name: pa.array([value]) for name, value in columns.items()}))["out"]
    return out.rows.to_pylist()[0], out.samples[0]


# -- the stage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"channel": "split", "rate": 8_000}, {"part_s": 1.5}, {"max_seconds": 2.0}])
def test_the_stage_keeps_its_contract(parameters):
    data = files(EXACT["wav"][0], None, b"", EXACT["mp3"][0], by_soundfile(STEREO, RATE), b"<html>")
    check_stage(Decode(**parameters), data, skip={"needs"})  # it reads bytes or a path, whichever is there


def test_types_and_answers_without_any_row():
    out = run_stage(Decode(), files(EXACT["wav"][0]))["out"]
    types = {field.name: field.type for field in out.rows.schema}
    assert types["duration"] == types["start_s"] == types["declared_duration"] == pa.float64()
    assert types["sample_rate"] == types["bits"] == pa.int32()
    assert types["decode_note"] == pa.string()


def test_bytes_or_a_path_are_wanted():
    Decode().check({"id": pa.string(), "path": pa.string()})
    with pytest.raises(ContractError, match="needs `bytes`"):
        Decode().check({"id": pa.string(), "text": pa.string()})
    with pytest.raises(ContractError, match=r"put `map: {bytes: audio.bytes, path: audio.path}` before"):
        Decode().check({"audio": pa.struct([("bytes", pa.binary()), ("path", pa.string())])})
    with pytest.raises(ContractError, match="is to be binary"):
        Decode().check({"bytes": pa.struct([("bytes", pa.binary())])})


@pytest.mark.parametrize("wrong", [{"channel": "left"}, {"rate": 1}, {"part_s": 0}, {"max_seconds": 0}, {"audio_stream": -1}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Decode(**wrong)


def test_listing_the_stages_imports_no_library_of_sound():
    code = "import sys, curator_audio; print([m for m in ('soundfile', 'av', 'soxr', 'torch', 'onnxruntime') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
