"""What an image file says of itself before its pixels are decoded: format, size, mode, orientation, profile,
quality."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image
from PIL.AvifImagePlugin import SUPPORTED as HAS_AVIF
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from curator_image.structure import (
    BadImage,
    check_jpeg,
    check_png,
    check_webp,
    count_gif_frames,
    count_tiff_pages,
)

ORIENTATION = 274  # the EXIF tag; values 1 to 8, CIPA DC-008, 4.6.4 A
FRAMES_MOST = 2**31 - 1  # what the column `frames` can hold

# Each reader is called by itself: `Image.open` would try every format that Pillow knows, PostScript among
# them, which it has Ghostscript run.
READERS: dict[str, Callable[[io.BytesIO], ImageFile]] = {
    "jpeg": JpegImageFile, "png": PngImageFile, "webp": WebPImageFile, "gif": GifImageFile,
    "bmp": BmpImageFile,
    "tiff": TiffImageFile, "ppm": PpmImageFile, **({"avif": AvifImageFile} if HAS_AVIF else {}),
}
NAMES = {"jpeg": "JPEG", "png": "PNG", "webp": "WebP", "gif": "GIF", "bmp": "BMP", "tiff": "TIFF",
         "ppm": "PPM",
         "avif": "AVIF"}
SIGNATURES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png", b"GIF87a": "gif", b"GIF89a": "gif",
              b"BM": "bmp",
              b"II*\0": "tiff", b"MM\0*": "tiff", b"II+\0": "tiff", b"MM\0+": "tiff",
              **{b"P%d%c" % (kind, space): "ppm" for kind in range(1, 7) for space in b" \t\r\n#"},
              b"Pf\n": "ppm"}
AVIF_BRANDS, HEIC_BRANDS = {b"avif", b"avis"}, {b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"}
OTHER_IMAGES = {b"8BPS": "PSD", b"\0\0\1\0": "ICO", b"\xff\x0a": "JPEG XL", b"\0\0\0\x0cJXL ": "JPEG XL",
                b"\0\0\0\x0cjP  ": "JPEG 2000", b"\xff\x4f\xff\x51": "JPEG 2000",
                b"\x76\x2f\x31\x01": "OpenEXR"}
NO_IMAGES = {b"%PDF": "PDF", b"%!PS": "PostScript", b"\xc5\xd0\xd3\xc6": "PostScript", b"PK\3\4": "ZIP",
             b"\x1f\x8b": "gzip", b"\x1aE\xdf\xa3": "Matroska", b"RIFF": "RIFF", b"ID3": "MP3"}

# Luminance quantisation in natural order: ITU-T T.81, table K.1.
LUMINANCE = np.array([
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99])


@dataclass(frozen=True)
class Header:
    """What is known before decoding. `image`: Pillow's, not loaded. `quality`: None if it is no JPEG."""

    format: str
    image: ImageFile
    frames: int
    quality: float | None


def read_header(kind: str, data: bytes, max_pixels: int) -> Header:
    """The header of an image file of a format that `sniff` told.

    Raises:
        BadImage: it is not whole, or of more than `max_pixels` pixels. Pillow raises more than that for a
        broken one.
    """
    frames = _check_structure(kind, data)
    if frames == 0:
        raise BadImage(f"no pixels: a {NAMES[kind]} without a picture")
    try:
        image = READERS[kind](io.BytesIO(data))
    except Image.DecompressionBombError as error:
        raise BadImage(f"too many pixels: {error}") from error
    check_pixels(image.size, max_pixels)
    if frames is None:
        frames = min(getattr(image, "n_frames", 1), FRAMES_MOST)
    quality = jpeg_quality(_luminance_table(image)) if kind == "jpeg" else None
    return Header(kind, image, frames, quality)


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
    """Raise BadImage for an image without area, or with more pixels than may be decoded."""
    width, height = size
    if width < 1 or height < 1:
        raise BadImage(f"no pixels: {width} x {height}")
    if width * height > max_pixels:
        raise BadImage(f"too many pixels: {width} x {height} (max_pixels {max_pixels:,})")


