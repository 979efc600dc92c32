"""Perceptual hashes: bits that stay nearly the same when a picture is resized, re-encoded or made a little
brighter.

Pure functions over grey pixels, uint8 [height, width]. Each gives the hash of the picture, and as `variants`
asks also that of its mirror image (`flips`: left to right), or those of all eight ways to turn and mirror it
(`all`): uint8 [views, bytes], the picture as it is first; None where the picture has too little structure.
The views are made of the few numbers that a hash compares (mirroring changes the signs of odd frequencies,
turning swaps rows and columns), not by hashing pixels again.

A hash says which numbers are above others. Where they are all nearly equal (a blank page, an even gradient,
fog) that is decided by noise, or is the same for all such pictures; so there is no hash where many of the
numbers lie near what they are compared with (`LEAST_FREQUENCY`, `LEAST_STEP`).
"""

from __future__ import annotations

import functools
from typing import Literal

import cv2
import numpy as np

Variants = Literal["none", "flips", "all"]
VIEWS = {"none": 1, "flips": 2, "all": 8}
PHASH_SIDE, PHASH_COUNT = 32, 8
DHASH_COUNT = 8
DHASH_FEWEST = 4  # steps up, and steps down: an even gradient has only one kind
PDQ_SIDE, PDQ_COUNT = 64, 16
PDQ_LARGEST = 1024  # pixels a side that are filtered; a larger picture is shrunk before
PDQ_SCALE = 90  # sum of gradients for each point of quality (the reference's)
# Grey levels by which two thirds of the frequencies (orthonormal) must differ from their median. Of 107
# photographs all have 9.7 and more, a page of text or a product on white 1.6 to 5; a blank area with noise of
# 5 levels has 0.2, as has an even gradient, and a symmetric logo, of which the odd frequencies are noise,
# 1.0.
LEAST_FREQUENCY = 1.25
# grey levels that half of the steps must have; of the 107 photographs the least even have that
LEAST_STEP = 1.5


def grey(pixels: np.ndarray) -> np.ndarray:
    """Luma of RGB pixels, uint8 (ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B)."""
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)


def phash(grey: np.ndarray, variants: Variants = "none") -> np.ndarray | None:
    """8 bytes a view: which of the 8 x 8 lowest frequencies of the picture at 32 x 32 pixels are above their
    median.

    Bits in rows of frequencies, the lowest first, as `imagehash.phash` prints them. Of 107 photographs 81
    have the same bits as there, the others 1 or 2 other pairs: it shrinks by a Lanczos filter, this by the
    mean of an area. Source: Zauner 2010, Implementation and Benchmarking of Perceptual Image Hash Functions
    (DCT based hash); with the mean grey (the lowest frequency) among the bits, as in imagehash.
    """
    return _above_median(_frequencies(_shrunk(grey, PHASH_SIDE, PHASH_SIDE), PHASH_COUNT, 0), 0, variants)


def dhash(grey: np.ndarray, variants: Variants = "none") -> np.ndarray | None:
    """8 bytes a view: where the picture at 9 x 8 pixels gets lighter from left to right, row by row.

    A picture on an even background (a product on white) has too few steps: no hash. About 6 bits of 64 are
    not those of `imagehash.dhash`, which shrinks by a Lanczos filter. Source: Krawetz 2013, Kind of Like
    That, https://www.hackerfactor.com/blog/index.php?/archives/529-Kind-of-Like-That.html
    """
    grid = _shrunk(grey, DHASH_COUNT + 1, DHASH_COUNT).astype(np.int16)
    steps = np.diff(grid, axis=1)
    fewest = min(np.count_nonzero(steps > 0), np.count_nonzero(steps < 0))
    if np.median(np.abs(steps)) < LEAST_STEP or fewest < DHASH_FEWEST:
        return None
    views = [steps, -steps[:, ::-1]]
    if variants == "all":
        turned = np.diff(_shrunk(grey, DHASH_COUNT, DHASH_COUNT + 1).T.astype(np.int16), axis=1)
        views = [view for one in (steps, turned) for upright in (one, one[::-1])
                 for view in (upright, -upright[:, ::-1])]
    lighter = np.stack(views[:VIEWS[variants]]) > 0
    return np.packbits(lighter.reshape(len(lighter), -1), axis=1)


