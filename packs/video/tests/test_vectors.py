"""Motion by vectors and levels of sound: known shifts and tones, and nothing where there is nothing to measure."""

from __future__ import annotations

from pathlib import Path

import curator_video
import numpy as np
import pyarrow as pa
import pytest
from curator_video.measures.sound_level import SoundLevel, levels
from curator_video.measures.vectors import Vectors
from curator_video.read.probe import Probe
from hypothesis import given
from hypothesis import strategies as st

from curator.stages.drop import Drop
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, films, pan, sine, sound_only, texture

PLAIN = {"crf": "20", "preset": "veryfast", "bf": "0", "g": "250"}


def coded(step, count=50, size=(288, 512), **how):
    return film(pan(3, count, step, *size), 25, options=PLAIN, **how)


def measured(stage, *contents, **columns):
    return run_stage(stage, films(*contents, **columns))["out"].rows.to_pylist()


def test_a_pan_is_as_long_as_it_is():
    for step in (2, 6):
        row, = measured(Vectors(), coded(step))
        assert row["codec_motion"] == pytest.approx(step / 800, rel=0.06)
        assert row["codec_motion_patch"] == pytest.approx(step / 800, rel=0.06)


def test_a_still_has_none_and_what_moves_in_one_place_leaves_a_patch_still():
    still = [texture(3, 288, 512)] * 50
    moving = [one.copy() for one in still]
    for one, here in zip(moving, pan(5, 50, 4, 288, 200), strict=True):
        one[:, :200] = here
    rows = measured(Vectors(), *(film(one, 25, options=PLAIN) for one in (still, moving)))
    assert rows[0]["codec_motion"] < 1e-6
    assert rows[0]["codec_motion_patch"] == 0
    assert rows[1]["codec_motion"] == pytest.approx(4 / 800 * 200 / 512, rel=0.15)
    assert rows[1]["codec_motion_patch"] < 1e-4


def test_only_the_span_and_its_first_half_count():
    pictures = [*[texture(3, 288, 512)] * 50, *pan(3, 100, 6, 288, 512)]
    spans = {"start_s": pa.array([0.0, 2.0, 0.0]), "end_s": pa.array([4.0, 6.0, 6.0])}
    still, moves, some = (row["codec_motion"] for row in measured(Vectors(fps=10), *[film(pictures, 25, options=PLAIN)] * 3, **spans))
    assert still < 1e-4
    assert moves > 0.005
    assert still < some < moves


def test_what_has_no_vectors_is_null():
    small, vp9 = measured(Vectors(), coded(2, 20, (120, 160)), film(pan(1, 12, 2), 25, codec="libvpx-vp9", container="webm"))
    assert small["codec_motion"] > 0
    assert [small["codec_motion_patch"], vp9["codec_motion"], vp9["codec_motion_patch"]] == [None] * 3


@given(st.floats(0.001, 1), st.lists(st.integers(1, 700), min_size=1, max_size=8))
def test_levels_do_not_depend_on_how_sound_comes(level, cuts):
    tone = np.concatenate([sine(1000, 0.5, level=level)[0], np.zeros(4000, np.float32)])[None]
    found = levels(np.split(tone, np.cumsum(cuts), axis=1), 16_000, -80.0, None)
    assert found["sound_level"] == pytest.approx(20 * np.log10(level / 2 * np.sqrt(2 * 8 / 12)), abs=0.01)
    assert found["sound_peak"] == pytest.approx(20 * np.log10(level), abs=0.01)
    assert found["silence_ratio"] == pytest.approx(1 / 3, abs=1e-3)
    assert levels([tone], 16_000, -80.0, 1.5)["silence_ratio"] == pytest.approx(2 / 3, abs=1e-3)


def test_sound_of_films_and_spans():
    half = np.concatenate([sine(440, 1.0, level=0.25), np.zeros((1, 16_000), np.float32)], axis=1)
    loud = film(pan(1, 50, 2), 25, sound=half)
    silent = film(pan(1, 50, 2), 25, sound=np.zeros((1, 32_000), np.float32))
    spans = {"start_s": pa.array([0.0, 0.0, 1.2, 0.0, 0.0]), "end_s": pa.array([2.0, 0.9, 2.0, 2.0, 2.0])}
    rows = measured(SoundLevel(), loud, loud, loud, silent, film(pan(1, 50, 2), 25), **spans)
    assert rows[0]["silence_ratio"] == pytest.approx(0.5, abs=0.05)
    assert rows[1]["sound_level"] == pytest.approx(-15.05, abs=0.5)
    assert rows[1]["silence_ratio"] == pytest.approx(0, abs=0.02)
    assert rows[2]["silence_ratio"] == rows[3]["silence_ratio"] == 1
    assert [rows[4][name] for name in ("sound_level", "sound_peak", "silence_ratio")] == [None] * 3


def test_the_stages_keep_their_contract():
    given = films(film(pan(1, 20, 2), 25, sound=sine(440, 0.8)), b"no film", sound_only(), None)
    for stage in (Vectors(), SoundLevel()):
        check_stage(stage, given, skip={"needs"})


@pytest.mark.parametrize(("wrong", "told"), [(lambda: Vectors(fps=0), "fps"), (lambda: Vectors(part=1.5), "part"),
                                             (lambda: SoundLevel(silence=3), "silence")])
def test_wrong_parameters(wrong, told):
    with pytest.raises(ValueError, match=told):
        wrong()


def test_nvidias_rules_drop_stills():
    still = film([texture(3, 288, 512)] * 75, 25, options=PLAIN)
    scored = run_stage(Vectors(), run_stage(Probe(), films(still, coded(3, 75), coded(3, 30)))["out"])["out"]
    rules = str(Path(curator_video.__file__).parent / "rules" / "cosmos.yaml")
    dropped = Drop(rules=rules).process(scored)["dropped"]
    assert dict(zip(dropped.column("id"), dropped.column("reason"), strict=True)) == {"0": "still", "2": "too_short"}
