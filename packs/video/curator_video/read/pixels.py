"""From decoded frames to arrays: RGB that stands upright, small luma and chroma."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from av.video.reformatter import Interpolation, VideoReformatter

from curator_video.read.tone import HDR, luma_of, shown

THUMB = (64, 36)  # width and height: what shots, motion and hashes look at
CHROMA = (32, 18)
_PLANAR = ("yuv420p", "yuv422p", "yuv444p", "yuv440p", "yuv411p", "yuv410p", "yuvj420p", "yuvj422p", "yuvj444p", "yuvj440p", "nv12",
           "nv16", "nv21", "yuva420p", "yuva422p", "yuva444p")
_DEEP = {f"yuv{kind}p{bits}le": bits - 8 for kind in (420, 422, 444) for bits in (9, 10, 12, 14, 16)}
_AREA, _BICUBIC = int(Interpolation.AREA), int(Interpolation.BICUBIC)
_AREA_HALF_CHROMA = _AREA | 0x10000  # libswscale's SWS_SRC_V_CHR_DROP: it reads every second row of chroma, an eighth less time
_ROWS = 15  # for one of a small picture: a plane that has more is large
_HD = 720  # rows: from here on what names no matrix is meant as BT.709
_UNSPECIFIED, _BT709 = 2, 1
_LIMITED, _FULL = 1, 2  # AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG
_NARROW = np.round(16 + np.arange(256) * 219 / 255).astype(np.uint8)  # full range luma to the usual one
_NARROW_CHROMA = np.round(128 + (np.arange(256) - 128) * 224 / 255).astype(np.uint8)


class Pixels:
    """Makes arrays of the frames of one film."""

    def __init__(self, rotation: int, mirrored: bool, scaler: VideoReformatter) -> None:
        cv2.setNumThreads(1)  # the engine runs a worker on each core
        self._turns, self._mirrored, self._scaler = rotation // 90, mirrored, scaler
        self._small, self._shrinker = VideoReformatter(), VideoReformatter()

    def rgb(self, frame: Any, size: tuple[int, int]) -> np.ndarray:
        """uint8 [height, width, 3], `size` being (width, height) of what comes out."""
        width, height = size if self._turns % 2 == 0 else size[::-1]
        matrix = _BT709 if frame.colorspace == _UNSPECIFIED and frame.height >= _HD else None
        way = _AREA if width < frame.width or height < frame.height else _BICUBIC
        kind = HDR.get(int(frame.color_trc))
        if way == _AREA and frame.format.name == "yuv420p" and not kind and not _is_full(frame) and width % 2 == 0:
            matrix = matrix or frame.colorspace  # made smaller before it becomes RGB: half the time, and no further from it
            frame = _scaled(self._shrinker, frame, width, height, "yuv422p", src_colorspace=matrix, dst_colorspace=matrix,
                            interpolation=way)
        made = _scaled(self._scaler, frame, width, height, "rgb48le" if kind else "rgb24", src_colorspace=matrix, interpolation=way)
        pixels = made.to_ndarray()
        return self._turned(shown(pixels, kind, int(frame.color_primaries)) if kind else pixels)

    def thumb(self, frame: Any) -> np.ndarray:
        """uint8 36 x 64."""
        at_once = self._at_once(frame)
        planes = at_once or planes_of(frame, 1)
        return self._luma(frame, planes[0], bool(at_once)) if planes else self._turned(self._by_scaler(frame)[0])

    def small(self, frame: Any) -> tuple[np.ndarray, np.ndarray]:
        """A thumbnail, uint8 36 x 64, and U and V, 2 x 18 x 32."""
        at_once = self._at_once(frame)
        planes = at_once or planes_of(frame, 3) or planes_of(frame, 1)
        smaller = planes[1:]
        if len(planes) < 3:
            luma, *others = self._by_scaler(frame)
            thumb = self._luma(frame, planes[0], False) if planes else self._turned(luma)
            smaller = [cv2.resize(one, self._target(CHROMA), interpolation=cv2.INTER_AREA) for one in others]
        else:
            if not at_once:
                shift, full = _DEEP.get(frame.format.name, 0), _is_full(frame)
                smaller = [_shrunk(one, self._target(CHROMA), shift) for one in smaller]
                smaller = [_NARROW_CHROMA[one] for one in smaller] if full else smaller
            thumb = self._luma(frame, planes[0], bool(at_once))
        made = np.empty((2, CHROMA[1], CHROMA[0]), np.uint8)
        for one, plane in zip(made, smaller, strict=True):
            one[:] = self._turned(plane)
        return thumb, made

    def _at_once(self, frame: Any) -> list[np.ndarray]:
        """Luma and chroma of most pictures that are not large, as small as they are wanted, which libswscale makes in one pass and
        exactly; else none. Not of what is smaller, where it repeats points."""
        width, height = self._target(THUMB)
        if not height <= frame.height < _ROWS * THUMB[1] or frame.width < width or frame.format.name != "yuv420p" \
                or frame.color_range == _FULL:
            return []
        way = _AREA_HALF_CHROMA if frame.height >= 2 * height else _AREA
        return _views(_scaled(self._small, frame, width, height, "yuv420p", interpolation=way), 3, np.dtype(np.uint8))

    def _luma(self, frame: Any, plane: np.ndarray, small: bool) -> np.ndarray:
        """A thumbnail of a plane; `small`: it is as small as that."""
        if small:
            made = plane.copy()  # it is that of a frame
        else:
            made = _shrunk(plane, self._target(THUMB), _DEEP.get(frame.format.name, 0))
            if _is_full(frame):
                made = _NARROW[made]
        kind = HDR.get(int(frame.color_trc))
        return self._turned(luma_of(kind)[made] if kind else made)

    def _target(self, size: tuple[int, int]) -> tuple[int, int]:
        return size if self._turns % 2 == 0 else size[::-1]

    def _turned(self, picture: np.ndarray) -> np.ndarray:
        if self._mirrored:
            picture = picture[:, ::-1]
        return np.ascontiguousarray(np.rot90(picture, -self._turns)) if self._turns or self._mirrored else picture

    def _by_scaler(self, frame: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Luma and chroma of what has no planes of them: GIF, PNG, packed YUV."""
        width, height = self._target(THUMB)
        made = _scaled(self._small, frame, width, height, "yuv444p", interpolation=_AREA)
        luma, u, v = made.to_ndarray()
        return luma, u, v