def sniff(data: bytes) -> str:
    """The format by the first bytes: a key of READERS.

    Raises:
        BadImage: it is another format or no image; says what it looks like.
    """
    if not data:
        raise BadImage("empty file")
    for signature, kind in SIGNATURES.items():
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        if brand in AVIF_BRANDS and "avif" in READERS:
            return "avif"
        if brand in AVIF_BRANDS | HEIC_BRANDS:
            raise BadImage(f"unsupported image format ({'AVIF' if brand in AVIF_BRANDS else 'HEIC'})")
        raise BadImage("not an image (looks like MP4)")
    for signature, name in OTHER_IMAGES.items():
        if data.startswith(signature):
            raise BadImage(f"unsupported image format ({name})")
    likeness = _looks_like(data)
    if likeness == "SVG":
        raise BadImage("unsupported image format (SVG)")
    raise BadImage(f"not an image (looks like {likeness})" if likeness else "not an image (unknown content)")


def _looks_like(data: bytes) -> str | None:
    """What bytes that are no pixels look like, None if nobody can say."""
    for signature, name in NO_IMAGES.items():
        if data.startswith(signature):
            return name
    start = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "HTML"
    if b"<svg" in start:
        return "SVG"
    if start.startswith(b"<!--") or b"<html" in start:
        return "HTML"
    if start.startswith(b"<?xml"):
        return "XML"
    return "text" if start and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start) else None


def _check_structure(kind: str, data: bytes) -> int | None:
    """The number of frames where the blocks of the file tell it, None where Pillow does. Raises BadImage if
    it is not whole."""
    if kind == "gif":
        return count_gif_frames(data)
    if kind == "tiff":
        return count_tiff_pages(data)
    if kind == "jpeg":
        check_jpeg(data)
        return 1
    if kind == "png":
        check_png(data)
    elif kind == "webp":
        check_webp(data)
    return None


def orientation(image: ImageFile) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or nobody can read it.

    Pillow itself turns a TIFF when it loads the pixels. A PNG may have its EXIF behind the pixels, so that
    asking loads them.
    """
    if image.format == "TIFF":
        return 1
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except Exception:  # hostile EXIF breaks the parser in every way, and the picture is there all the same
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _luminance_table(image: ImageFile) -> tuple[int, ...] | None:
    """The quantisation table of the first component, in natural order."""
    tables = getattr(image, "quantization", {})
    layers = getattr(image, "layer", [])
    table = tables.get(layers[0][3] if layers else 0)
    return tuple(table) if table and len(table) == 64 else None


def jpeg_quality(table: tuple[int, ...] | None) -> float | None:
    """The quality, 1 to 100, whose standard luminance table is nearest to this one (sum of absolute
    differences).

    It is what was asked for, exactly, where libjpeg wrote the file with its own tables. Other programs
    (Adobe's, cameras) have tables of their own; there it is the quality of a libjpeg file with about the same
    loss.

    Source: the scaling of libjpeg (jcparam.c, jpeg_quality_scaling and jpeg_add_quant_table); its inversion
    by the nearest table as in Cogranne 2018, https://arxiv.org/abs/1802.00992.
    """
    return None if table is None else _nearest_quality(table)


@lru_cache(maxsize=1024)
def _nearest_quality(table: tuple[int, ...]) -> float:
    return float(np.abs(_standard_tables() - np.array(table)).sum(axis=1).argmin() + 1)


@lru_cache(maxsize=1)
def _standard_tables() -> np.ndarray:
    """The luminance tables of quality 1 to 100."""
    quality = np.arange(1, 101)
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    return np.clip((LUMINANCE * scale[:, None] + 50) // 100, 1, 255)

