"""From the bytes of an image file to pixels: 8-bit sRGB, upright, of the size that is wanted."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from PIL import Image, ImageCms
from PIL.ImageFile import ImageFile

from curator_image.header import NAMES, Header, check_pixels, orientation, read_header, sniff
from curator_image.structure import BadImage, prolonged_jpeg

# OpenCV's flags by how many times smaller a JPEG is decoded; its own turning is off: `upright` does it, for
# all formats.
GREY = {1: cv2.IMREAD_GRAYSCALE, 2: cv2.IMREAD_REDUCED_GRAYSCALE_2, 4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
        8: cv2.IMREAD_REDUCED_GRAYSCALE_8}
# IMREAD_GRAYSCALE is 0: no colour flag yet
COLOUR = {factor: flags | cv2.IMREAD_COLOR_RGB for factor, flags in GREY.items()}
# Where a marker comes too early, libjpeg fills the rest of the picture with this grey, and says nothing. Four
# such pixels in the last corner are rare in pictures; they are decoded again with more data, which changes
# what was filled and nothing else.
FILLER, FILLED = 128, 4
BY_OPENCV = {"jpeg", "png", "webp", "bmp"}
DEEP = {"I;16", "I;16L", "I;16B", "I;16N", "I", "F"}  # modes of more than 8 bits a sample
# colour space of an ICC profile: the mode of pixels that it describes
SPACES = {"GRAY": "L", "RGB ": "RGB", "CMYK": "CMYK"}
# a profile that moves no colour by more is sRGB: the rounding of 8-bit tables moves them by 1
SRGB_LEVELS = 2


@dataclass(frozen=True)
class Frame:
    """A decoded picture. `width`, `height`: upright, before any reduction; the rest as `image.decode`
    describes it."""

    pixels: np.ndarray
    format: str
    width: int
    height: int
    mode: str
    frames: int
    transparent_ratio: float
    quality: float | None


@dataclass(frozen=True)
class Limits:
    """What a file may cost. `max_pixels`: of all frames that are decoded, together. `max_frames`: None for
    the first only."""

    max_pixels: int
    max_frames: int | None = None


def decode(data: bytes, size: int | None, limits: Limits) -> list[Frame]:
    """The pictures of an image file: the first, or all; the shorter side `size` pixels or less if that is
    given.

    Raises:
        BadImage: it cannot be decoded, or exceeds a limit; says what and why.
    """
    kind = sniff(data)
    try:
        header = read_header(kind, data, limits.max_pixels)
        if limits.max_frames is None or header.frames == 1:
            return [_first(data, header, size)]
        return list(_all(header, size, limits))
    except (BadImage, MemoryError):  # the engine knows what to do about memory
        raise
    except Exception as error:  # libraries fail in every way on hostile bytes, and the row says how
        text = str(error) or type(error).__name__
        short = isinstance(error, EOFError) or "truncated" in text.lower()
        raise BadImage(f"{'truncated' if short else 'broken'} {NAMES[kind]}: {text}") from error


def _first(data: bytes, header: Header, size: int | None) -> Frame:
    image, full = header.image, header.image.size
    stored = _by_opencv(data, header, size) if header.format in BY_OPENCV else None
    if stored is not None:
        turn = 1 if header.format == "png" else orientation(image)
        return _frame(header, (stored, 0.0), full, turn, size)
    if header.format == "jpeg":
        factor = _factor(full, size)
        image.draft(None, (full[0] // factor, full[1] // factor))
    image.load()
    return _frame(header, eight_bit(image), full, orientation(image), size)


def _all(header: Header, size: int | None, limits: Limits) -> Iterator[Frame]:
    """Every frame, each as it is shown (a GIF's and a WebP's are composed onto the ones before)."""
    if limits.max_frames is not None and header.frames > limits.max_frames:
        raise BadImage(f"too many frames: {header.frames:,} (max_frames {limits.max_frames:,})")
    left = limits.max_pixels
    for number in range(header.frames):
        header.image.seek(number)
        width, height = header.image.size
        check_pixels((width, height), limits.max_pixels)
        left -= width * height
        if left < 0:
            raise BadImage(f"too many pixels: {header.frames:,} frames of {width} x {height} (max_pixels "
                           f"{limits.max_pixels:,})")
        header.image.load()
        yield _frame(header, eight_bit(header.image), (width, height), orientation(header.image), size)


def _frame(header: Header, decoded: tuple[np.ndarray, float], full: tuple[int, int], turn: int,
           size: int | None) -> Frame:
    """A frame from pixels as stored: reduced first, because turning and converting fewer pixels costs
    less."""
    stored, transparent = decoded
    width, height = full if turn < 5 else full[::-1]
    small = stored if size is None else resized(stored, reduced(full, size))
    pixels = to_srgb(upright(small, turn), header.image.info.get("icc_profile"))
    return Frame(np.ascontiguousarray(pixels), header.format, width, height, header.image.mode, header.frames,
                 transparent,
                 header.quality)


# -- decoding -----------------------------------------------------------------------------------------------


def _by_opencv(data: bytes, header: Header, size: int | None) -> np.ndarray | None:
    """Pixels as stored, grey or RGB; None where Pillow must do it, or say what is wrong.

    OpenCV is faster, and drops or guesses what is not plain: transparency, CMYK, frames. libpng in it prints
    a line for each profile that it does not like, so that PNGs with one go to Pillow, as do those whose EXIF
    is behind the pixels.
    """
    image = header.image
    if image.mode not in ("L", "RGB") or header.frames > 1 or "transparency" in image.info:
        return None
    if header.format == "png" and ("icc_profile" in image.info or b"eXIf" in data
                                   or b"Raw profile type exif" in data):
        return None
    factor = _factor(image.size, size) if header.format == "jpeg" else 1
    flags = (GREY if image.mode == "L" else COLOUR)[factor] | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = _imdecode(data, flags)
    if pixels is None or pixels.shape[:2] != tuple(-(-side // factor) for side in image.size[::-1]):
        return None
    if header.format == "jpeg" and (pixels[-1, -FILLED:] == FILLER).all():
        longer = _imdecode(prolonged_jpeg(data), flags)
        if longer is None or (longer != pixels).any():
            raise BadImage("truncated JPEG: its data ends before the picture does")
    return pixels


def _imdecode(data: bytes, flags: int) -> np.ndarray | None:
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None


def _factor(full: tuple[int, int], size: int | None) -> int:
    """How many times smaller a JPEG can be decoded so that its shorter side keeps `size` pixels."""
    if size is None:
        return 1
    return max(factor for factor in GREY if factor == 1 or min(full) >= size * factor)


def eight_bit(image: ImageFile | Image.Image) -> tuple[np.ndarray, float]:
    """A loaded image as 8-bit grey (H x W), RGB (H x W x 3) or CMYK (H x W x 4), and its share of pixels not
    opaque.

    What is transparent stands over white. A mode of more bits is scaled as `scale_down` says.
    """
    if image.mode in DEEP:
        return scale_down(np.asarray(image)), 0.0
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        alpha = rgba.getchannel("A")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(rgba, mask=alpha)
        return np.asarray(white), 1 - alpha.histogram()[255] / (image.width * image.height)
    if image.mode in ("L", "RGB", "CMYK"):
        return np.asarray(image), 0.0
    if image.mode == "1":
        return np.asarray(image.convert("L")), 0.0
    if image.mode == "LAB":
        return np.asarray(ImageCms.profileToProfile(image, ImageCms.createProfile("LAB"), _srgb(),
                                                    outputMode="RGB")), 0.0
    return np.asarray(image.convert("RGB")), 0.0


def scale_down(values: np.ndarray) -> np.ndarray:
    """Grey of 16 or 32 bits, or float, as 8 bits.

    Of 16 bits the upper 8, so that 65535 is white. 32-bit integers that fit 16 bits likewise (that is how
    Pillow gives a PPM of 16 bits). Floats from 0 to 1: 1 is white. What else there is has no known white: its
    lowest finite value becomes black, its highest white. Not-a-number becomes black.
    """
    if values.dtype.itemsize == 2 or (values.dtype.kind in "iu" and values.min() >= 0
                                      and values.max() <= 65535):
        return (values >> 8).astype(np.uint8)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = float(values[finite].min()), float(values[finite].max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    scaled = (np.where(finite, values, low).astype(np.float64) - low) / ((high - low) or 1.0)
    return np.rint(scaled * 255).astype(np.uint8)


# -- geometry and colour -------------------------------------------------------------------------------------


def reduced(full: tuple[int, int], size: int) -> tuple[int, int]:
    """Width and height so that the shorter side is `size` at most, proportions kept."""
    scale = min(1.0, size / min(full))
    return round(full[0] * scale), round(full[1] * scale)


def within(full: tuple[int, int], size: int) -> tuple[int, int]:
    """Width and height so that the longer side is `size` at most, proportions kept."""
    scale = min(1.0, size / max(full))
    return max(1, round(full[0] * scale)), max(1, round(full[1] * scale))


def resized(pixels: np.ndarray, wanted: tuple[int, int]) -> np.ndarray:
    """Pixels of a smaller width and height, by averaging areas."""
    return pixels if pixels.shape[1::-1] == wanted else cv2.resize(pixels, wanted,
                                                                   interpolation=cv2.INTER_AREA)


def upright(pixels: np.ndarray, turn: int) -> np.ndarray:
    """Stored pixels as they are to be shown. `turn`: the EXIF orientation, 1 to 8. Source: CIPA DC-008 (EXIF
    2.32), 4.6.4 A."""
    if turn == 2:
        return cv2.flip(pixels, 1)
    if turn == 3:
        return cv2.rotate(pixels, cv2.ROTATE_180)
    if turn == 4:
        return cv2.flip(pixels, 0)
    if turn == 5:
        return cv2.transpose(pixels)
    if turn == 6:
        return cv2.rotate(pixels, cv2.ROTATE_90_CLOCKWISE)
    if turn == 7:
        return cv2.rotate(cv2.transpose(pixels), cv2.ROTATE_180)
    if turn == 8:
        return cv2.rotate(pixels, cv2.ROTATE_90_COUNTERCLOCKWISE)
    return pixels


def to_srgb(pixels: np.ndarray, profile: bytes | None) -> np.ndarray:
    """8-bit grey, RGB or CMYK as sRGB, by the embedded ICC profile.

    A profile of another colour space than the pixels', a broken one, and one that is sRGB but for rounding
    are passed over.
    """
    mode = "L" if pixels.ndim == 2 else "CMYK" if pixels.shape[2] == 4 else "RGB"
    transform = _transform(profile, mode) if profile else None
    if transform is not None:
        return np.asarray(ImageCms.applyTransform(Image.fromarray(pixels, mode), transform))
    if mode == "L":
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)
    return pixels if mode == "RGB" else np.asarray(Image.fromarray(pixels, mode).convert("RGB"))


@lru_cache(maxsize=64)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """From pixels of a mode to sRGB; None where nothing is to be done. Making one takes 2 ms, and profiles
    repeat."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if SPACES.get(source.profile.xcolor_space) != mode:
            return None
        transform = ImageCms.buildTransform(source, _srgb(), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    if mode == "CMYK":
        return transform
    colours = _lattice() if mode == "RGB" else np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3,
                                                         axis=2)
    moved = ImageCms.applyTransform(Image.fromarray(colours if mode == "RGB" else colours[..., 0]), transform)
    return transform if np.abs(np.asarray(moved).astype(int) - colours).max() > SRGB_LEVELS else None


@lru_cache(maxsize=1)
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def _lattice() -> np.ndarray:
    """Colours from all over the RGB cube, as an image: 9 levels of each."""
    levels = np.linspace(0, 255, 9).round().astype(np.uint8)
    return np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(27, 27, 3)
