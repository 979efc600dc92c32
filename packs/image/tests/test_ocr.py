"""Text in images: what is read, where it is, and in which order. The tests that read need the extra `ocr`."""

from __future__ import annotations

import socket
import sys

import numpy as np
import pytest
from curator_image.ocr import Ocr
from curator_image.text_lines import Line, covered, is_shape, read_lines, reading_order
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images


def page(*lines: tuple[str, int, int], width: int = 640, height: int = 320) -> np.ndarray:
    """Dark text on a light picture: words, and where their baseline begins."""
    import cv2

    picture = np.full((height, width, 3), 230, np.uint8)
    for text, x, y in lines:
        cv2.putText(picture, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (30, 20, 120), 3)
    return picture


def box(x: float, y: float, width: float, height: float) -> np.ndarray:
    return np.float32([[x, y], [x + width, y], [x + width, y + height], [x, y + height]])


@pytest.fixture(scope="module")
def engine():
    pytest.importorskip("rapidocr")
    pytest.importorskip("onnxruntime")
    stage = Ocr()
    stage.setup(Context())
    return stage._engine


def test_text_is_read_in_reading_order(engine):
    lines = read_lines(engine, page(("Harbour", 40, 80), ("1887", 400, 84), ("Old Lighthouse", 60, 220)))
    assert [line.text for line in lines] == ["Harbour", "1887", "Old Lighthouse"]
    assert all(line.confidence > 0.8 for line in lines)
    year = lines[1].corners
    assert year[0, 0] == pytest.approx(400 / 640, abs=0.03), "the left end of the word"
    assert 84 / 320 < year[2, 1] < 120 / 320, "its foot is a little below the base line"


def test_text_upside_down_is_read(engine):
    upright = page(("Harbour street", 40, 150))
    assert [line.text for line in read_lines(engine, upright[::-1, ::-1])] == ["Harbour street"]


def test_a_blank_image_has_no_text_and_a_missing_one_null(engine):
    pytest.importorskip("rapidocr")
    out = run_stage(Ocr(boxes=True), images(page(), None, page(("Harbour", 40, 150))))["out"]
    rows = out.rows.select(["ocr_text", "ocr_confidence", "ocr_area_ratio", "ocr_boxes"]).to_pylist()
    assert rows[0] == {"ocr_text": "", "ocr_confidence": None, "ocr_area_ratio": 0.0, "ocr_boxes": []}
    assert set(rows[1].values()) == {None}
    assert rows[2]["ocr_text"] == "Harbour"
    (corners,) = rows[2]["ocr_boxes"]
    width, height = corners[2] - corners[0], corners[5] - corners[1]
    assert rows[2]["ocr_area_ratio"] == pytest.approx(width * height, rel=0.1)


@pytest.mark.slow
def test_a_large_picture_is_read_as_a_small_one_is(engine):
    small = page(("Harbour", 40, 80), ("Old Lighthouse", 60, 220))
    large = np.repeat(np.repeat(small, 4, axis=0), 4, axis=1)
    assert " ".join(line.text for line in read_lines(engine, large)) == "Harbour Old Lighthouse"


@pytest.mark.parametrize("shape", [(1, 1), (1, 6000), (6000, 1), (3, 40), (40, 3), (7, 900)])
def test_no_shape_is_an_error(engine, shape):
    assert read_lines(engine, np.full((*shape, 3), 90, np.uint8)) == []


def test_nothing_is_asked_of_the_network(monkeypatch):
    pytest.importorskip("rapidocr")

    def refuse(*args, **kwargs):
        raise AssertionError(f"a connection is opened: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    out = run_stage(Ocr(), images(page(("Harbour", 40, 150))))["out"]
    assert out.column("ocr_text") == ["Harbour"]


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(CuratorError, match=r"pip install 'curator-image\[ocr\]'"):
        Ocr().setup(Context())


def test_conformance():
    pytest.importorskip("rapidocr")
    pixels = [page(("Old", 10, 40), ("Pier", 30, 110), width=160, height=128), page(width=64, height=64),
              page(("1887", 10, 60), width=160, height=96), None]
    check_stage(Ocr(boxes=True), images(*pixels))


@pytest.mark.parametrize(("fields", "message"), [
    ({"side": 8}, "side is a length in pixels"), ({"score_min": 1.5}, "score_min is a confidence"),
])
def test_a_wrong_parameter_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Ocr(**fields)


def test_boxes_of_a_row_go_from_left_to_right_though_not_quite_level():
    corners = np.stack([box(200, 13, 50, 20), box(10, 10, 50, 20), box(10, 41, 50, 20), box(120, 7, 50, 20)])
    assert reading_order(corners) == [1, 3, 0, 2]


def test_boxes_one_over_the_other_are_two_rows_though_nearly_level():
    assert reading_order(np.stack([box(10, 18, 60, 20), box(20, 10, 60, 20)])) == [1, 0]


numbers = st.integers(0, 400)


@given(st.lists(st.tuples(numbers, numbers, st.integers(1, 200), st.integers(1, 60)), max_size=12, unique_by=lambda b: b[:2]),
       st.randoms(use_true_random=False))
def test_reading_order_has_each_box_once_and_does_not_depend_on_how_they_come(boxes, random):
    corners = np.stack([box(*b) for b in boxes]) if boxes else np.empty((0, 4, 2), np.float32)
    order = reading_order(corners)
    assert sorted(order) == list(range(len(boxes)))
    shuffled = random.sample(range(len(boxes)), len(boxes))
    again = reading_order(corners[shuffled])
    tops = [(corners[i, :, 1].mean(), corners[i, 0, 0]) for i in order]
    if len(set(tops)) == len(tops):
        assert [shuffled[i] for i in again] == order


def test_a_huge_single_letter_is_a_shape():
    assert is_shape(Line(box(0.1, 0.1, 0.5, 0.5), "O", 0.9))
    assert not is_shape(Line(box(0.1, 0.1, 0.2, 0.2), "O", 0.9))
    assert not is_shape(Line(box(0, 0, 1, 1), "10:", 0.9))


def test_area_counts_overlaps_once():
    half = box(0, 0, 1, 0.5)
    assert covered([]) == 0
    assert covered([half]) == pytest.approx(0.5, abs=0.01)
    assert covered([half, half, box(0, 0.25, 1, 0.25)]) == pytest.approx(0.5, abs=0.01)
    assert covered([box(0, 0, 1, 1)]) == 1
