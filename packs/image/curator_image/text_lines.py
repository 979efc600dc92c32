"""Lines of text in a picture: the library that reads them, their order, and the area that they cover."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curator.api.errors import CuratorError

EXTRA = "pip install 'curator-image[ocr]'"
LONGEST = 2000  # pixels; lines are cut out and read at up to this size of the picture, as rapidocr does
LONE_AREA_MAX = 0.1  # of the picture; see `is_shape`
GRID = 512  # cells a side of the grid on which the area of boxes is counted, so that overlaps count once


@dataclass(frozen=True)
class Line:
    """A line of text. `corners`: 4 x 2, clockwise from the top left of the text, as fractions of width and
    height."""

    corners: np.ndarray
    text: str
    confidence: float


def load_engine(side: int, score_min: float, threads: int) -> Any:
    """rapidocr with the models in its own folder, loaded.

    The models are given by path, since rapidocr downloads one that it does not find by name.
    """
    try:
        import onnxruntime  # noqa: F401  (a missing one is an error now, not in the first batch)
        import rapidocr
    except ImportError as error:
        raise CuratorError(f"image.ocr needs rapidocr and onnxruntime: {EXTRA} ({error})") from error
    import cv2

    cv2.setNumThreads(1)
    models = Path(rapidocr.__file__).parent / "models"
    engine = rapidocr.RapidOCR(params={
        "Global.log_level": "error",
        "Global.text_score": score_min,
        "Global.use_preprocess_img": False,  # scaling: see `shrunk`
        "Det.model_path": str(models / "PP-OCRv6_det_small.onnx"),
        "Cls.model_path": str(models / "ch_ppocr_mobile_v2.0_cls_mobile.onnx"),
        "Rec.model_path": str(models / "PP-OCRv6_rec_small.onnx"),
        "Det.limit_type": "max",
        "Det.limit_side_len": side,
        "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    })
    sample = np.full((64, 256, 3), 255, np.uint8)
    cv2.putText(sample, "ready", (20, 45), cv2.FONT_HERSHEY_SIMPLEX, 1.4, (0, 0, 0), 3)
    engine(sample)  # it loads each model when it first needs it
    return engine


def read_lines(engine: Any, pixels: np.ndarray) -> list[Line]:
    """The lines of text in an RGB picture, in reading order."""
    picture = shrunk(pixels)
    height, width = picture.shape[:2]
    found = engine(np.ascontiguousarray(picture[..., ::-1]))
    if found.boxes is None:
        return []
    corners = np.asarray(found.boxes, np.float32)
    order, size = reading_order(corners), np.array([width, height], np.float32)
    lines = [Line(corners[i] / size, found.txts[i], float(found.scores[i])) for i in order]
    return [line for line in lines if not is_shape(line)]


def is_shape(line: Line) -> bool:
    """Whether a line is a wheel or a muzzle that looks like a letter: one character over more than a tenth of
    the picture.

    On 123 photos six lines were so, none of them text. They would pass for pictures full of text.
    """
    import cv2

    return len(line.text) == 1 and cv2.contourArea(line.corners) > LONE_AREA_MAX


def shrunk(pixels: np.ndarray) -> np.ndarray:
    """The picture with a longer side of at most `LONGEST`. Done here because rapidocr raises where the
    shorter side is short."""
    from curator_image.pixels import resized, within

    return resized(pixels, within(pixels.shape[1::-1], LONGEST))


def reading_order(corners: np.ndarray) -> list[int]:
    """Positions of boxes (n x 4 x 2, in pixels) row by row from the top, each row from left to right.

    A box is in the row of those above it if its middle and that of the first one are less apart than half the
    height of the smaller of the two, and if it stands beside each of them: tilted lines lie one over the
    other.
    """
    left, right = corners[..., 0].min(axis=1), corners[..., 0].max(axis=1)
    middle, height = corners[..., 1].mean(axis=1), np.ptp(corners[..., 1], axis=1)

    def beside(i: int, j: int) -> bool:
        return min(right[i], right[j]) - max(left[i],
                                             left[j]) < min(right[i] - left[i], right[j] - left[j]) / 2

    rows: list[list[int]] = []
    for i in np.lexsort((left, middle)).tolist():
        row = rows[-1] if rows else []
        level = row and middle[i] - middle[row[0]] < min(height[i], height[row[0]]) / 2
        if level and all(beside(i, j) for j in row):
            row.append(i)
        else:
            rows.append([i])
    return [i for row in rows for i in sorted(row, key=lambda i: left[i])]


def covered(boxes: list[np.ndarray]) -> float:
    """The share of the picture that lies in one box or more; corners are fractions of width and height."""
    import cv2

    grid = np.zeros((GRID, GRID), np.uint8)
    for box in boxes:
        cv2.fillPoly(grid, [np.round(box * (GRID - 1)).astype(np.int32)], 1)
    return float(grid.mean())
