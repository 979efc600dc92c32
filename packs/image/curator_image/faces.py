"""Faces in images: how many, where, and made unrecognizable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import InputError
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch

CASCADE = "haarcascade_frontalface_alt2.xml"
# Of 113 photographs with about 16 faces, at four sizes each, the cascade marks 30 times a face and 3 times
# something else with these; with 4 neighbours 37 times a face and 15 times something else.
SCALE_STEP, NEIGHBORS = 1.1, 6
# pixels of the longer side that is searched; smaller faces than the cascade's 20 pixels are not found anyway
WORKING_SIDE = 640
SMALLEST = 20
OVERLAP = 0.3  # of two boxes, above which the model's better one stays (OpenCV's own default for YuNet)
MOST = 5000  # candidates that the model looks at (likewise)
# of the box's diagonal, that is blurred around it (Yang et al. 2022 take as much of its longer side)
MARGIN = 0.1
TILES = 8  # values a side that are left of a blurred face

Detect = Callable[[np.ndarray, int], list[list[float]]]


@dataclass(kw_only=True)
class Faces(Stage):
    """Find faces, and blur them if asked.

    Adds `face_count` (int32) and `face_boxes` (a list of [x, y, width, height] in pixels of the image as it
    is displayed, before any reduction: int32; the largest first); null where the image is not decoded, 0 and
    an empty list where there is no face.

    `blur`: leave of each face, and a tenth around it, 8 x 8 smoothed values in `pixels`: one sees that it is
    a face, not whose. It is no protection from a program that compares it with a list of suspects (McPherson
    et al. 2016), and faces that are not found stay as they are. `model`: a YuNet file on each machine
    (face_detection_yunet_2023mar.onnx of the OpenCV Zoo), made to find turned and partly hidden faces too;
    without, those seen from the front are found, about half of all in photographs, and of ten boxes one is no
    face. `score_min`: of the model, 0 to 1. `size_min`: the smallest face, as a share of the shorter side.

    Source: Viola and Jones 2001 (boosted cascades, as shipped with OpenCV); Wu et al. 2023, YuNet; Yang et
    al. 2022, A Study of Face Obfuscation in ImageNet (the margin); McPherson et al. 2016, Defeating Image
    Obfuscation with Deep Learning.
    """

    blur: bool = False
    model: str | None = None
    score_min: float = 0.7
    size_min: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.score_min <= 1:
            raise ValueError(f"score_min is between 0 and 1, got {self.score_min}")
        if not 0 <= self.size_min < 1:
            raise ValueError(f"size_min is a share of the shorter side, 0 to 1, got {self.size_min}")

    def contract(self) -> Contract:
        adds: dict[str, Any] = {"face_count": pa.int32(), "face_boxes": pa.list_(pa.list_(pa.int32()))}
        return Contract(needs={"pixels", "width", "height"},
                        adds=adds | ({"pixels": None} if self.blur else {}))

    def setup(self, ctx: Context) -> None:
        import cv2

        cv2.setNumThreads(1)
        self._detect = cascade() if self.model is None else yunet(self.model, self.score_min)

    def process(self, batch: ImageBatch) -> ImageBatch:
        boxes: list[list[list[int]] | None] = []
        shown: list[np.ndarray | None] = []
        sizes = zip(batch.rows.column("width").to_pylist(), batch.rows.column("height").to_pylist(),
                    strict=True)
        for pixels, (width, height) in zip(batch.pixels or [None] * len(batch), sizes, strict=True):
            found = [] if pixels is None else find(self._detect, pixels, self.size_min)
            shown.append(blurred(pixels, found) if pixels is not None and self.blur and found else pixels)
            boxes.append(None if pixels is None else _enlarged(found, pixels.shape, width, height))
        columns = {"face_count": pa.array([None if found is None else len(found) for found in boxes],
                                          pa.int32()),
                   "face_boxes": pa.array(boxes, pa.list_(pa.list_(pa.int32())))}
        batch = batch.with_columns(columns)
        return batch.with_payloads(pixels=shown) if self.blur and batch.pixels is not None else batch


def cascade() -> Detect:
    """A detector of faces seen from the front, by the boosted cascade that comes with OpenCV."""
    import cv2
    from cv2.data import haarcascades

    classifier = cv2.CascadeClassifier(haarcascades + CASCADE)

    def detect(pixels: np.ndarray, smallest: int) -> list[list[float]]:
        smallest = max(SMALLEST, smallest)
        grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        if min(grey.shape) < smallest:
            return []
        found = classifier.detectMultiScale(grey, scaleFactor=SCALE_STEP, minNeighbors=NEIGHBORS,
                                            minSize=(smallest, smallest))
        return [[float(value) for value in box] for box in found]

    return detect


def yunet(model: str, score_min: float) -> Detect:
    """A detector by a YuNet model.

    Raises:
        InputError: there is no such file, or OpenCV cannot read it as such a model.
    """
    import cv2

    if not Path(model).is_file():
        raise InputError(f"there is no face model {model}: get face_detection_yunet_2023mar.onnx from the "
                         "OpenCV Zoo, or leave "
                         "out model")
    try:
        detector = cv2.FaceDetectorYN.create(model, "", (WORKING_SIDE, WORKING_SIDE), score_min,
                                             OVERLAP, MOST)
    except cv2.error as error:
        raise InputError(f"OpenCV cannot read {model} as a YuNet face model: {error}") from error

    def detect(pixels: np.ndarray, smallest: int) -> list[list[float]]:
        detector.setInputSize(pixels.shape[1::-1])
        found = detector.detect(cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1]
        return [] if found is None else [face[:4].tolist() for face in found if min(face[2:4]) >= smallest]

    return detect


def find(detect: Detect, pixels: np.ndarray, size_min: float) -> list[list[int]]:
    """Boxes of faces in these pixels, [x, y, width, height], within the image, the largest first."""
    from curator_image.pixels import resized, within

    height, width = pixels.shape[:2]
    size = within((width, height), WORKING_SIDE)
    boxes = [_scaled(box, width / size[0], height / size[1], width, height)
             for box in detect(resized(pixels, size), round(size_min * min(size)))]
    return sorted((box for box in boxes if box[2] and box[3]), key=lambda box: (-box[2] * box[3], box))


def blurred(pixels: np.ndarray, boxes: Sequence[Sequence[int]]) -> np.ndarray:
    """A copy of the pixels in which the boxes, grown by a tenth of their diagonal, keep 8 x 8 values,
    smoothed."""
    import cv2

    shown = pixels.copy()
    for x, y, width, height in boxes:
        margin = round(MARGIN * float(np.hypot(width, height)))
        face = shown[max(0, y - margin):y + height + margin, max(0, x - margin):x + width + margin]
        tiles = cv2.resize(face, (TILES, TILES), interpolation=cv2.INTER_AREA)
        face[:] = cv2.resize(tiles, face.shape[1::-1], interpolation=cv2.INTER_LINEAR)
    return shown


def _enlarged(boxes: Sequence[Sequence[int]], shape: Sequence[int], width: int | None,
              height: int | None) -> list[list[int]]:
    """Boxes in pixels of an image that was reduced to `shape`, in those of the image itself."""
    width, height = width or shape[1], height or shape[0]
    return [_scaled(box, width / shape[1], height / shape[0], width, height) for box in boxes]


def _scaled(box: Sequence[float], across: float, down: float, width: int, height: int) -> list[int]:
    """A box by so much larger, rounded, and cut off at the edges of the image."""
    x, y, w, h = box
    left, top = (min(max(round(at), 0), end) for at, end in ((x * across, width), (y * down, height)))
    right, bottom = (min(max(round(at), 0), end)
                     for at, end in (((x + w) * across, width), ((y + h) * down, height)))
    return [left, top, right - left, bottom - top]
