"""Faces: found where one is drawn, in coordinates of the image as it is displayed, and blurred where asked."""

from __future__ import annotations

import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_image.faces import SMALLEST, Faces, blurred
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import InputError
from curator.testing import check_stage, run_stage
from packs.image.tests import tiny_yunet
from packs.image.tests.drawn_faces import scene
from packs.image.tests.image_batches import sized


def inside(box, face):
    """The middle of a box lies in the middle of the drawn face, and the box has about its size."""
    (x, y, width, height), (left, top, side) = box, face
    assert abs(x + width / 2 - left - side / 2) < side / 6
    assert abs(y + height / 2 - top - side / 2) < side / 6
    assert 0.5 * side < width < 1.1 * side


def test_drawn_faces_are_found_the_largest_first():
    faces = [(220, 40, 160), (30, 90, 120)]
    found = run_stage(Faces(), sized(scene(*faces), scene(), None))["out"]
    assert found.column("face_count") == [2, 0, None]
    assert found.column("face_boxes")[1:] == [[], None]
    assert found.rows.schema.field("face_boxes").type == pa.list_(pa.list_(pa.int32()))
    for box, face in zip(found.column("face_boxes")[0], faces, strict=True):
        inside(box, face)


def test_boxes_are_those_of_the_image_as_it_is_displayed():
    face = (100, 60, 160)
    found = run_stage(Faces(), sized(scene(face), sizes=[(900, 1600)]))["out"]
    (x, y, width, height), = found.column("face_boxes")[0]
    inside((x / 4, y / 3, width / 4, height / 3), face)
    assert x + width <= 1600


def test_large_images_are_searched_at_a_smaller_size():
    face = (400, 200, 480)
    found = run_stage(Faces(), sized(scene(face, height=900, width=1200)))["out"]
    inside(*found.column("face_boxes")[0], face)


@pytest.mark.parametrize(("size_min", "count"), [(0.0, 1), (0.3, 1), (0.6, 0)])
def test_faces_below_the_smallest_size_do_not_count(size_min, count):
    assert run_stage(Faces(size_min=size_min), sized(scene((100, 60, 160))))["out"].column("face_count") == [count]


def test_a_face_is_blurred_and_the_rest_stays():
    pixels = scene((200, 60, 160), (20, 100, 100))
    pixels[250:, :50] = 7
    pixels.flags.writeable = False  # as the engine hands it over
    before = pixels.copy()
    found = run_stage(Faces(blur=True), sized(pixels, scene(), None))["out"]
    assert found.column("face_count") == [2, 0, None]
    assert np.array_equal(pixels, before)
    shown, empty, none = found.pixels
    assert none is None
    assert np.array_equal(empty, scene())
    away = np.ones(shown.shape[:2], bool)
    for x, y, width, height in found.column("face_boxes")[0]:
        margin = round(0.1 * np.hypot(width, height))
        away[max(0, y - margin):y + height + margin, max(0, x - margin):x + width + margin] = False
    assert np.array_equal(shown[away], pixels[away])
    for x, y, width, height in found.column("face_boxes")[0]:
        face, before = (image[y:y + height, x:x + width].astype(int) for image in (shown, pixels))
        assert np.abs(np.diff(face, axis=0)).max() < np.abs(np.diff(before, axis=0)).max() / 2


BOXES = st.lists(st.tuples(st.integers(0, 39), st.integers(0, 29), st.integers(1, 40), st.integers(1, 30)), max_size=3)


@given(BOXES, st.integers(0, 1000))
def test_nothing_outside_of_boxes_and_their_margins_changes(boxes, seed):
    boxes = [(x, y, min(w, 40 - x), min(h, 30 - y)) for x, y, w, h in boxes]
    pixels = np.random.Generator(np.random.PCG64(seed)).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    shown, away = blurred(pixels, boxes), np.ones((30, 40), bool)
    for x, y, w, h in boxes:
        margin = round(0.1 * np.hypot(w, h))
        away[max(0, y - margin):y + h + margin, max(0, x - margin):x + w + margin] = False
    assert np.array_equal(shown[away], pixels[away])


def test_a_blurred_box_has_few_values():
    pixels = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (160, 160, 3), dtype=np.uint8)
    shown = blurred(pixels, [(0, 0, 160, 160)])
    means = pixels.reshape(8, 20, 8, 20, 3).mean(axis=(1, 3))
    assert np.abs(cv2.resize(shown, (8, 8), interpolation=cv2.INTER_AREA) - means).max() < 12
    assert np.abs(np.diff(shown.astype(int), axis=1)).max() < 6  # of noise that had steps of up to 255


BRIGHT = (slice(64, 96), slice(128, 160))


@pytest.fixture
def yunet_file(tmp_path):
    path = tmp_path / "tiny.onnx"
    path.write_bytes(tiny_yunet.model())
    return str(path)


def test_a_model_says_where_faces_are(yunet_file):
    pixels = np.zeros((200, 300, 3), np.uint8)
    pixels[BRIGHT] = 255
    pixels[128:160, :32] = 255, 130, 130  # two thirds as bright
    found = run_stage(Faces(model=yunet_file), sized(pixels, sizes=[(400, 600)]))["out"]
    assert found.column("face_boxes")[0] == [[256, 128, 64, 64]]
    found = run_stage(Faces(model=yunet_file, score_min=0.5), sized(pixels))["out"]
    assert found.column("face_boxes")[0] == [[0, 128, 32, 32], [128, 64, 32, 32]]
    assert run_stage(Faces(model=yunet_file, size_min=0.2), sized(pixels))["out"].column("face_count") == [0]


def test_a_model_that_is_missing_or_no_model_is_told(tmp_path):
    with pytest.raises(InputError, match=r"no face model .*OpenCV Zoo"):
        run_stage(Faces(model=str(tmp_path / "none.onnx")), sized(scene()))
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(InputError, match="cannot read"):
        run_stage(Faces(model=str(tmp_path / "text.onnx")), sized(scene()))


@pytest.mark.parametrize("shape", [(1, 1), (SMALLEST - 1, 400), (3, 2000), (2000, 3)])
def test_images_too_small_for_a_face_have_none(shape, yunet_file):
    for stage in (Faces(size_min=0, blur=True), Faces(size_min=0, model=yunet_file)):
        found = run_stage(stage, sized(np.zeros((*shape, 3), np.uint8)))["out"]
        assert found.column("face_count") == [0]


@pytest.mark.parametrize("blur", [False, True])
def test_the_stage_keeps_the_rules(blur):
    check_stage(Faces(blur=blur), sized(scene((100, 60, 160)), None, scene(), scene((200, 60, 160), (20, 100, 100))))


@pytest.mark.parametrize("parameters", [{"score_min": 1.5}, {"size_min": 1.0}, {"size_min": -0.1}])
def test_nonsense_is_refused(parameters):
    with pytest.raises(ValueError, match="got"):
        Faces(**parameters)
