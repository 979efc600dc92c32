"""The audio pack, whole: its stages keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_audio import (
    Align,
    AudioFiles,
    Concat,
    Decode,
    Diarise,
    Dnsmos,
    Embed,
    EmbedSpeaker,
    Encode,
    Fingerprint,
    Hallucination,
    Hash,
    Loudness,
    Manifest,
    Mono,
    Rates,
    Resample,
    Rttm,
    Segment,
    Shar,
    Signals,
    Speakers,
    SpokenLanguage,
    Tag,
    Tarred,
    ToHf,
    ToNemo,
    ToShar,
    ToSubtitles,
    Transcribe,
    TranscribeServer,
    Trim,
    Vad,
    Waveform,
    Wer,
    Windows,
)
from curator_audio.models.dnsmos import WINDOW

from curator.testing import check_pack
from packs.audio.tests import test_nemo, test_shar, test_subtitles, test_tarred
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.sound_files import by_soundfile, files
from packs.audio.tests.test_transcribe_server import server  # noqa: F401 - a fixture
from packs.audio.tests.tiny_listeners import clap, diariser, tagger, voice
from packs.audio.tests.tiny_onnx import mean_model
from packs.audio.tests.tiny_recognisers import ctc, whisper


def of_words(folder):
    said = pa.array(["one two three", None, "", "Thank you."], pa.string())
    given = recordings(noise(1.2), None, sine(300, .4), noise(.8, seed=1), text=said, pred_text=said.take([1, 0, 3, 2]))
    yield from ((stage, given) for stage in (Rates(), Wer(), Hallucination()))
    heard, framed = whisper(folder / "whisper"), ctc(folder / "ctc")
    yield from ((stage, given, {"tolerance": 1e-2}) for stage in (
        Transcribe(model=heard, max_new_tokens=3), Transcribe(model=framed), Align(model=framed), SpokenLanguage(model=heard)))


def of_measures():
    spans = pa.array([[{"start": 0.1, "end": 0.5}], None, [], None], pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64())])))
    given = recordings(noise(1.2), None, sine(300, .4), noise(.8, seed=1), speech=spans)
    yield from ((stage, given) for stage in (Signals(), Trim(), Loudness(), Waveform(speech="speech")))


def of_cuts():
    spans = pa.array([[{"start": 0.1, "end": 3.5}], [], None], pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64())])))
    given = recordings(noise(4.0, 8000), noise(3.0, 8000, seed=1), None, rate=8000, speech=spans)
    yield from ((stage, given) for stage in (Vad(), Segment(), Windows(length=1.0), Fingerprint(hashes=16)))
    yield Concat(also=["speech"]), given.with_columns({"parent": pa.array(["a", "a", "a"])})


def of_voices(folder, url):
    folder.mkdir()
    (folder / "a.rttm").write_text("SPEAKER 0 1 0.50 2.00 <NA> <NA> ann <NA> <NA>\n")
    spans = pa.array([[{"start": 0, "end": 1}], [], None], pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64()})))
    given = recordings(noise(1.2), sine(200, .7), None, speech=spans, caption=pa.array(["a", None, "b"], pa.string()))
    yield Rttm(path=str(folder / "a.rttm")), given.without(["speech", "caption"])
    yield TranscribeServer(url=url, model="tiny", backoff_s=0.0), given
    heard = voice(folder / "voice")
    yield from ((stage, given, {"tolerance": 1e-2}) for stage in (
        EmbedSpeaker(model=heard), Speakers(model=heard), Diarise(model=diariser(folder / "pair")),
        Embed(model=clap(folder / "clap"), caption="caption"),
        Tag(model=tagger(folder / "tagger")), Dnsmos(model=mean_model(folder / "p835.onnx", (WINDOW,), 3))))


def of_files(folder):
    folder.mkdir()
    sounds = [by_soundfile(noise(.5), 16_000), by_soundfile(sine(300, .4), 16_000, "FLAC")]
    for name, data in zip(("a.wav", "b.flac"), sounds, strict=True):
        (folder / name).write_bytes(data)
    (folder / "list.jsonl").write_text('{"audio_filepath": "a.wav"}\n{"audio_filepath": "b.flac", "offset": 0.1}\n')
    yield from ((AudioFiles(path=str(folder)),), (Manifest(path=str(folder / "list.jsonl")),))
    yield Decode(), files(*sounds, None, b"no sound"), {"skip": {"needs"}}  # bytes or a path, whichever is there
    stereo = recordings(noise(1.2), None, np.stack([sine(300, .4), sine(500, .4)]), noise(.8, seed=1))
    yield from ((stage, stereo) for stage in (Resample(rate=8_000), Mono(), Hash(), Encode()))


def of_shards(folder):
    test_shar.shard(folder / "shar", [test_shar.cut("a")], [("a.flac", b"x")])
    test_tarred.shard(folder / "tarred", 0, [test_tarred.line("a.wav")], {"a.wav": b"x"})
    yield from (source(path=str(folder / name)) for source, name in ((Shar, "shar"), (Tarred, "tarred")))
    yield from ((sink(path=str(folder / sink.name)), test_nemo.records()) for sink in (ToNemo, ToShar, ToHf))
    yield ToSubtitles(path=str(folder / "subtitles")), test_subtitles.SAID


@pytest.mark.slow  # each stage passes the kit in its own file, too
def test_the_pack(tmp_path, server):  # noqa: F811
    pytest.importorskip("transformers")
    pytest.importorskip("onnxruntime")
    check_pack("audio", [*of_words(tmp_path), *of_measures(), *of_cuts(), *of_voices(tmp_path / "voices", server.url),
                         *of_files(tmp_path / "files"), *of_shards(tmp_path)])


def test_what_an_extra_brings_is_asked_for_before_a_run_works():
    assert set(Dnsmos(model="m").requires) == {"onnxruntime"}
    assert set(Vad(engine="silero").requires) == {"onnxruntime", "silero_vad"}
    assert not Vad().requires
