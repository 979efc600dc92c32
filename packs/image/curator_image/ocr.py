"""Text in images: read by a library that brings its models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch
from curator_image.text_lines import EXTRA, covered, load_engine, read_lines


@dataclass(kw_only=True)
class Ocr(Stage):
    """Read the text in an image (Latin, Chinese and Japanese script) with models that need no download.

    Adds `ocr_text` (its lines in reading order, one below the other; empty where there is none),
    `ocr_confidence` (float32, the mean over the lines, 0 to 1; null without text) and `ocr_area_ratio`
    (float32, 0 to 1: the share of the image that boxes around the text cover). All are null for a row without
    pixels. Reading order is by rows from the top, each from left to right; columns of a page are not told
    apart. A single character that fills more than a tenth of the image is taken for a shape and left out.

    `side`: text is looked for in the picture scaled down until its longer side has this many pixels (never
    up). Sharp capitals are found there from 5 pixels of height on; a smaller picture is quicker in proportion
    to its area. `score_min`: lines that the model is less sure of are left out; at rapidocr's 0.5 most lines
    that 0.7 leaves out are a letter seen in a texture. `boxes`: add `ocr_boxes` too: for each line of
    `ocr_text` the x and y of four corners, clockwise from the top left of the text, as fractions of width and
    height.

    Source: PP-OCRv6 small (https://github.com/PaddlePaddle/PaddleOCR) as packaged by rapidocr
    (https://github.com/RapidAI/RapidOCR), both Apache-2.0; the detector's thresholds are rapidocr's.
    Known difference: rapidocr scales small pictures up before it looks for text, which takes four times as
    long.
    """

    side: int = 960
    score_min: float = 0.7
    boxes: bool = False

    requires = dict.fromkeys(("rapidocr", "onnxruntime"), EXTRA)

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
        pages = [None if pixels is None else read_lines(self._engine, pixels) for pixels in batch.pixels
                 or [None] * len(batch)]
        columns = {
            "ocr_text": [None if page is None else "\n".join(line.text for line in page) for page in pages],
            "ocr_confidence": [float(np.mean([line.confidence for line in page])) if page else None
                               for page in pages],
            "ocr_area_ratio": [None if page is None else covered([line.corners for line in page])
                               for page in pages],
            "ocr_boxes": [None if page is None else [line.corners.ravel() for line in page]
                          for page in pages],
        }
        return batch.with_columns({name: pa.array(columns[name], kind)
                                   for name, kind in self.contract().adds.items()})
