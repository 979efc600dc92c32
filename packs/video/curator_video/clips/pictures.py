"""Contact sheets and animations of a few frames."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import cv2
import numpy as np

from curator_video.read.sampling import spaced

GAP = 2            # pixels between the pictures of a sheet
PAPER = 128        # grey: behind a sheet is a light page or a dark one
APART_S = 1.0      # from one picture of an animation to the next, at least, as NVIDIA's previews have it
SHOWN_MS = 500     # of each picture of an animation
LETTERS = 0.35     # of OpenCV's Hershey font: digits of 8 pixels


def spread(frames: np.ndarray, times: np.ndarray, most: int, size: int) -> tuple[list[np.ndarray], list[float]]:
    """At most so many frames, evenly spread, of at most `size` pixels of the longer side; and their seconds."""
    count = min(most, len(frames))
    chosen = np.round((np.arange(count) + 0.5) * len(frames) / count - 0.5).astype(int)
    return [_smaller(frames[k], size) for k in chosen], [float(times[k]) for k in chosen]


def sheet(pictures: Sequence[np.ndarray], times: Sequence[float], columns: int, quality: int) -> bytes:
    """A JPEG file of pictures of one size in rows, each with its time."""
    height, width = pictures[0].shape[:2]
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    paper = np.full((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), PAPER, np.uint8)
    for k, (picture, time) in enumerate(zip(pictures, times, strict=True)):
        top, left = k // columns * (height + GAP), k % columns * (width + GAP)
        place = paper[top:top + height, left:left + width]
        place[:] = picture
        _name(place, clock(time))
    done, data = cv2.imencode(".jpg", cv2.cvtColor(paper, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    return data.tobytes()


def animation(pictures: Sequence[np.ndarray], times: Sequence[float], quality: int) -> bytes:
    """A WebP file that shows those of some pictures of one size that are a second apart, one after the other, for ever."""
    file = io.BytesIO()
    with av.open(file, "w", format="webp", options={"loop": "0"}) as out:
        stream: Any = out.add_stream("libwebp", rate=Fraction(1000))  # smaller, better and sooner than libwebp_anim
        stream.height, stream.width = pictures[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.options = {"quality": str(quality), "compression_level": "0"}
        stream.codec_context.time_base = Fraction(1, 1000)
        stream.codec_context.thread_count = 1
        for number, chosen in enumerate(spaced(np.asarray(times), APART_S)):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pictures[chosen]), "rgb24")
            frame.pts, frame.duration, frame.time_base = number * SHOWN_MS, SHOWN_MS, Fraction(1, 1000)
            for packet in stream.encode(frame):
                packet.duration = SHOWN_MS
                out.mux(packet)
    return file.getvalue()


def clock(seconds: float) -> str:
    """`1:02.5`, and `1:01:02.5` from an hour on."""
    tenths = round(10 * seconds)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}:{minutes:02d}" if hours else f"{minutes}") + f":{rest // 10:02d}.{rest % 10}"


def _name(picture: np.ndarray, words: str) -> None:
    """Write white letters on a dark ground into its lower left corner: black edges around them take eight times as long."""
    (width, height), below = cv2.getTextSize(words, cv2.FONT_HERSHEY_SIMPLEX, LETTERS, 1)
    picture[-height - below - 2:, :width + 6] >>= 2
    cv2.putText(picture, words, (3, len(picture) - 4), cv2.FONT_HERSHEY_SIMPLEX, LETTERS, (255, 255, 255), 1, cv2.LINE_AA)


def _smaller(picture: np.ndarray, size: int) -> np.ndarray:
    height, width = picture.shape[:2]
    scale = min(1.0, size / max(height, width))
    if scale == 1:
        return picture
    target = max(1, round(width * scale)), max(1, round(height * scale))
    while picture.shape[1] >= 2 * target[0] and picture.shape[0] >= 2 * target[1]:  # a sixth of the time, and no worse to look at
        picture = cv2.resize(picture, (picture.shape[1] // 2, picture.shape[0] // 2), interpolation=cv2.INTER_AREA)
    return cv2.resize(picture, target, interpolation=cv2.INTER_LINEAR)
