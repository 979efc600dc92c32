"""Pictures made for the tests of the scores."""

from __future__ import annotations

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

TEXT = ("the river had been rising for three days when an old ferryman decided that nobody should cross it any more "
        "he tied his boat to stone walked up through village and told people what he saw")
WORDS = TEXT.split()


def texture(height=384, width=512, seed=0):
    """Something like a photograph: blobs of all sizes, the larger the stronger, in colours that go together."""
    rng = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((3, 60), (8, 30), (24, 16), (70, 8)):
        blobs = rng.normal(0, strength, (cells, cells, 3)).astype(np.float32)
        blobs += rng.normal(0, strength, (cells, cells, 1)).astype(np.float32)
        picture += cv2.resize(blobs, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(picture + 120, 0, 255).astype(np.uint8)


def photo(height=384, width=512, seed=0):
    """A texture with things in it that have sharp edges, and some noise."""
    rng, image = np.random.default_rng(seed), texture(height, width, seed)
    for _ in range(25):
        centre = (int(rng.integers(0, width)), int(rng.integers(0, height)))
        axes = (int(rng.integers(8, 70)), int(rng.integers(8, 70)))
        colour = [int(level) for level in rng.integers(0, 256, 3)]
        cv2.ellipse(image, centre, axes, float(rng.uniform(0, 180)), 0, 360, colour, -1, cv2.LINE_AA)
    return noisy(image, 2, seed)


def flat(value, height=384, width=512):
    return np.full((height, width, 3), value, np.uint8)


def noisy(image, sigma, seed=0):
    """With the same Gaussian noise in all channels."""
    noise = np.random.default_rng(seed).normal(0, sigma, image.shape[:2])[..., None]
    return np.clip(np.rint(image + noise), 0, 255).astype(np.uint8)


def blurred(image, sigma):
    return cv2.GaussianBlur(image, (0, 0), sigma)


def as_jpeg(image, quality):
    return cv2.imdecode(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def framed(image, top, bottom, left, right, colour=0):
    return cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(colour,) * 3)


def page(height=800, width=600, size=18, ink=(20, 20, 20), paper=(255, 255, 255)):
    """Lines of text from top to bottom."""
    image = Image.new("RGB", (width, height), paper)
    drawing, font, words = ImageDraw.Draw(image), ImageFont.load_default(size), WORDS * 200
    for top in range(20, height - 20 - size, int(size * 1.5)):
        line = ""
        while drawing.textlength(f"{line} {words[0]}", font=font) < width - 40:
            line = f"{line} {words.pop(0)}"
        drawing.text((20, top), line, fill=ink, font=font)
    return np.asarray(image)


def captioned(image, size=20, lines=2, at_top=False):
    """With white, outlined text at an edge."""
    drawn = Image.fromarray(image)
    drawing, font = ImageDraw.Draw(drawn), ImageFont.load_default(size)
    height = len(image)
    for number in range(lines):
        top = 8 + number * size * 1.3 if at_top else height - 8 - (lines - number) * size * 1.3
        line = " ".join(WORDS[number * 6:number * 6 + 6])
        drawing.text((40, top), line, fill="white", font=font, stroke_width=1, stroke_fill="black")
    return np.asarray(drawn)


def tiled(image, opacity=0.3, across=90, down=50, angle=30):
    """With a word in white all over."""
    height, width = image.shape[:2]
    side = int(np.hypot(height, width)) + 10
    mask = Image.new("L", (side, side))
    drawing, font = ImageDraw.Draw(mask), ImageFont.load_default(22)
    for row, top in enumerate(range(0, side, down)):
        for left in range(0, side, across):
            drawing.text((left + row % 2 * across // 2, top), "SAMPLE", fill=255, font=font)
    top, left = (side - height) // 2, (side - width) // 2
    share = np.asarray(mask.rotate(angle))[top:top + height, left:left + width, None] / 255 * opacity
    return (image * (1 - share) + 255 * share).astype(np.uint8)
