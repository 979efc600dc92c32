"""Shots: known cuts, fades and dissolves to the picture; flashes, pans and zooms are none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_video.shots.boundaries import Boundary, joined, shots_of
from curator_video.shots.detector import Detector
from curator_video.shots.pictures import shift, wave
from curator_video.shots.shots import Shots

from curator import Batch
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film
from packs.video.tests.scenes import FPS, cases, drawn, pan, thumbs_of
from tests.marks import soaked_after

MISSED = {"wipe12"}  # no rule for it
NAMES = [name for name in cases() if name not in MISSED]


def found_in(luma, chroma=None, times=None, **options):
    detector = Detector(**options)
    for at in range(len(luma)):
        detector.add(at / FPS if times is None else times[at], luma[at], None if chroma is None else chroma[at])
    return detector.finish()


def table(seed):
    """By case: boundaries as pictures, and flashes."""
    made = {}
    for name in NAMES:
        found = found_in(*thumbs_of(drawn(name, seed)))
        made[name] = [(round(one.start * FPS), round(one.end * FPS)) for one in joined(found.boundaries, 0.4)], found.flashes
    return made


@pytest.mark.parametrize("seed", soaked_after(1, [0, 400]))
def test_known_films(seed):
    for name, (told, flashes) in table(seed).items():
        _, cuts, gradual, truth = cases(seed)[name]
        assert flashes == truth, name
        assert [end for start, end in told if end - start < 2] == cuts, name
        soft = [(start, end - 1) for start, end in told if end - start >= 2]
        assert len(soft) == len(gradual), (name, soft)
        assert np.abs(np.array(soft) - gradual).max(initial=0) <= 2, (name, soft)


@pytest.mark.parametrize("speed", [3, 12, 20])  # pixels a picture
def test_a_shot_of_half_a_second_in_another_is_one(speed):
    around = pan(1, 60, 2)
    found = found_in(*thumbs_of(np.clip(np.concatenate([around[:30], pan(2, 10, speed), around[30:]]), 0, 255).astype(np.uint8)))
    assert [(round(one.start * FPS), one.kind) for one in joined(found.boundaries, 0.4)] == [(30, "cut"), (40, "cut")]


@pytest.mark.parametrize("seed", [1, 3, 6, 7])
def test_two_shots_of_a_fifth_of_a_second_in_another_are_two(seed):
    around, one, two = (pan(3 * seed + k, count, step) for k, count, step in ((1, 60, 0.3), (2, 5, 10), (3, 5, 10)))
    found = found_in(*thumbs_of(np.clip(np.concatenate([around[:30], one, two, around[30:]]), 0, 255).astype(np.uint8)))
    assert [(round(one.start * FPS), one.kind) for one in joined(found.boundaries, 0.4)] == [(30, "cut"), (35, "cut"), (40, "cut")]


def test_it_knows_the_same_whatever_the_block_and_only_needs_a_window():
    luma, chroma = thumbs_of(drawn("hard"))
    long = np.concatenate([luma] * 6), np.concatenate([chroma] * 6)
    detector = Detector()
    most = 0
    for at in range(len(long[0])):
        detector.add(at / FPS, long[0][at], long[1][at])
        most = max(most, len(detector._time))
    cuts = [round(one.start * FPS) for one in detector.finish().boundaries if one.score > 0.4]
    assert cuts == [75 * k for k in range(1, 24)]
    assert most < 64 + 4 * 1.2 * FPS


def test_times_are_what_counts_not_numbers_of_pictures():
    luma, chroma = thumbs_of(drawn("dissolve12"))
    times = np.arange(len(luma)) / FPS
    times[30:] += 5.0
    told = list(joined(found_in(luma, chroma, times).boundaries, 0.4))
    assert len(told) == 1
    assert told[0].start == pytest.approx(63 / FPS + 5, abs=0.09)


def test_a_film_that_begins_and_ends_blank():
    luma, _chroma = thumbs_of(np.clip(pan(1, 40, 2), 0, 255).astype(np.uint8))
    blank = np.full((20, 36, 64), 16, np.uint8)
    found = found_in(np.concatenate([blank, luma, blank]))
    assert found.blank_s == pytest.approx(40 / FPS)
    shots = shots_of(found.boundaries, 0.0, found.end, 0.4)
    assert [(round(one["start"] * FPS), round(one["end"] * FPS)) for one in shots] == [(20, 60)]
    assert not found_in(blank).boundaries[0].start
    assert shots_of(found_in(blank).boundaries, 0.0, 0.8, 0.4) == []


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_hardly_any_pictures(count):
    luma, chroma = thumbs_of(np.clip(pan(1, 3), 0, 255).astype(np.uint8))
    found = found_in(luma[:count], chroma[:count])
    assert found.boundaries == []
    assert (found.start is None) == (count == 0)


@pytest.mark.parametrize("shape", [(36, 64), (35, 64), (36, 63), (35, 63)])
def test_the_shift_is_that_of_phase_correlation_whatever_the_size(shape):
    window = np.outer(*(np.hanning(side + 2)[1:-1] for side in shape))
    for pair in np.random.default_rng(0).normal(0, 40, (20, 2, *shape)).astype(np.float32):
        one, two = np.fft.fft2(pair * window)
        product = one.conj() * two
        peak = np.unravel_index(np.fft.ifft2(product / np.abs(product)).real.argmax(), shape)
        expected = tuple(at - side if at > side // 2 else at for at, side in zip(peak, shape, strict=True))
        assert shift(wave(pair[0]), wave(pair[1])) == expected


def test_another_threshold_needs_no_decoding():
    told = [Boundary(1.0, 1.0, "cut", 0.5), Boundary(1.9, 3.1, "dissolve", 0.9), Boundary(3.0, 3.0, "cut", 0.3),
            Boundary(5.0, 5.0, "cut", 1.0)]
    assert [(one["start"], one["end"], one["before"], one["after"]) for one in shots_of(told, 0.0, 6.0, 0.4)] == [
        (0.0, 1.0, "start", "cut"), (1.0, 1.9, "cut", "dissolve"), (3.1, 5.0, "dissolve", "cut"), (5.0, 6.0, "cut", "end")]
    assert [(one["start"], one["end"]) for one in shots_of(told, 0.0, 6.0, 0.95)] == [(0.0, 5.0), (5.0, 6.0)]


# -- the stage ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def films():
    hard = film(drawn("hard")[50:180])
    return Batch(rows=pa.table({"id": ["a", "b", "c"], "source": ["test"] * 3, "bytes": pa.array([hard, b"", b"no film"], pa.binary()),
                                "start_s": [0.0, 0.0, 0.0], "end_s": pa.array([None] * 3, pa.float64())}))


def test_shots_of_a_film(films):
    answer = run_stage(Shots(), films)
    assert [one.partition(":")[0] for one in answer["failed"].column("error")] == ["empty", "not_media"]
    row = answer["out"].rows.to_pylist()[0]
    assert [(one["start"], one["end"], one["before"], one["after"]) for one in row["shots"]] == [
        (0.0, 1.0, "start", "cut"), (1.0, 4.0, "cut", "cut"), (4.0, 5.2, "cut", "end")]
    assert (row["shot_count"], row["flash_count"], row["blank_ratio"]) == (3, 0, 0.0)
    assert [one["kind"] for one in row["boundaries"] if one["score"] > 0.4] == ["cut", "cut"]


def test_only_the_span_of_a_record_is_looked_at(films):
    part = films.take([0]).with_columns({"start_s": pa.array([2.0]), "end_s": pa.array([4.4])})
    row = run_stage(Shots(), part)["out"].rows.to_pylist()[0]
    assert [(one["start"], one["end"]) for one in row["shots"]] == [(2.0, 4.0), (4.0, pytest.approx(4.4))]


def test_the_stage_keeps_the_rules(films):
    check_stage(Shots(), films, skip={"needs"})  # it reads bytes or a path, and a span if there is one


@pytest.mark.parametrize("options", [{"threshold": 0.1}, {"flash": -1}, {"window": 0}])
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Shots(**options)
