"""Joining: to the sample, within limits, only neighbours, and no piece lost or twice."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from click.testing import CliRunner
from curator_audio.cut.concat import Concat
from curator_audio.cut.spans import SPANS
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import Context, RecipeError
from curator.cli.main import main
from curator.testing import check_stage
from packs.audio.tests.recordings import noise, recordings, voice

RATE = 1000
WORDS = pa.list_(pa.struct([("word", pa.string()), ("start", pa.float64()), ("end", pa.float64())]))


def pieces(*spans, rate=RATE, parent="talk", **columns):
    """Pieces of one recording, each sample of which is its own number from 1."""
    samples = [np.arange(round(a * rate), round(b * rate), dtype=np.float32) + 1 for a, b in spans]
    ids = pa.array([f"{parent}#{k}" for k in range(len(spans))])
    made = {"id": ids, "source": pa.array([f"{parent}.wav"] * len(spans)), "parent": pa.array([parent] * len(spans)),
            "start_s": pa.array([a for a, _ in spans], pa.float64()), "end_s": pa.array([b for _, b in spans], pa.float64())}
    return recordings(*samples, rate=rate).with_columns(made | columns)


def answers(stage, *batches):
    """Joined records, and pieces that pass; all together in the order of their beginnings, and their samples."""
    stage.setup(Context())
    for batch in batches:
        stage.absorb(batch)
    made = [outputs["out"] for outputs in stage.finish()]
    passed = [stage.process(batch)["out"] for batch in batches]
    rows = [(row, wave) for batch in (*made, *passed) for row, wave in zip(batch.rows.to_pylist(), batch.samples, strict=True)]
    rows.sort(key=lambda one: (one[0]["parent"] or "", one[0]["start_s"], one[0]["id"]))
    return [row for row, _ in rows], [wave for _, wave in rows]


def spans_in(rows):
    return [(row["start_s"], row["end_s"]) for row in rows]


def test_pieces_become_one_record_and_each_can_be_traced_to_its_samples():
    rows, waves = answers(Concat(), pieces((1, 4), (5, 8), (8, 9), (20, 21)))
    assert [row["id"] for row in rows] == ["talk#0+2", "talk#3"]
    assert spans_in(rows) == [(1, 9), (20, 21)]
    assert [row["duration"] for row in rows] == [8, 1]
    assert [part["id"] for part in rows[0]["parts"]] == ["talk#0", "talk#1", "talk#2"]
    expected = np.arange(1000, 9000, dtype=np.float32) + 1
    expected[3000:4000] = 0
    assert np.array_equal(waves[0], expected[None])
    for row, wave in zip(rows, waves, strict=True):
        assert wave.shape[1] == row["duration"] * RATE
        for part in row["parts"]:
            found = wave[0, round(part["start"] * RATE):round(part["end"] * RATE)]
            assert np.array_equal(found, np.arange(part["start_s"] * RATE, part["end_s"] * RATE) + 1)


def test_a_pause_may_be_of_one_length():
    (row, _), (wave, _) = answers(Concat(pause=0.25, max=6.3), pieces((1, 4), (5, 8), (9, 10)))
    assert spans_in([row]) == [(1, 8)]
    assert row["duration"] == 6.25
    assert not wave[0, 3000:3250].any()
    assert (row["parts"][1]["start"], row["parts"][1]["end"]) == (3.25, 6.25)


def test_as_many_as_fit_and_none_that_is_far():
    assert spans_in(answers(Concat(max=10), pieces((0, 4), (5, 10), (10.5, 12), (13, 14), (16.5, 17), (30, 45)))[0]) == [
        (0, 10), (10.5, 14), (16.5, 17), (30, 45)]


@pytest.mark.parametrize("why", ["rate", "channels", "speaker", "parent", "overlap", "unsure", "without"])
def test_what_is_no_neighbour_is_not_joined(why):
    batch, other = pieces((0, 2), (2, 4), speaker=["a", "b" if why == "speaker" else "a"]), None
    samples = list(batch.samples)
    if why == "rate":
        batch = batch.with_columns({"sample_rate": pa.array([1000, 2000], pa.int32())})
    elif why == "channels":
        samples[1] = np.tile(samples[1], (2, 1))
    elif why == "without":
        samples[1] = None
    elif why == "parent":
        batch = batch.with_columns({"parent": pa.array([None, None], pa.string())})
    elif why == "overlap":
        batch = batch.with_columns({"start_s": [0.0, 1.9]})
    elif why == "unsure":  # nothing tells two of the pieces apart
        other = batch
    batches = [batch.with_payloads(samples=samples)] + ([other] if other else [])
    rows, _ = answers(Concat(same=["speaker"]), *batches)
    assert sorted(row["id"] for row in rows) == sorted(["talk#0", "talk#1"] * len(batches))
    assert all(len(row["parts"]) == 1 for row in rows)


def test_texts_words_and_speech_go_along():
    words = pa.array([[{"word": "so", "start": .5, "end": 1.}], None, [{"word": "it", "start": None, "end": None},
                                                                          {"word": "is", "start": .2, "end": .4}]], WORDS)
    speech = pa.array([[{"start": 0., "end": 1.}], [], [{"start": .5, "end": 1.}]], SPANS)
    given = pieces((10, 12), (13, 14), (14, 15), words=words, speech=speech, text=["so ", None, "it is"], ja=["今", "日", "は"],
                   lang=["en"] * 3, snr_db=[1., 2., 1.], speech_ratio=[.5, 0., .5], list=[[1], [1], [1]], bytes=[b"x"] * 3)
    (row,), _ = answers(Concat(text=["text", "ja"], also=["words", "speech"]), given)
    assert (row["text"], row["ja"]) == ("so it is", "今日は")
    assert row["words"] == [{"word": "so", "start": .5, "end": 1.}, {"word": "it", "start": None, "end": None},
                            {"word": "is", "start": 4.2, "end": 4.4}]
    assert row["speech"] == [{"start": 0, "end": 1}, {"start": 4.5, "end": 5}]
    assert (row["speech_seconds"], row["speech_ratio"]) == (1.5, pytest.approx(0.3))
    assert (row["lang"], row["snr_db"], row["list"]) == ("en", None, None)
    assert "bytes" not in row


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 6000)), min_size=1, max_size=12), st.randoms(use_true_random=False),
       st.sampled_from([None, 0.0, 0.3]))
def test_no_sample_is_lost_or_twice_whatever_the_order(steps, chance, pause):
    at, spans = 0, []
    for gap, length in steps:
        spans.append(((at + gap) / RATE, (at + gap + length) / RATE))
        at += gap + length
    whole = pieces(*spans)
    order = list(range(len(spans)))
    chance.shuffle(order)
    cut = chance.randint(0, len(order))
    rows, waves = answers(Concat(max=8, max_gap=1, pause=pause), whole.take(order[:cut]), whole.take(order[cut:]))
    assert [part["id"] for row in rows for part in row["parts"]] == whole.column("id")
    assert np.array_equal(np.concatenate([wave[wave > 0] for wave in waves]), np.concatenate([wave[0] for wave in whole.samples]))
    for row, wave in zip(rows, waves, strict=True):
        assert wave.shape[1] == round(row["duration"] * RATE)
        assert row["duration"] <= 8 + 2e-3 or len(row["parts"]) == 1
    for one, other in pairwise(rows):
        gap = other["start_s"] - one["end_s"]
        first = other["parts"][0]
        added = (gap if pause is None else pause) + first["end_s"] - first["start_s"]
        assert gap > 1 - 1e-6 or one["duration"] + added > 8 - 2e-3


def test_the_stage_keeps_the_rules_of_a_pack():
    speech = pa.array([[{"start": 0., "end": 1.}], None, [], [{"start": 0., "end": .5}]], SPANS)
    given = pieces((0, 2), (2.5, 4), (4, 5), (9, 10), speech=speech, text=["a", None, "b", "c"], speaker=["x", "x", "y", "y"])
    check_stage(Concat(also=["speech"], text=["text"], same=["speaker"]), given)
    check_stage(Concat(max_gap=0.0), given.without(["speech"]))


@pytest.mark.parametrize(("options", "message"), [
    ({"max": 0}, "max"), ({"max_gap": -1}, "max_gap"), ({"pause": -0.1}, "pause"), ({"shards": 0}, "shards"),
    ({"text": "text"}, "list of columns"), ({"text": ["a"], "also": ["a"]}, "more than one")])
def test_nonsense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Concat(**options)


def test_spans_that_nobody_named_are_refused():
    with pytest.raises(RecipeError, match="name it in `also`"):
        Concat().check({"speech": SPANS})


RECIPE = """
name: joined
read: {audio.files: {path: recordings}}
steps:
  - audio.decode
  - audio.vad
  - audio.segment: {min: 0.5, max: 5, merge_gap: 0.2, pad: 0.05}
  - audio.concat: {max: 8, max_gap: 1.0, also: [speech]}
  - audio.encode: {format: flac}
