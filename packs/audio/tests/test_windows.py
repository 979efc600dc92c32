"""Windows: all of a recording in pieces of one length, and whole turns of several speakers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_audio.cut.spans import SPANS
from curator_audio.cut.windows import Windows, between_turns, every, nearest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import recordings

TURNS = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64()), ("speaker", pa.string())]))
RATE = 100


def ramp(seconds):
    return np.arange(round(seconds * RATE), dtype=np.float32)


def windowed(batch, **options):
    return run_stage(Windows(**options), batch)


def bounds(answer, port="out"):
    return [(row["start_s"], row["end_s"]) for row in answer[port].rows.to_pylist()]


def turns(*spans):
    return pa.array([[{"start": float(a), "end": float(b), "speaker": who} for a, b, who in spans]], TURNS)


# -- of one length --------------------------------------------------------------------------------------------------


def test_windows_follow_each_other_and_the_last_may_be_shorter():
    answer = windowed(recordings(ramp(25), ramp(22), rate=RATE), length=10.0)
    assert bounds(answer) == [(0, 10), (10, 20), (20, 25), (0, 10), (10, 20)]
    assert bounds(answer, "dropped") == [(20, 22)]
    assert answer["dropped"].column("reason") == ["too_short"]
    assert answer["out"].samples[2].tolist() == [ramp(25)[2000:].tolist()]


def test_windows_may_overlap_or_leave_gaps():
    assert bounds(windowed(recordings(ramp(25), rate=RATE), length=10.0, hop=5.0)) == [(0, 10), (5, 15), (10, 20), (15, 25)]
    assert bounds(windowed(recordings(ramp(25), rate=RATE), length=4.0, hop=10.0)) == [(0, 4), (10, 14), (20, 24)]


def test_a_short_recording_is_one_window_or_too_short():
    answer = windowed(recordings(ramp(6), ramp(4), np.zeros(0), None, rate=RATE), length=10.0)
    assert bounds(answer) == [(0, 6)]
    assert answer["dropped"].column("reason") == ["too_short", "no_window", "no_window"]


@given(st.integers(1, 3000), st.integers(1, 400), st.integers(1, 400))
@settings(max_examples=80)
def test_every_sample_is_in_a_window(total, length, hop):
    found = every(total, length, min(hop, length))
    assert found[0, 0] == 0
    assert found[-1, 1] == total
    assert (found[1:, 0] <= found[:-1, 1]).all()
    assert (found[1:, 1] > found[:-1, 1]).all()
    assert ((found[:, 1] - found[:, 0])[:-1] == length).all()


# -- of turns -------------------------------------------------------------------------------------------------------


def test_windows_of_turns_hold_whole_turns_of_several_speakers():
    heard = turns((0, 10, "A"), (10, 19, "B"), (21, 30, "A"), (30, 40, "B"), (40, 50, "B"), (50, 60.5, "B"), (62, 70, "C"))
    answer = windowed(recordings(ramp(80), rate=RATE, turns=heard), by="turns", length=20.0)
    assert bounds(answer) == [(10, 30), (50, 70)]  # 0 to 19 and 21 to 40 are less near to 20 s, 30 to 50 has one speaker
    assert answer["out"].column("speaker_count") == [2, 2]
    assert answer["out"].column("turns")[0] == [{"start": 0.0, "end": 9.0, "speaker": "B"}, {"start": 11.0, "end": 20.0, "speaker": "A"}]
    answer = windowed(recordings(ramp(80), rate=RATE, turns=heard), by="turns", length=20.0, speakers=[3, 3])
    assert answer["dropped"].column("reason") == ["no_window"]


def test_a_turn_that_others_speak_into_is_not_cut():
    heard = turns((0, 12, "A"), (10, 15, "B"), (16, 22, "A"), (22, 30, "C"))
    assert bounds(windowed(recordings(ramp(40), rate=RATE, turns=heard), by="turns", length=13.0)) == [(16, 30)]


@given(st.lists(st.tuples(st.integers(-5, 10), st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=40), st.integers(5, 60))
@settings(max_examples=80, deadline=None)
def test_windows_of_turns_are_the_nearest_of_all(steps, length):
    """The same as by trying every pair of places between turns; and those that stay do not overlap."""
    starts = np.cumsum([max(gap, 0 if n else 5) for n, (gap, _, _) in enumerate(steps)])
    spans, who = np.column_stack([starts, starts + [size for _, size, _ in steps]]), np.array([one for _, _, one in steps])
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    spans, who = spans[order], who[order]
    found, speakers = between_turns(spans, who, length, 0.3, 2)
    expected = {}
    for begin in np.unique(spans[:, 0]):
        ends = [end for end in np.unique(spans[:, 1]) if end > begin and not ((spans[:, 0] < end) & (spans[:, 1] > end)).any()]
        if not ((spans[:, 0] < begin) & (spans[:, 1] > begin)).any() and ends:
            end = min(ends, key=lambda end: (abs(end - begin - length), end))
            inside = (spans[:, 0] >= begin) & (spans[:, 1] <= end)
            if abs(end - begin - length) <= 0.3 * length and inside.sum() >= 2:
                expected[begin, end] = len(set(who[inside]))
    assert dict(zip(map(tuple, found.tolist()), speakers.tolist(), strict=True)) == expected
    kept = found[nearest(found, length, 0.0)]
    assert (kept[1:, 0] >= kept[:-1, 1]).all()
    assert len(kept) > 0 or not expected


# -- rules ----------------------------------------------------------------------------------------------------------


def test_list_mode_leaves_recordings_whole():
    answer = windowed(recordings(ramp(25), None, rate=RATE), length=10.0, mode="list")
    assert answer["out"].column("windows")[0] == [{"start": 0.0, "end": 10.0}, {"start": 10.0, "end": 20.0}, {"start": 20.0, "end": 25.0}]
    assert answer["out"].column("windows")[1] is None
    assert answer["out"].rows.column("windows").type == SPANS


@pytest.mark.parametrize("options", [{"hop": 4.0, "also": ["speech"]}, {"mode": "list"}, {"by": "turns", "tolerance": 0.5},
                                     {"by": "turns", "mode": "list"}])
def test_keeps_the_rules(options):
    heard = [[{"start": 0.0, "end": 4.0, "speaker": "A"}, {"start": 4.0, "end": 9.0, "speaker": "B"}], [], None, None]
    speech = pa.array([[{"start": 1.0, "end": 7.0}], [], None, None], SPANS)
    batch = recordings(ramp(20), ramp(3), ramp(9), None, rate=RATE, turns=pa.array(heard, TURNS), speech=speech)
    check_stage(Windows(length=8.0, **options), batch)


@pytest.mark.parametrize("options", [{"by": "chance"}, {"mode": "tear"}, {"length": 0}, {"hop": 0}, {"min": 31.0}, {"tolerance": 1},
                                     {"speakers": [3, 2]}])
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Windows(**options)
