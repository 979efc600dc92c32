"""Cutting: exact to the sample, at pauses, within limits, and every second accounted for."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
import soundfile
from curator_audio.cut.pieces import Limits, covered, pieces
from curator_audio.cut.segment import Segment
from curator_audio.cut.spans import SPANS
from curator_audio.cut.vad import Vad
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import RecipeError
from curator.api.counts import Counts
from curator.api.stage import Context
from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, voice

WORDS = pa.list_(pa.struct([("word", pa.string()), ("start", pa.float64()), ("end", pa.float64()), ("score", pa.float32())]))
TURNS = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64()), ("speaker", pa.string())]))


def listed(*spans):
    return None if spans == (None,) else [{"start": float(a), "end": float(b)} for a, b in spans]


def ramp(seconds, rate=16_000, channels=1):
    """Each sample is its own number, so that every piece shows where it was cut."""
    return np.tile(np.arange(round(seconds * rate), dtype=np.float32), (channels, 1))


def of(seconds, spans, rate=16_000, channels=1, **columns):
    made = {name: pa.array([value]) if not isinstance(value, pa.Array) else value for name, value in columns.items()}
    return recordings(ramp(seconds, rate, channels), rate=rate, speech=pa.array([listed(*spans)], SPANS), **made)


def segmented(batch, **options):
    return run_stage(Segment(**options), batch)


def bounds(answer, port="out"):
    if port not in answer:
        return []
    return [(round(row["start_s"], 4), round(row["end_s"], 4)) for row in answer[port].rows.to_pylist()]


# -- where it is cut ------------------------------------------------------------------------------------------------


def test_spans_near_to_each_other_are_one_piece():
    answer = segmented(of(30, [(1, 4), (5, 8), (11, 15)]), pad=0.0)
    assert bounds(answer) == [(1, 8), (11, 15)]
    assert answer["out"].column("id") == ["0#0", "0#1"]
    assert answer["out"].column("parent") == ["0", "0"]


def test_what_is_too_long_is_cut_at_its_longest_pause():
    answer = segmented(of(60, [(0, 9), (9.5, 20), (21, 30), (30.3, 41)]), pad=0.0, max=30.0)
    assert bounds(answer) == [(0, 20), (21, 41)]


def test_a_pause_that_leaves_a_part_too_short_is_the_last_choice():
    answer = segmented(of(60, [(0, 1), (2.5, 20), (20.4, 34)]), pad=0.0)
    assert bounds(answer) == [(0, 20), (20.4, 34)]
    answer = segmented(of(60, [(0, 1), (2.5, 31)]), pad=0.0)
    assert (bounds(answer), bounds(answer, "dropped")) == ([(2.5, 31)], [(0, 1)])


def test_without_a_pause_it_is_cut_at_the_quietest_place():
    samples = noise(70.0, level_db=-20.0)
    for quiet in (23.0, 48.0):
        samples[round((quiet - 0.05) * 16_000):round((quiet + 0.05) * 16_000)] *= 0.01
    batch = recordings(samples, speech=pa.array([listed((0, 70))], SPANS))
    cuts = [end for _, end in bounds(segmented(batch))]
    assert np.abs(np.array(cuts) - [23.0, 48.0, 70.0]).max() < 0.05


def test_padding_takes_half_of_a_pause_and_no_more_than_max():
    answer = segmented(of(30, [(0.05, 5), (5.1, 8), (20, 29.95)]), pad=0.1, merge_gap=0.0)
    assert bounds(answer) == [(0, 5.05), (5.05, 8.1), (19.9, 30)]
    assert bounds(segmented(of(31, [(0.5, 30.4)]), pad=0.5)) == [(0.45, 30.45)]


def test_too_short_pieces_keep_their_samples_and_say_why():
    answer = segmented(of(20, [(1, 2), (8, 12)]), pad=0.0)
    dropped = answer["dropped"]
    assert dropped.column("reason") == ["too_short"]
    assert dropped.column("id") == ["0#0"]
    assert dropped.samples[0].shape == (1, 16_000)
    assert bounds(answer, "dropped") == [(1, 2)]
    assert answer["out"].column("id") == ["0#1"]


def test_a_recording_without_speech_is_dropped_whole():
    batch = recordings(ramp(1), None, ramp(3), speech=pa.array([[], None, listed((0, 3))], SPANS))
    answer = segmented(batch)
    assert answer["dropped"].column("reason") == ["no_speech", "no_speech"]
    assert answer["dropped"].column("id") == ["0", "1"]
    assert answer["out"].column("id") == ["2#0"]


def test_what_is_dropped_can_be_listened_to():
    loud = noise(40.0, level_db=-60.0)
    loud[25 * 16_000:33 * 16_000] = voice(8.0)
    batch = recordings(voice(20, seed=1), loud, None, speech=pa.array([listed((1, 2), (8, 12)), [], None], SPANS))
    dropped = segmented(batch, pad=0.0)["dropped"]
    short, long, nothing = dropped.column("preview")
    heard, rate = soundfile.read(io.BytesIO(short), dtype="float32")
    assert rate == 16_000
    assert np.allclose(heard, batch.samples[0][0, 16_000:32_000], atol=2**-15)
    heard, _ = soundfile.read(io.BytesIO(long), dtype="float32")
    assert len(heard) == 160_000
    assert np.square(heard).sum() == pytest.approx(np.square(batch.samples[1]).sum(), rel=0.01)
    assert nothing is None
    assert "preview" not in segmented(batch)["out"].columns
    assert "preview" not in segmented(batch, preview=0)["dropped"].columns
    assert segmented(recordings(voice(3, 48_000), rate=48_000, speech=pa.array([[]], SPANS)))["dropped"].column("preview")[0]


# -- exact to the sample --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spans", "channels", "shared"), [([(0, 9), (10, 20)], 1, True), ([(1, 4)], 1, False), ([(0, 20)], 2, False)])
def test_pieces_are_no_copies_where_they_are_most_of_a_recording(spans, channels, shared):
    batch = of(20, spans, channels=channels)
    pieces = segmented(batch, merge_gap=0.0)["out"].samples
    assert [np.shares_memory(piece, batch.samples[0]) for piece in pieces] == [shared] * len(spans)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
def test_samples_are_those_of_the_span(rate):
    batch = of(12, [(0.12345, 2.77), (5.000011, 9.99999)], rate, channels=2).with_columns({"start_s": [600.0]})
    given = batch.samples[0].copy()
    answer = segmented(batch, pad=0.0, merge_gap=0.5)["out"]
    for row, samples in zip(answer.rows.to_pylist(), answer.samples, strict=True):
        first = round((row["start_s"] - 600) * rate)
        assert abs(first - (row["start_s"] - 600) * rate) < 1e-4
        assert samples[:, 0].tolist() == [first, first]
        assert samples.shape[1] == round(row["duration"] * rate) == round((row["end_s"] - row["start_s"]) * rate)
        assert samples.dtype == np.float32
        assert samples.base is None or samples.base.nbytes == samples.nbytes
    assert np.array_equal(batch.samples[0], given)


@pytest.mark.parametrize(("rate", "source_rate"), [(16_000, 44_100), (24_000, 22_050)])
def test_spans_of_a_resampled_record_are_exact_in_its_file(rate, source_rate):
    """Start and end name the sample of the file that a piece begins with, to one sample."""
    row = segmented(of(12, [(1.23456, 5)], rate), pad=0.0)["out"].rows.to_pylist()[0]
    assert abs(row["start_s"] * source_rate - 1.23456 * source_rate) <= source_rate / rate / 2 + 1e-6


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(1, 4000)), min_size=1, max_size=12), st.integers(0, 300),
       st.sampled_from([(0, 500), (100, 300), (200, 1000)]), st.integers(0, 60), st.booleans())
@settings(max_examples=80, deadline=None)
def test_pieces_hold_all_speech_in_order_within_limits(steps, gap, limit, pad, speakers):
    edges = np.cumsum(np.array(steps).reshape(-1))
    spans, total = edges.reshape(-1, 2), int(edges[-1]) + 50
    who = np.arange(len(spans)) % 2 if speakers else None
    made, whose = pieces(spans, who, Limits(*limit, gap, pad), total, lambda low, high: (low + high) // 2)
    assert len(made) == len(whose)
    assert (made[:, 1] > made[:, 0]).all()
    assert (made[:, 1] - made[:, 0]).max() <= limit[1]
    assert (made[1:, 0] >= made[:-1, 1]).all()
    assert made.min() >= 0
    assert made.max() <= total
    assert covered(made) == (made[:, 1] - made[:, 0]).sum()
    mine = np.concatenate([np.arange(a, b) for a, b in made])
    spoken = np.concatenate([np.arange(a, b) for a, b in spans])
    assert np.isin(spoken, mine).all()  # no speech is lost
    cuts = made[1:, 0][made[1:, 0] == made[:-1, 1]]
    long = spans[spans[:, 1] - spans[:, 0] > limit[1]]
    inside = [any(a < c < b for a, b in spans) for c in cuts]
    assert all(any(a < c < b for a, b in long) for c, cut in zip(cuts, inside, strict=True) if cut)  # none through a short span


# -- turns, words, windows ------------------------------------------------------------------------------------------


def test_a_piece_of_turns_has_one_speaker():
    turns = pa.array([[{"start": 0.0, "end": 5.0, "speaker": "A"}, {"start": 4.0, "end": 7.0, "speaker": "B"},
                       {"start": 7.5, "end": 9.0, "speaker": "B"}, {"start": 9.5, "end": 12.0, "speaker": "A"}]], TURNS)
    answer = segmented(recordings(ramp(14), turns=turns), by="turns", pad=0.2)["out"]
    assert answer.column("speaker") == ["A", "B", "A"]
    assert bounds({"out": answer}) == [(0, 5), (4, 9.2), (9.3, 12.2)]
    assert [turn["speaker"] for turn in answer.column("turns")[0]] == ["A", "B"]
    assert answer.column("turns")[1] == [{"start": 0.0, "end": 1.0, "speaker": "A"}, {"start": 0.0, "end": 3.0, "speaker": "B"},
                                         {"start": 3.5, "end": 5.0, "speaker": "B"}]


def test_words_are_never_cut_and_go_with_their_piece():
    """Forty words of a second each without any pause between them; one has no time."""
    made = [{"word": f"w{n}", "start": 1.0 * n, "end": n + 1.0, "score": 0.5} for n in range(40)]
    made[5] |= {"start": None, "end": None}
    batch = recordings(ramp(40), words=pa.array([made], WORDS), text=["of the whole recording"])
    answer = segmented(batch, by="words", text="text", max=10.0, pad=0.1)["out"]
    assert all(start == int(start) and end == int(end) and end - start <= 10 for start, end in bounds({"out": answer}))
    words = [word for text in answer.column("text") for word in text.split()]
    assert words == [f"w{n}" for n in range(40)]
    first = answer.column("words")[1][0]
    assert (first["start"], first["score"]) == (0.0, 0.5)
    assert answer.rows.column("words").type == WORDS


def test_windows_are_cut_as_they_are():
    windows = pa.array([listed((0, 10), (5, 15), (14, 15))], SPANS)
    answer = segmented(recordings(ramp(20), windows=windows), by="windows")
    assert bounds(answer) == [(0, 10), (5, 15)]
    assert bounds(answer, "dropped") == [(14, 15)]


def test_lists_and_shares_of_speech_are_those_of_the_piece():
    answer = segmented(of(30, [(1, 4), (5, 8), (12, 15)]), pad=0.5)["out"]
    assert answer.column("speech") == [listed((0.5, 3.5), (4.5, 7.5)), listed((0.5, 3.5))]
    assert answer.column("speech_seconds") == pytest.approx([6.0, 3.0])
    assert answer.column("speech_ratio") == pytest.approx([6 / 8, 3 / 4])


def test_lists_that_would_be_wrong_in_a_piece_are_refused():
    with pytest.raises(RecipeError, match="'words' has spans of the whole recording"):
        Segment().check({"speech": SPANS, "words": WORDS})
    Segment(also=["words"]).check({"speech": SPANS, "words": WORDS})
    Segment(mode="list").check({"speech": SPANS, "words": WORDS})
    with pytest.raises(RecipeError, match="'speech' is string"):
        Segment().check({"speech": pa.string()})


@pytest.mark.parametrize("kind", [pa.large_list(SPANS.value_type), pa.list_(pa.struct([("end", pa.int64()), ("start", pa.int64())]))])
def test_spans_of_other_readers(kind):
    batch = recordings(ramp(20), None, ramp(3), speech=pa.array([[{"start": 3, "end": 8}], [], None], kind))
    answer = segmented(batch, pad=0.5)
    assert answer["out"].column("speech") == [listed((0.5, 5.5))]
    assert answer["dropped"].column("reason") == ["no_speech"] * 2
    check_stage(Segment(), batch)


def test_a_piece_has_no_bytes_of_the_file():
    batch = of(5, [(0, 4)], bytes=pa.array([b"RIFF"], pa.binary()), snr_db=12.5).with_payloads(encoded=[b"RIFF"])
    answer = segmented(batch)["out"]
    assert "bytes" not in answer.columns
    assert answer.encoded is None
    assert answer.column("snr_db") == [12.5]


# -- accounts -------------------------------------------------------------------------------------------------------


def counted(batch, **options):
    stage = Segment(**options)
    stage.setup(Context())
    counts = Counts()
    for outputs in stage.process(batch):
        for name, number in (outputs.counts or {}).items():
            counts.extra[name] = counts.extra.get(name, 0) + number
    return counts.extra, [line.text for line in stage.findings("segment", counts)]


@pytest.mark.parametrize("mode", ["cut", "list"])
def test_every_millisecond_is_somewhere(mode):
    batch = recordings(ramp(3600 * 2, 100), ramp(10.0037, 100), None, rate=100, speech=pa.array(
        [listed((0, 20), (100, 101), (200, 230)), [], None], SPANS))
    counts, said = counted(batch, pad=0.0, mode=mode)
    assert counts == {"kept_ms": 50_000, "short_ms": 1_000, "rest_ms": 7_149_000 + 10_000}
    assert said == ["50.0 s in segments, 1 h 59 min without speech, 1.0 s too short"]


def test_nothing_is_said_of_nothing():
    assert counted(recordings(None, speech=pa.array([None], SPANS)))[1] == []


def test_list_mode_leaves_recordings_whole():
    batch = recordings(ramp(20), None, ramp(1), speech=pa.array([listed((1, 2), (5, 9)), None, []], SPANS))
    answer = segmented(batch, mode="list", pad=0.0)
    assert answer["out"].column("segments") == [listed((5, 9)), None, []]
    assert answer["out"].column("id") == ["0", "1", "2"]


# -- with the detector ----------------------------------------------------------------------------------------------


def test_detected_utterances_are_cut_at_their_pauses():
    parts = [noise(1.0, level_db=-60), voice(3.0), noise(2.5, level_db=-60), voice(4.0, seed=1), noise(1.5, level_db=-60)]
    heard = run_stage(Vad(), recordings(np.concatenate(parts)))["out"]
    found = np.array(bounds(segmented(heard)))
    assert np.abs(found - [(1, 4), (6.5, 10.5)]).max() < 0.2


# -- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"mode": "list"}, {"by": "turns", "also": ["speech"]}, {"by": "words", "text": "said"},
                                     {"by": "windows"}])
def test_keeps_the_rules(options):
    spans = [listed((0, 4), (4.5, 9)), listed((0, 1)), [], None, listed((0, 9))]
    turns = [[span | {"speaker": "AB"[k % 2]} for k, span in enumerate(one)] if one is not None else None for one in spans]
    words = [[span | {"word": f"w{k}", "score": 0.1} for k, span in enumerate(one)] if one is not None else None for one in spans]
    batch = recordings(*[noise(10.0, 8000)] * 3, None, noise(9.0, 8000), rate=8000, speech=pa.array(spans, SPANS),
                       turns=pa.array(turns, TURNS), words=pa.array(words, WORDS), windows=pa.array(spans, SPANS))
    check_stage(Segment(max=5.0, **options), batch)


@pytest.mark.parametrize(("options", "message"), [({"by": "chance"}, "by is one of"), ({"mode": "tear"}, "mode is cut or list"),
                                                  ({"min": 20.0}, "at least twice min"), ({"pad": -1}, "pad must be"),
                                                  ({"text": "said"}, "by: words")])
def test_nonsense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Segment(**options)
