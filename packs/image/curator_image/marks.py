"""Lines of text, and overlays that repeat over the whole picture: what screenshots, captions and watermarks
look like.

Heuristics: they find structures, and do not read. The constants are our own, chosen on 107 ImageNet
photographs, the same with captions and tiled marks drawn over them, and rendered pages; they are pixels of
`Views.grey`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import cv2
import numpy as np

from curator_image.views import Views

TEXT_SIDE_MIN = 32  # pixels of either side below which no line of text is told from anything else
STROKE = 7  # pixels: strokes and the gaps between them are narrower
STROKE_STEP = 50  # levels of 255 by which a stroke stands out at least, where Otsu's threshold is lower
LETTER_GAP = 15  # pixels along a line that join letters to words and words to lines
LINE_HEIGHT_MIN, LINE_HEIGHT_MAX = 4, 0.12  # pixels, share of the picture's height
LINE_LENGTH_MIN, LINE_ASPECT_MIN = 24, 4  # pixels, widths a height: about a word of six letters
LINE_FILL_MIN = 0.55  # share of its box that a line fills
# share of the height at the top and at the bottom where captions, credits and timestamps stand
EDGE_BAND = 0.2

TILING_SIDE = 256  # pixels square to which the picture is brought for the Fourier transform
TILING_SIDE_MIN = 128  # pixels of the shorter side: less shows too few repetitions
FINE = 3  # pixels: what is finer than their mean is detail, where an overlay shows
# levels of 255: an overlay is weak and everywhere, the picture's own edges are strong and few
FINE_CLIP = 3.0
# levels of 255 of white noise that count as there: so that two edges in a smooth picture are no repetition
FLOOR = 0.6
# square roots of the power spectrum: all frequencies count nearly alike, so that repeats are sharp peaks
WHITENING = 3
PEAK_RADIUS = 3  # pixels within which a peak ends; a ridge, from a straight line in the picture, does not
# pixels: nearer to the origin is texture; on the axes lie block grids, fences and blinds
LAG_MIN, AXIS = 12, 3


def text(views: Views) -> dict[str, float | None]:
    """Share of the picture's area in boxes around lines of text, and in those of them at the top and bottom
    edges."""
    grey = views.grey
    if min(grey.shape) < TEXT_SIDE_MIN:
        return {"text_ratio": None, "edge_text_ratio": None}
    boxes = find_lines(grey)
    areas = boxes[:, 2] * boxes[:, 3]
    centres = (boxes[:, 1] + boxes[:, 3] / 2) / grey.shape[0]
    at_edge = np.abs(centres - 0.5) > 0.5 - EDGE_BAND
    return {"text_ratio": float(areas.sum() / grey.size),
            "edge_text_ratio": float(areas[at_edge].sum() / grey.size)}


def find_lines(grey: np.ndarray) -> np.ndarray:
    """Boxes (left, top, width, height) of what looks like an upright line of text, a row each.

    Narrow strokes, dark or bright, stand out from a closing minus an opening along the row; joined along the
    row they are flat, well-filled bars, which other texture seldom makes. The scheme of stroke filter,
    threshold, closing and component shape is that of Wu, Hsieh and Chen 2008, Morphology-based text line
    extraction (Machine Vision and Applications 19), sections 2 and 3.
    """
    along = np.ones((1, STROKE), np.uint8)
    strokes = cv2.subtract(cv2.morphologyEx(grey, cv2.MORPH_CLOSE, along),
                           cv2.morphologyEx(grey, cv2.MORPH_OPEN, along))
    step = max(STROKE_STEP, cv2.threshold(strokes, 0, 1, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[0])
    bars = cv2.threshold(strokes, step, 1, cv2.THRESH_BINARY)[1]
    bars = cv2.morphologyEx(bars, cv2.MORPH_CLOSE, np.ones((1, LETTER_GAP), np.uint8))
    bars = cv2.morphologyEx(bars, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    outlines = cv2.findContours(bars, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]
    boxes = [box for outline in outlines if _is_line(box := cv2.boundingRect(outline), outline, len(grey))]
    return np.array(boxes, np.int64).reshape(-1, 4)


def _is_line(box: Sequence[int], outline: np.ndarray, picture_height: int) -> bool:
    width, height = box[2], box[3]
    return (width >= LINE_LENGTH_MIN and LINE_HEIGHT_MIN <= height <= LINE_HEIGHT_MAX * picture_height
            and width >= LINE_ASPECT_MIN * height
            # it runs through pixels' centres
            and cv2.contourArea(outline) >= LINE_FILL_MIN * (width - 1) * (height - 1))


def tiling(views: Views) -> dict[str, float | None]:
    """How strongly fine detail repeats at some distance, as the tiles of a watermark do."""
    if min(views.grey.shape) < TILING_SIDE_MIN:
        return {"tiling": None}
    return {"tiling": repetition(views.grey)}


def repetition(grey: np.ndarray) -> float:
    """Height of the sharpest peak of the whitened autocorrelation of fine detail, the origin being 1."""
    side = TILING_SIDE
    square = cv2.resize(grey, (side, side), interpolation=cv2.INTER_LINEAR).astype(np.float32)
    detail = np.clip(square - cv2.blur(square, (FINE, FINE)), -FINE_CLIP, FINE_CLIP)
    spectrum = cv2.dft(detail - detail.mean())
    power = np.maximum(cv2.mulSpectrums(spectrum, spectrum, 0, conjB=True), 0) + _floor()
    for _ in range(WHITENING):
        cv2.sqrt(power, power)
    repeats = cv2.idft(power, flags=cv2.DFT_SCALE)
    # the other half is the same, turned by 180 degrees
    half = np.roll(repeats[:side // 2 + 1], side // 2, axis=1)
    return max(0.0, float(_peaks(half).max() / repeats[0, 0]))


@cache
def _floor() -> np.ndarray:
    """The power spectrum of white noise, packed as OpenCV packs spectra: the imaginary parts are 0."""
    point = np.zeros((TILING_SIDE, TILING_SIDE), np.float32)
    point[0, 0] = 1  # its spectrum is 1 at all frequencies
    return cv2.dft(point) * (TILING_SIDE * FLOOR) ** 2


def _peaks(half: np.ndarray) -> np.ndarray:
    """By how much each value exceeds those around it at the radius of a peak; the origin is in the middle of
    the top row."""
    r = PEAK_RADIUS
    rows, columns = half.shape
    around = np.zeros((rows - 2 * r, columns - 2 * r), np.float32)
    for down in (-r, 0, r):
        for right in (-r, 0, r):
            if down or right:
                np.maximum(around, half[r + down:rows - r + down, r + right:columns - r + right], out=around)
    peaks = half[r:-r, r:-r] - around
    middle = columns // 2 - r
    peaks[:LAG_MIN - r + 1, middle - LAG_MIN:middle + LAG_MIN + 1] = 0
    peaks[:max(0, AXIS - r + 1)] = 0
    peaks[:, middle - AXIS:middle + AXIS + 1] = 0
    return peaks