write: parquet
out: out
"""


def test_in_a_run_every_piece_is_in_a_record_that_lies_in_its_file(tmp_path, monkeypatch):
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    for name, pauses in (("a", (.6, .6, 3.)), ("b", (.6,))):
        said = [np.concatenate([voice(1.5, 16_000, seed=n), np.zeros(round(pause * 16_000), np.float32)]) for n, pause in enumerate(pauses)]
        whole = np.concatenate([*said, voice(1.5, 16_000, seed=9)])
        soundfile.write(tmp_path / "recordings" / f"{name}.wav", whole + noise(len(whole) / 16_000, level_db=-65), 16_000, "PCM_16")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["run", "recipe.yaml", "--workers", "0"])
    assert done.exit_code == 0, done.output
    written = [row for file in (tmp_path / "out/data").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    written.sort(key=lambda row: (row["source"], row["start_s"]))
    assert [len(row["parts"]) for row in written] == [3, 1, 2]
    for row in written:
        (tmp_path / "one.flac").write_bytes(row["bytes"])
        samples, rate = soundfile.read(tmp_path / "one.flac", dtype="int16")
        whole, _ = soundfile.read(row["source"], dtype="int16")
        for part in row["parts"]:
            a, b, at, end = (round(part[name] * rate) for name in ("start", "end", "start_s", "end_s"))
            assert np.array_equal(samples[a:b], whole[at:end])
    stats = json.loads((tmp_path / "out/_run/stats.json").read_text())
    concat = next(stage for stage in stats["stages"] if stage["name"] == "concat")
    assert concat["extra"] == {"joined": 2, "joined_parts": 5}