def pdq(grey: np.ndarray, variants: Variants = "none") -> tuple[np.ndarray | None, int]:
    """32 bytes a view: which of 16 x 16 frequencies of the picture at 64 x 64 pixels are above their median;
    and its quality.

    Bytes in the order in which the reference prints them, the highest frequency first. Of 107 photographs up
    to 1,024 pixels wide, hashes of the reference differ in 0.3 bits of 256, in 2 at most, and qualities in
    none; a larger picture, which is shrunk to that first here, differs more. Source: Facebook 2019, The
    TMK+PDQF Video-Hashing Algorithm and the PDQ Image-Hashing Algorithm;
    https://github.com/facebook/ThreatExchange/tree/main/pdq (the reference).
    """
    small = tent(grey)
    hashes = _above_median(_frequencies(small, PDQ_COUNT, 1), 1, variants, last_first=True)
    return hashes, pdq_quality(small)


def pdq_quality(small: np.ndarray) -> int:
    """0 (blank) to 100, from the gradients of the picture at 64 x 64 pixels; those below 2.55 grey levels do
    not count.

    The authors' tools match frames of videos that have 50 and more (VPDQ_CONFIDENT_QUALITY_THRESHOLD).
    """
    steps = (np.abs(np.diff(small, axis=axis)) * np.float32(100 / 255) for axis in (0, 1))
    return min(sum(int(step.astype(np.int32).sum()) for step in steps) // PDQ_SCALE, 100)


def tent(grey: np.ndarray) -> np.ndarray:
    """The picture at 64 x 64 pixels, float32: two box filters, each half as wide as a pixel of the result,
    then the pixels at the middles. So the result hardly depends on how the picture was resized before."""
    height, width = (min(side, PDQ_LARGEST) for side in grey.shape)
    if (height, width) != grey.shape:
        grey = _shrunk(grey, width, height)
    window = [-(-side // (2 * PDQ_SIDE)) for side in (width, height)]
    anchor = [(size - 1) // 2 for size in window]
    for _ in range(2):
        grey = cv2.boxFilter(grey, cv2.CV_32F, window, anchor=anchor, borderType=cv2.BORDER_REFLECT)
    rows, columns = ((2 * np.arange(PDQ_SIDE) + 1) * side // (2 * PDQ_SIDE) for side in (height, width))
    return grey[rows[:, None], columns]


def _shrunk(grey: np.ndarray, width: int, height: int) -> np.ndarray:
    return cv2.resize(grey, (width, height), interpolation=cv2.INTER_AREA)


def _frequencies(small: np.ndarray, count: int, lowest: int) -> np.ndarray:
    """The frequencies `lowest` to `lowest + count - 1` of a square, down and along: of its discrete cosine
    transform."""
    cosines = _cosines(count, len(small), lowest)
    return cosines @ small.astype(np.float32) @ cosines.T


@functools.cache
def _cosines(count: int, size: int, lowest: int) -> np.ndarray:
    frequency, place = np.arange(lowest, lowest + count)[:, None], 2 * np.arange(size) + 1
    # The mean is not scaled down as in an orthonormal transform: imagehash compares it so.
    return (np.sqrt(2 / size) * np.cos(np.pi / (2 * size) * frequency * place)).astype(np.float32)


def _above_median(found: np.ndarray, lowest: int, variants: Variants,
                  last_first: bool = False) -> np.ndarray | None:
    """For each view the bits of the frequencies that are above their median; None where a third of them are
    near it."""
    views = (found, found.T) if variants == "all" else (found,)
    values = np.concatenate([view * _signs(len(found), lowest, variants)
                             for view in views]).reshape(-1, found.size)
    lower = found.size // 2 - 1  # what is above the lower of two middle values is above their mean
    median = np.partition(values, lower, axis=1)[:, lower:lower + 1]
    if np.partition(np.abs(values[0] - median[0]), found.size // 3)[found.size // 3] < LEAST_FREQUENCY:
        return None
    bits = values > median
    return np.packbits(bits[:, ::-1] if last_first else bits, axis=1)


@functools.cache
def _signs(count: int, lowest: int, variants: Variants) -> np.ndarray:
    """What to multiply frequencies by: as it is, mirrored, upside down, both; float32 [views, count,
    count]."""
    odd = np.where(np.arange(lowest, lowest + count) % 2, np.float32(-1), np.float32(1))
    even = np.ones(count, np.float32)
    return np.stack([np.outer(down, along) for down in (even, odd)
                     for along in (even, odd)])[:VIEWS[variants]]
