"""Spans: limits, margins, reasons, and every second accounted for."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from curator_video.shots.boundaries import BOUNDARIES, SHOTS
from curator_video.shots.spans import Spans
from curator_video.shots.stride import Stride, windows
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import Batch, Outputs
from curator.api.counts import Counts
from curator.testing import check_stage, run_stage


def shot(start, end, before="cut", after="cut", score=0.9):
    return {"start": float(start), "end": float(end), "before": before, "after": after, "score": score}


def films(*lists, duration=100.0, **columns):
    ids = [str(k) for k in range(len(lists))]
    return Batch(rows=pa.table({"id": ids, "source": ["test"] * len(ids), "duration": pa.array([duration] * len(ids), pa.float64()),
                                "shots": pa.array(lists, SHOTS), **columns}))


def bounds(answer, port="out"):
    return [(round(row["start_s"], 3), round(row["end_s"], 3)) for row in answer[port].rows.to_pylist()] if port in answer else []


def told(batch, **options):
    stage = Spans(**options)
    total: dict[str, int] = {}
    for answer in stage.process(batch):
        assert isinstance(answer, Outputs)
        for name, value in (answer.counts or {}).items():
            total[name] = total.get(name, 0) + value
    return total


def test_each_shot_is_a_record():
    answer = run_stage(Spans(), films([shot(0, 10, "start"), shot(10, 13), shot(13, 14), shot(20, 30, "fade", "end")]))
    assert bounds(answer) == [(0, 10), (10, 13), (20.1, 30)]
    assert bounds(answer, "dropped") == [(13, 14)]
    out = answer["out"].rows.to_pylist()
    assert [row["id"] for row in out] == ["0#0", "0#1", "0#3"]
    assert {row["parent"] for row in out} == {"0"}
    assert [row["clip_index"] for row in out] == [0, 1, 3]
    assert [row["duration"] for row in out] == [10.0, 3.0, pytest.approx(9.9)]
    assert [(row["shot_before"], row["shot_after"]) for row in out] == [("start", "cut"), ("cut", "cut"), ("fade", "end")]
    assert answer["dropped"].column("reason") == ["too_short"]


def test_what_is_too_long_is_divided_equally():
    answer = run_stage(Spans(), films([shot(0, 125)], duration=125.0))
    assert bounds(answer) == [(0, 41.667), (41.667, 83.333), (83.333, 125)]
    assert answer["out"].column("shot_before") == ["cut", "part", "part"]
    assert bounds(run_stage(Spans(), films([shot(0, 60)]))) == [(0, 60)]


def test_cropped_ends():
    answer = run_stage(Spans(crop=0.5), films([shot(0, 3), shot(10, 12.9)]))
    assert bounds(answer) == [(0.5, 2.5)]
    assert bounds(answer, "dropped") == [(10, 12.9)]


def test_a_film_without_clips_is_dropped_whole():
    answer = run_stage(Spans(), films([], None, [shot(0, 5)]))
    assert answer["dropped"].column("reason") == ["no_clips"] * 2
    assert answer["dropped"].column("duration") == [100.0] * 2
    assert answer["out"].column("id") == ["2#0"]


def test_every_second_is_accounted_for():
    batch = films([shot(0, 10), shot(11, 12), shot(20, 30, "dissolve")], [], duration=40.0)
    assert told(batch) == {"kept_ms": 19_900, "short_ms": 1_000, "rest_ms": 19_100 + 40_000}
    counts = Counts(extra=told(batch))
    said = [one.text for one in Spans().findings("spans", counts)]
    assert said == ["19.9 s in clips, 1.0 s too short, 59.1 s of transitions, blanks and margins"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 150), max_size=12), st.floats(0, 5), st.floats(0, 1), st.floats(0, 1))
def test_nothing_is_lost(lengths, least, margin, crop):
    at, made = 0.0, []
    for k, length in enumerate(lengths):
        made.append(shot(at, at + length, "dissolve" if k % 3 else "cut", "fade" if k % 2 else "cut"))
        at += length
    batch, options = films(made, duration=at), {"min": least, "max": 20.0, "margin": margin, "crop": crop}
    answer = run_stage(Spans(**options), batch)
    counts = told(batch, **options)
    assert sum(counts.values()) == pytest.approx(1000 * at, abs=2)
    assert min(counts.values()) >= 0
    clips = bounds(answer)
    assert all(least - 1e-3 <= high - low <= 20 + 1e-3 for low, high in clips)
    assert all(high <= low + 2e-3 for (_, high), (low, _) in itertools.pairwise(clips))


def test_another_threshold_joins_shots():
    boundaries = [{"start": 10.0, "end": 10.0, "kind": "cut", "score": 0.5}, {"start": 20.0, "end": 21.0, "kind": "fade", "score": 1.0}]
    batch = films([shot(0, 10), shot(10, 20), shot(21, 100)], boundaries=pa.array([boundaries], BOUNDARIES))
    answer = run_stage(Spans(threshold=0.6, max=100.0), batch)
    assert bounds(answer) == [(0, 19.9), (21.1, 100)]
    assert "boundaries" not in answer["out"].columns
    assert "shots" not in answer["out"].columns


def test_spans_of_a_manifest():
    kind = pa.list_(pa.struct([("start", pa.float32()), ("end", pa.float32())]))
    spans = pa.array([[{"start": 1, "end": 4}, {"start": 7, "end": None}, None, {"start": 50, "end": 60}]], kind)
    batch = films(None, spans=spans)
    assert bounds(run_stage(Spans(by="spans"), batch)) == [(1, 4), (50, 60)]


def test_films_given_by_bytes_are_answered_in_portions(monkeypatch):
    monkeypatch.setattr("curator_video.shots.spans.ANSWER_BYTES", 5_000)
    data = pa.array([b"x" * 1_000] * 3, pa.binary())
    batch = films(*[[shot(0, 5), shot(5, 10)]] * 3, bytes=data)
    answers = list(Spans().process(batch))
    assert [len(answer["out"]) for answer in answers] == [4, 2]


def test_stride():
    assert [len(windows(0, 30, *way, 2)) for way in ((10, 10), (5, 5), (3, 2))] == [3, 6, 15]
    assert windows(0, 25, 10, 10, 2) == [(0, 10), (10, 20), (20, 25)]
    assert windows(0, 21, 10, 10, 2) == [(0, 10), (10, 20)]
    assert windows(5, 5, 10, 10, 2) == []
    answer = run_stage(Spans(), run_stage(Stride(length=30.0), films(None, duration=65.0))["out"])
    assert bounds(answer) == [(0, 30), (30, 60), (60, 65)]
    assert run_stage(Stride(), films(None, duration=None))["out"].column("shots") == [None]


@pytest.mark.parametrize("stage", [Spans(), Spans(threshold=0.5), Stride()])
def test_the_stages_keep_the_rules(stage):
    boundaries = pa.array([[{"start": 10.0, "end": 10.0, "kind": "cut", "score": 0.5}], [], None], BOUNDARIES)
    # lengths are read where they are there
    check_stage(stage, films([shot(0, 10), shot(10, 11)], [], None, boundaries=boundaries), skip={"needs"})


@pytest.mark.parametrize(("stage", "options", "word"), [
    (Spans, {"min": -1}, "min"), (Spans, {"max": 3.0}, "twice"), (Spans, {"threshold": 2}, "threshold"),
    (Stride, {"length": 0}, "length"), (Stride, {"every": 0}, "every"), (Stride, {"min": 20}, "min")])
def test_nonsense_is_refused(stage, options, word):
    with pytest.raises(ValueError, match=word):
        stage(**options)
