"""Files of images as their bytes, made for the tests of what reads them."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image


def picture(width=80, height=60, seed=0):
    """A smooth RGB picture whose corners differ, so that turns and flips are seen."""
    y, x = np.mgrid[0:height, 0:width]
    red, green = 255 * x // max(1, width - 1), 255 * y // max(1, height - 1)
    blue = (128 + 100 * np.sin((x + seed * 7) / 9) * np.cos(y / 7)).astype(int)
    return np.stack([red, green, blue], axis=-1).astype(np.uint8)


def saved(image, kind, **options):
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, *chunks, colour=2, depth=8):
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")
