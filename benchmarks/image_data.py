"""Photographs for a benchmark: crops of those in a folder, or made ones with the spectrum of photographs. All different."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def make(folder: Path, count: int, size: tuple[int, int], photos: Path | None = None, seed: int = 1) -> Path:
    """`count` JPEG files of this width and height in a folder, unless they are there."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    given = sorted(p for p in photos.rglob("*") if p.suffix.lower() in SUFFIXES) if photos else []
    given = [image for p in given if (image := cv2.imread(str(p))) is not None]
    if photos and not given:
        raise SystemExit(f"there is no photograph in {photos}")
    for number in range(count):
        image = crop(given[number % len(given)], size, random) if given else natural(size, random)
        quality = int(random.integers(80, 95))
        cv2.imwrite(str(folder / f"{number:06d}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return folder


def crop(image: np.ndarray, size: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    """A part of an image, four fifths of it or more, in this width and height."""
    share = random.uniform(0.8, 1.0)
    height, width = (max(8, int(side * share)) for side in image.shape[:2])
    top, left = (int(random.integers(0, have - part + 1)) for have, part in zip(image.shape, (height, width), strict=False))
    return cv2.resize(image[top:top + height, left:left + width], size, interpolation=cv2.INTER_CUBIC)


def natural(size: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    """Noise whose amplitude falls with its frequency, as in photographs, in three correlated channels, and some shapes.

    Source: Field, Relations between the statistics of natural images and the response properties of cortical cells, JOSA A 1987.
    """
    width, height = size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1.0
    spectra = [np.fft.rfft2(random.standard_normal((height, width))) / frequency for _ in range(3)]
    planes = [np.fft.irfft2(spectrum, s=(height, width)) for spectrum in spectra]
    image = np.stack([planes[0] + 0.3 * plane for plane in planes], axis=-1)
    image = np.clip(image / image.std() * 45 + 118, 0, 255).astype(np.uint8)
    for _ in range(6):
        center = tuple(int(random.integers(0, side)) for side in size)
        axes = tuple(int(random.integers(side // 20 + 1, side // 4 + 2)) for side in size)
        colour = tuple(int(c) for c in random.integers(0, 256, 3))
        shape = cv2.ellipse(image.copy(), center, axes, float(random.uniform(0, 180)), 0, 360, colour, -1, cv2.LINE_AA)
        image = cv2.addWeighted(shape, 0.7, image, 0.3, 0)
    return image
