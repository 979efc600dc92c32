"""DNSMOS with models that take means: windows, scales, levels. With the published models it gives the published scores (docs/audio.md)."""

from __future__ import annotations

import numpy as np
import pytest
from curator_audio import Dnsmos
from curator_audio.models.dnsmos import SCALES, WINDOW, mel_bands, mel_levels, windows_of

from curator import Context, CuratorError
from curator.testing import check_stage
from packs.audio.tests.recordings import noise, recordings, sine
from packs.audio.tests.tiny_onnx import mean_model

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    return {"model": mean_model(folder / "p835.onnx", (WINDOW,), 3), "p808": mean_model(folder / "p808.onnx", (900, 120), 1)}


def scores(stage, *samples, rate=16_000):
    stage.setup(Context())
    return stage.process(recordings(*samples, rate=rate)).rows.to_pylist()


def test_raw_answers_are_brought_to_the_scale_of_the_listening_tests(models):
    found, silent, none = scores(Dnsmos(model=models["model"]), np.full(160_000, .5, np.float32), np.zeros(9000, np.float32), None)
    for name, (square, factor, constant) in SCALES.items():
        assert found[name] == pytest.approx(square * .25 + factor * .5 + constant, rel=1e-5)
        assert silent[name] == pytest.approx(constant, rel=1e-5)
        assert none[name] is None


def test_windows_are_averaged(models):
    steps = np.repeat(np.float32([.1, .2, .3, .4]), 3 * 16_000)  # 12 s: windows begin at 0, 1 and 2 s
    found, = scores(Dnsmos(model=models["model"]), steps)
    square, factor, constant = SCALES["dnsmos_ovr"]
    means = np.array([steps[16_000 * at:16_000 * at + WINDOW].mean() for at in range(3)])
    assert found["dnsmos_ovr"] == pytest.approx((square * means ** 2 + factor * means + constant).mean(), rel=1e-4)


@pytest.mark.parametrize(("seconds", "many"), [(.3, 1), (5.0, 1), (9.0, 9), (9.02, 1), (10.0, 1), (10.99, 1), (11.0, 2), (20.5, 11)])
def test_how_many_windows_a_record_has(seconds, many):
    wave = np.arange(round(seconds * 16_000), dtype=np.float32)
    pieces = windows_of(wave)
    assert len(pieces) == many
    assert all(len(piece) == WINDOW for piece in pieces)
    assert (pieces[0][:100] == wave[:100]).all()


def test_a_level_may_be_set_first(models):
    stage = Dnsmos(model=models["model"], normalize=-20)
    loud, quiet, silent = scores(stage, np.full(16_000, .5, np.float32), np.full(16_000, .01, np.float32), np.zeros(16_000, np.float32))
    assert loud["dnsmos_sig"] == pytest.approx(quiet["dnsmos_sig"], rel=1e-5)
    square, factor, constant = SCALES["dnsmos_sig"]
    assert loud["dnsmos_sig"] == pytest.approx(square * .01 + factor * .1 + constant, rel=1e-3)
    assert silent["dnsmos_sig"] == pytest.approx(constant, rel=1e-4)


def test_p808_sees_mel_bands_below_the_loudest(models):
    found, = scores(Dnsmos(**models), sine(1000, 10))
    levels = mel_levels(sine(1000, 10)[:WINDOW - 160])
    assert levels.shape == (900, 120)
    assert levels.max() == pytest.approx(1)
    assert levels.min() >= -1
    assert found["dnsmos_p808"] == pytest.approx(levels.mean(), rel=1e-4)


def test_mel_bands_have_equal_areas_and_their_peaks_in_order():
    bands = mel_bands(120, 321)
    assert bands.shape == (120, 161)
    wide = bands[80:]  # narrow ones fall between bins
    assert wide.sum(axis=1) * 16_000 / 321 == pytest.approx(np.ones(40), rel=.1)
    assert (np.diff(wide.argmax(axis=1)) >= 0).all()


def test_files_that_will_not_do_are_named(models, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    for stage, message in ((Dnsmos(model=str(broken)), "no ONNX model"), (Dnsmos(model=str(tmp_path / "none.onnx")), "no file"),
                           (Dnsmos(model=models["p808"]), "right file")):
        with pytest.raises(CuratorError, match=message):
            stage.setup(Context())
    with pytest.raises(ValueError, match="below full scale"):
        Dnsmos(model="m", normalize=3)


def test_the_stage_keeps_the_rules_of_a_pack(models):
    check_stage(Dnsmos(**models), recordings(noise(.5), None, sine(300, .2)), tolerance=1e-3)
