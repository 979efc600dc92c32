"""The audio pack, whole: its stages keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_audio import (
    Align,
    Hallucination,
    Loudness,
    Rates,
    Signals,
    SpokenLanguage,
    Transcribe,
    Trim,
    Waveform,
    Wer,
)

from curator.testing import check_pack
from packs.audio.tests.recordings import noise, recordings, sine
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


@pytest.mark.slow  # each stage passes the kit in its own file, too
def test_the_pack(tmp_path):
    pytest.importorskip("transformers")
    check_pack("audio", [*of_words(tmp_path), *of_measures()])
