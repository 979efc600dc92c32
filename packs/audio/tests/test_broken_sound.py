"""Hostile files: what is broken fails and says what it is, or gives what can be read; nothing is an exception."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_audio.read.decode import Decode
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import run_stage
from packs.audio.tests.recordings import noise, sine
from packs.audio.tests.sound_files import by_av, by_soundfile, files

RATE = 16_000
SOUND = sine(440, 3.0) + noise(3.0, level_db=-40)
MAKERS = {
    "wav": lambda: by_soundfile(SOUND, RATE), "flac": lambda: by_soundfile(SOUND, RATE, "FLAC"),
    "aiff": lambda: by_soundfile(SOUND, RATE, "AIFF"), "au": lambda: by_soundfile(SOUND, RATE, "AU"),
    "w64": lambda: by_soundfile(SOUND, RATE, "W64"), "caf": lambda: by_soundfile(SOUND, RATE, "CAF"),
    "vorbis": lambda: by_soundfile(SOUND, RATE, "OGG", "VORBIS"), "opus": lambda: by_soundfile(SOUND, RATE, "OGG", "OPUS"),
    "mp3": lambda: by_av(SOUND, RATE, "mp3", "libmp3lame"), "m4a": lambda: by_av(SOUND, RATE, "ipod", "aac"),
    "faststart": lambda: by_av(SOUND, RATE, "ipod", "aac", container_options={"movflags": "faststart"}),
    "mka": lambda: by_av(SOUND, RATE, "matroska", "flac"), "adts": lambda: by_av(SOUND, RATE, "adts", "aac"),
}


@pytest.fixture(scope="module")
def made():
    return {name: make() for name, make in MAKERS.items()}


def outcome(data, **columns):
    """`(row, samples)` of what is decoded, or the error."""
    outputs = run_stage(Decode(), files(data, **columns))
    if "failed" in outputs:
        return outputs["failed"].column("error")[0]
    return outputs["out"].rows.to_pylist()[0], outputs["out"].samples[0]


@pytest.mark.parametrize(("data", "error"), [
    (None, "no bytes"), (b"", "empty file"), (b"RIFF", "broken wav"), (b"fLaC", "broken flac"), (b"OggS", "broken ogg"),
    (b"caff" + bytes(40), "broken caf"), (b"ID3", "not audio"), (b"\xff\xfb", "not audio"), (bytes(100_000), "not audio"),
    (b"\xff" * 100_000, "not audio"), (np.random.default_rng(1).bytes(300_000), "not audio"), (b"hello world\n" * 1000, "not audio"),
    (b"<html><body>404 not found</body></html>" * 50, "not audio"), (b'<?xml version="1.0"?>' + b"<a>x</a>" * 1000, "not audio"),
    (b"#EXTM3U\n#EXTINF:10,\n/etc/hostname\n", "not audio"), (b"ffconcat version 1.0\nfile /etc/hostname\n", "not audio"),
    (b"\x89PNG\r\n\x1a\n" + bytes(1000), "not audio"), (b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(1000), "not audio"),
    (b"%PDF-1.7\n" + bytes(1000), "not audio"), (b"PK\x03\x04" + bytes(1000), "not audio"),
    (b"GIF89a" + bytes(1000), "not audio")])
def test_what_is_no_sound_says_what_it_is(data, error):
    assert outcome(data).startswith(error)


def test_a_video_without_sound():
    assert outcome(by_av(SOUND, RATE, "mp4", "aac", video=True, streams=0)) == "no sound: the file has no audio stream"


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
def test_a_truncated_file_gives_what_it_has(made, name, share):
    data = made[name]
    found = outcome(data[:int(len(data) * share)])
    if name == "m4a":  # its table of contents stands at the end
        assert found.startswith(("not audio", "no sound"))
        return
    if name in ("vorbis", "opus") and share < 0.3:  # not one whole page of sound
        assert found == "broken ogg: Supported file format but file is malformed"
        return
    row, samples = found
    whole = outcome(data)[1]
    assert 3 * share - 1.1 <= row["duration"] <= 3 * share + 0.2  # an Ogg page has a second
    length = samples.shape[1] - 1200  # the last frame of a codec may lack its overlap with the next
    assert np.abs(samples[:, :length] - whole[:, :length]).max() < 1e-6
    if name != "adts":  # which says nowhere how long it is, so that a cut between two frames is not seen
        assert row["decode_note"] == ("damaged" if name == "caf" else "truncated")


@pytest.mark.parametrize("name", ["flac", "vorbis", "mp3", "faststart", "mka", "adts"])
def test_damage_inside_costs_what_is_there(made, name):
    data = bytearray(made[name])
    middle, size = len(data) // 2, len(data) // 10
    data[middle:middle + size] = b"\x55" * size
    row, samples = outcome(bytes(data))
    assert 1.5 <= row["duration"] <= 3.2
    assert np.isfinite(samples).all()
    if name != "adts":
        assert row["decode_note"] in ("damaged", "truncated")


def changed(data, offset, value):
    return data[:offset] + value + data[offset + len(value):]


@pytest.mark.parametrize(("offset", "value", "error"), [
    (24, bytes(4), "broken wav: its header gives a sample rate or a number of channels that cannot be"),
    (24, b"\xff\xff\xff\x7f", "impossible sample rate: 2,147,483,647 Hz in the header of the wav"),
    (24, b"\x05\x00\x00\x00", "impossible sample rate: 5 Hz in the header of the wav"),
    (22, bytes(2), "broken wav: Channel count is zero"), (22, b"\xff\xff", "broken wav: Too many channels"),
    (40, bytes(4), "no samples")])
def test_headers_that_cannot_be(made, offset, value, error):
    assert outcome(changed(made["wav"], offset, value)).startswith(error)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xf0\xff\xff\x7f"])
def test_a_wav_whose_writer_did_not_know_its_size(made, size):
    row, samples = outcome(changed(changed(made["wav"], 40, size), 4, size))
    assert (samples == outcome(made["wav"])[1]).all()
    assert row["decode_note"] is None


def test_a_flac_that_says_more_or_nothing(made):
    flac = made["flac"]
    many = bytearray(flac)
    many[21] |= 0x0F
    many[22:26] = b"\xff\xff\xff\xfe"
    row, samples = outcome(bytes(many))
    assert (samples == outcome(flac)[1]).all()
    assert row["duration"] == 3.0
    assert row["declared_duration"] > 1e6
    assert row["decode_note"] == "truncated"
    none = bytearray(flac)
    none[21] &= 0xF0
    none[22:26] = bytes(4)
    row, samples = outcome(bytes(none))
    assert (samples == outcome(flac)[1]).all()
    assert (row["declared_duration"], row["decode_note"]) == (None, None)


def test_loud_floats_stay_and_what_is_no_number_fails():
    loud = 4 * sine(440)
    assert (outcome(by_soundfile(loud, RATE, subtype="FLOAT"))[1] == loud).all()
    assert (outcome(by_soundfile(loud * 2.0**31, RATE, subtype="FLOAT"))[1] == loud * 2.0**31).all(), "nobody divided"
    for value in (np.nan, np.inf, -np.inf, 1e13, -3e38):
        broken = loud.copy()
        broken[8_000] = value
        error = outcome(by_soundfile(broken, RATE, subtype="FLOAT"))
        assert error == "no sound: samples that are NaN, infinite or above 1e+12, the first at 0.500 s"


def test_of_a_long_file_only_the_part_without_numbers_fails():
    sound = noise(10.0)
    sound[5 * RATE] = np.nan
    data = by_soundfile(sound, RATE, subtype="FLOAT")
    outputs = run_stage(Decode(part_s=2, rate=8_000), files(data))
    bad = outputs["failed"].column("id")
    assert len(bad) == 1
    assert sorted([*bad, *outputs["out"].column("id")], key=lambda i: int(i[2:])) == [f"0#{k}" for k in range(len(outputs["out"]) + 1)]
    assert outputs["failed"].column("bytes") == [None]
    assert all(np.isfinite(s).all() for s in outputs["out"].samples)


def test_paths_that_lead_nowhere():
    assert outcome(None, path=pa.array(["/no/such/file.wav"])).startswith("cannot be read: cannot read /no/such/file.wav")
    assert outcome(None, path=pa.array([None], pa.string())).startswith("no bytes")
    assert outcome(None, path=pa.array(["/tmp"])).startswith("cannot be read")


@given(st.sampled_from(["wav", "flac", "mp3", "faststart", "vorbis", "aiff", "caf", "mka"]), st.data())
@settings(max_examples=60, deadline=None)
def test_flipped_bytes_are_no_exception(name, data):
    broken = bytearray(MADE[name])
    for at in data.draw(st.lists(st.integers(0, min(len(broken), 600) - 1), min_size=1, max_size=6)):
        broken[at] = data.draw(st.integers(0, 255))
    found = outcome(bytes(broken))
    assert isinstance(found, str) or np.isfinite(found[1]).all()


MADE = {name: make() for name, make in MAKERS.items() if name in ("wav", "flac", "mp3", "faststart", "vorbis", "aiff", "caf", "mka")}


def test_frames_of_many_planes_are_not_touched():
    """PyAV counts more planes than there are, and reading one of these ends the process."""
    from types import SimpleNamespace

    from curator_audio.read.by_av import _as_float
    from curator_audio.read.sound import BadSound

    frame = SimpleNamespace(format=SimpleNamespace(name="fltp", is_planar=True), layout=SimpleNamespace(nb_channels=38))
    with pytest.raises(BadSound, match="too many channels: 38"):
        _as_float(frame)
