"""audio.waveform: a picture that other programs read, with sound where it is, spans, clipping and the level."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from curator_audio.sound.waveform import CLIPPED, COLOURS, LEVEL, PEAKS, POWER, SPEECH, Waveform, draw, png
from hypothesis import given, settings
from hypothesis import strategies as st

from curator.testing import check_stage, run_stage
from packs.audio.tests.recordings import noise, recordings, sine

SPANS = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64())]))


def spans(*rows):
    return pa.array([None if row is None else [{"start": a, "end": b} for a, b in row] for row in rows], SPANS)


@pytest.mark.parametrize("parameters", [{}, {"speech": "speech", "width": 100, "height": 40, "column": "picture"}])
def test_it_keeps_its_contract(parameters):
    batch = recordings(noise(), None, np.stack([noise(), sine(440)]), np.zeros(8000), np.zeros(0), sine(3, 0.001))
    check_stage(Waveform(**parameters), batch.with_columns(
        {"speech": spans([(0.2, 0.5)], None, [], [(0.0, 0.5)], None, [(0.0, 9.0)])}))


def test_the_file_is_a_png_of_the_picture():
    image = pytest.importorskip("PIL.Image")
    picture = draw(noise(1.0, level_db=-10)[None], 1.0, (480, 96))
    shown = image.open(io.BytesIO(png(picture)))
    assert (shown.format, shown.size) == ("PNG", (480, 96))
    assert np.array_equal(np.asarray(shown.convert("RGB")), np.array(COLOURS, np.uint8)[picture])
    found = run_stage(Waveform(), recordings(noise(1.0, level_db=-10), None))["out"].column("waveform")
    assert found == [png(picture), None]
    assert len(found[0]) < 5000


def test_it_is_shown_in_the_report():
    assert Waveform(column="picture").example_columns() == {"picture": "image"}


def test_sound_is_where_it_is():
    x = np.concatenate([np.zeros(16_000), noise(1.0, level_db=-12), np.zeros(16_000)]).astype(np.float32)
    picture = draw(x[None], 3.0, (300, 96))
    inked = np.isin(picture, (PEAKS, POWER)).any(axis=0)
    assert inked[101:199].all()
    assert not inked[:100].any()
    assert not inked[201:].any()
    rows = np.flatnonzero((picture[:, 150] == PEAKS) | (picture[:, 150] == POWER))
    assert rows.max() == pytest.approx(91 / 2 * (1 - x[24_000:24_160].min()), abs=1)  # the line of the level covers the top


def test_the_level_is_a_line():
    for level in (-50, -30, -3):
        picture = draw(sine(500, 2.0, amplitude=10 ** ((level + 3.01) / 20))[None], 2.0, (200, 64))
        assert np.abs(np.argmax(picture == LEVEL, axis=0) - -level / 60 * 59).max() <= 1


def test_spans_and_clipping_and_channels():
    x = np.clip(sine(100, 2.0, amplitude=2.0), -1, 1)
    quiet = 0.01 * x
    picture = draw(np.stack([x, quiet, x]), 2.0, (200, 100), [{"start": 0.5, "end": 1.0}, {"start": 1.999, "end": 99.0}])
    green = (picture == SPEECH).any(axis=0)
    assert green[50:100].all()
    assert green[199]
    assert not green[:50].any()
    assert not green[100:199].any()
    assert (picture[:10] == CLIPPED).any()
    assert not (picture[48:] == CLIPPED).any()


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 4000), st.integers(16, 200), st.integers(16, 60), st.floats(-2, 2, width=32))
def test_anything_can_be_drawn(channels, count, width, height, value):
    x = np.full((channels, count), value, np.float32)
    x[:, ::3] = -value
    assert draw(x, count / 8000, (width, height)).shape == (height, width)
    x[0, 0] = np.nan
    assert draw(x, count / 8000, (width, height)).max() < len(COLOURS)


@pytest.mark.parametrize("wrong", [{"width": 5}, {"height": 5000}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is 16 to 4096"):
        Waveform(**wrong)