def _scaled(scaler: VideoReformatter, frame: Any, width: int, height: int, format: str, **how: Any) -> Any:
    """Where libswscale does not know the colours that a frame is tagged with, they are taken as not tagged."""
    try:
        return scaler.reformat(frame, width, height, format, threads=1, **how)
    except (OSError, ValueError):
        frame.colorspace = frame.color_primaries = frame.color_trc = _UNSPECIFIED
        return scaler.reformat(frame, width, height, format, threads=1, **how)


def matrix_of(frame: Any) -> tuple[bool, int]:
    """Whether a player mirrors the picture left to right, and how far it turns it clockwise then: 0, 90, 180, 270.

    Read from the display matrix itself: `frame.rotation` says 180 of a picture that is mirrored.
    """
    found = [bytes(one) for one in frame.side_data if one.type.name == "DISPLAYMATRIX"]
    if not found or len(found[0]) != 36:
        return False, 0
    a, b, _, c, d, *_ = np.frombuffer(found[0], "<i4").astype(float)
    mirrored = a * d - b * c < 0
    sign = -1 if mirrored else 1
    return bool(mirrored), round(np.degrees(np.arctan2(sign * b, sign * a)) / 90) * 90 % 360


def planes_of(frame: Any, count: int) -> list[np.ndarray]:
    """The first planes as they lie in the frame, without a copy; none where they are not luma and so many."""
    name = frame.format.name
    if name not in _PLANAR and name not in _DEEP and name != "gray":
        return []
    return _views(frame, count, np.dtype("<u2") if name in _DEEP else np.dtype(np.uint8))


def _views(frame: Any, count: int, kind: np.dtype) -> list[np.ndarray]:
    planes = frame.planes[:count]
    if len(planes) < count or planes[0].line_size <= 0:
        return []
    return [np.frombuffer(one, kind).reshape(one.height, -1)[:, :one.width] for one in planes]


def _shrunk(plane: np.ndarray, size: tuple[int, int], shift: int) -> np.ndarray:
    """By area to (width, height), 8 bits.

    It is halved first where it can, two to six times as fast, but not where an odd number of pixels makes one: that is fast, too, and
    exact where halves and a rest are 3 levels apart. Of large planes 8 x 8 points stand for the area of
    each small pixel, in 2 x 2 as they lie: reading all would take twice as long, and they are as many as a film of 360 rows has.
    """
    if len(plane) >= _ROWS * size[1]:
        plane = cv2.resize(plane, (4 * size[0], 4 * size[1]), interpolation=cv2.INTER_LINEAR)
    height, width = plane.shape
    if (width, height) == size:
        return plane.copy()  # it is that of a frame
    while shift == 0 and width >= 4 * size[0] and height >= 4 * size[1] and width % 2 == height % 2 == 0:
        if width % size[0] == height % size[1] == 0 and width // size[0] % 2:
            break
        plane = cv2.resize(plane, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        height, width = plane.shape
    small = cv2.resize(plane, size, interpolation=cv2.INTER_AREA)
    return np.right_shift(small, shift).astype(np.uint8) if shift else small


def _is_full(frame: Any) -> bool:
    return frame.color_range == _FULL or frame.format.name.startswith("yuvj") or (
        frame.format.name == "gray" and frame.color_range != _LIMITED)  # as libswscale takes it
