"""Text in images: read by a library that brings its models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curator.errors import CuratorError
from curator.stage import Context, Contract, Stage
from curator.tasks import ImageBatch

LONGEST = 2000  # pixels; lines are cut out and read at up to this size of the picture, as rapidocr does
GRID = 512  # cells a side of the grid on which the area of boxes is counted, so that overlaps count once


@dataclass(frozen=True)
class Line:
    """A line of text. `corners`: 4 x 2, clockwise from the top left of the text, as fractions of width and height."""

    corners: np.ndarray
    text: str
    confidence: float


@dataclass(kw_only=True)
class Ocr(Stage):
    """Read the text in an image (Latin, Chinese and Japanese script) with models that need no download.

    Adds `ocr_text` (its lines in reading order, one below the other; empty where there is none), `ocr_confidence` (float32,
    the mean over the lines, 0 to 1; null without text) and `ocr_area_ratio` (float32, 0 to 1: the share of the image that
    boxes around the text cover). All are null for a row without pixels. Reading order is by rows from the top, each
    from left to right; columns of a page are not told apart.

    `side`: text is looked for in the picture scaled down until its longer side has this many pixels (never up). Text lower
    than about 10 pixels is missed there; a smaller picture is quicker in proportion to its area. `score_min`: lines
    that the model is less sure of are left out; at rapidocr's 0.5 most lines that 0.7 leaves out are a letter seen in a
    texture. `boxes`: add `ocr_boxes` too: for each line of `ocr_text` the x and y of four corners, clockwise from the top
    left of the text, as fractions of width and height.

    Source: PP-OCRv6 small (https://github.com/PaddlePaddle/PaddleOCR) as packaged by rapidocr
    (https://github.com/RapidAI/RapidOCR), both Apache-2.0; the detector's thresholds are rapidocr's.
    Known difference: rapidocr scales small pictures up before it looks for text, which takes four times as long.
    """

    side: int = 960
    score_min: float = 0.7
    boxes: bool = False

    def __post_init__(self) -> None:
        if self.side < 32:
            raise ValueError(f"side is a length in pixels, 32 or more, got {self.side}")
        if not 0 <= self.score_min <= 1:
            raise ValueError(f"score_min is a confidence, 0 to 1, got {self.score_min}")

    def contract(self) -> Contract:
        adds = {"ocr_text": pa.string(), "ocr_confidence": pa.float32(), "ocr_area_ratio": pa.float32()}
        if self.boxes:
            adds["ocr_boxes"] = pa.list_(pa.list_(pa.float32()))
        return Contract(needs={"pixels"}, adds=adds)

    def setup(self, ctx: Context) -> None:
        self._engine = load_engine(self.side, self.score_min, threads=max(1, int(ctx.cpus)))

    def process(self, batch: ImageBatch) -> ImageBatch:
        pages = [None if pixels is None else read_lines(self._engine, pixels) for pixels in batch.pixels or [None] * len(batch)]
        columns = {
            "ocr_text": [None if page is None else "\n".join(line.text for line in page) for page in pages],
            "ocr_confidence": [float(np.mean([line.confidence for line in page])) if page else None for page in pages],
            "ocr_area_ratio": [None if page is None else covered([line.corners for line in page]) for page in pages],
            "ocr_boxes": [None if page is None else [line.corners.ravel() for line in page] for page in pages],
        }
        return batch.with_columns({name: pa.array(columns[name], kind) for name, kind in self.contract().adds.items()})


def load_engine(side: int, score_min: float, threads: int) -> Any:
    """rapidocr with the models in its own folder, loaded.

    The models are given by path, since rapidocr downloads one that it does not find by name.
    """
    try:
        import onnxruntime  # noqa: F401  (a missing one is an error now, not in the first batch)
        import rapidocr
    except ImportError as error:
        raise CuratorError(f"image.ocr needs rapidocr and onnxruntime: pip install 'curator-image[ocr]' ({error})") from error
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
    return [Line(corners[i] / np.float32([width, height]), found.txts[i], float(found.scores[i])) for i in reading_order(corners)]


def shrunk(pixels: np.ndarray) -> np.ndarray:
    """The picture with a longer side of at most `LONGEST`. Done here because rapidocr raises where the shorter side is short."""
    import cv2

    height, width = pixels.shape[:2]
    scale = LONGEST / max(height, width)
    if scale >= 1:
        return pixels
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)


def reading_order(corners: np.ndarray) -> list[int]:
    """Positions of boxes (n x 4 x 2, in pixels) row by row from the top, each row from left to right.

    A box is in the row of the first one above it if their middles are less apart than half the height of the smaller of the two.
    """
    middles, heights = corners[..., 1].mean(axis=1), np.ptp(corners[..., 1], axis=1)
    rows: list[list[int]] = []
    for i in np.lexsort((corners[:, 0, 0], middles)):
        first = rows[-1][0] if rows else None
        if first is not None and middles[i] - middles[first] < min(heights[i], heights[first]) / 2:
            rows[-1].append(int(i))
        else:
            rows.append([int(i)])
    return [i for row in rows for i in sorted(row, key=lambda i: corners[i, 0, 0])]


def covered(boxes: list[np.ndarray]) -> float:
    """The share of the picture that lies in one box or more; corners are fractions of width and height."""
    import cv2

    grid = np.zeros((GRID, GRID), np.uint8)
    for box in boxes:
        cv2.fillPoly(grid, [np.round(box * (GRID - 1)).astype(np.int32)], 1)
    return float(grid.mean())
