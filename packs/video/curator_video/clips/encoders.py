"""Encoders of FFmpeg for clips: which there are, which is taken, and how each is asked for the same."""

from __future__ import annotations

import functools
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.codec import Codec
from av.error import FFmpegError

from curator.api.errors import CuratorError, RecipeError
from curator.api.resources import Resources
from curator_video.clips.speeds import CRF, PRESETS

SOFTWARE = {"h264": "libx264", "h265": "libx265", "vp9": "libvpx-vp9", "av1": "libsvtav1"}
_GIVE = "; it wants a GPU of NVIDIA with its driver: give the step one (with: {resources: {gpus: 0.2}})"
HARDWARE = {"h264": "h264_nvenc", "h265": "hevc_nvenc", "av1": "av1_nvenc"}  # NVIDIA's chips encode no VP9
_CODECS = {"h264": "h264", "h265": "hevc", "vp9": "vp9", "av1": "av1"}  # as FFmpeg names them
# Other names for the same: from the fastest to the slowest, as x264's presets go.
_NVENC = ("p1", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p7")
_SVTAV1 = ("12", "11", "10", "9", "8", "6", "5", "4", "3")
_VPX = ("8", "7", "6", "5", "4", "3", "2", "1", "0")


def chosen(codec: str, encoder: str | None, *, gpu: bool) -> str:
    """The encoder to take. `encoder`: the one that is asked for, if any. `gpu`: the worker has one.

    Raises:
        CuratorError: this FFmpeg has no such encoder, it is one of another codec, or it does not open here.
    """
    if encoder is None:
        if gpu and codec in HARDWARE and not _refused(HARDWARE[codec]):
            return HARDWARE[codec]
        encoder = SOFTWARE[codec]
    known(encoder, codec)
    refused = _refused(encoder)
    if refused:
        raise CuratorError(f"encoder: {encoder!r} does not open here ({refused})" + (_GIVE if "nvenc" in encoder else ""))
    return encoder


def known(name: str, codec: str) -> None:
    """Opens nothing, so that it can be asked where the plan is made.

    Raises:
        RecipeError: this FFmpeg has no such encoder, or it is one of another codec.
    """
    try:
        found = Codec(name, "w")
    except (FFmpegError, ValueError) as error:
        here = [one for one in sorted({SOFTWARE[codec], *([HARDWARE[codec]] if codec in HARDWARE else [])}) if _has(one)]
        raise RecipeError(f"encoder: the FFmpeg of this PyAV ({av.__version__}) has no {name!r}; for {codec} it has "
                          f"{', '.join(here) or 'none'}") from error
    if found.canonical_name != _CODECS[codec]:
        raise RecipeError(f"encoder: {name!r} encodes {found.canonical_name}, and codec is {codec}")


def check_gpu(name: str, resources: Resources) -> None:
    """A worker of a step without a GPU sees none, also where there is one.

    Raises:
        RecipeError: the encoder wants one, and the step has none.
    """
    if "nvenc" in name and not (resources.gpus or resources.gpu_memory_gb):
        raise RecipeError(f"encoder: {name!r} does not open in a step without a GPU{_GIVE}")


def _has(name: str) -> bool:
    try:
        return bool(Codec(name, "w"))
    except (FFmpegError, ValueError):
        return False


@functools.cache
def _refused(name: str) -> str:
    """Why an encoder does not open, "" if it does."""
    os.environ.setdefault("SVT_LOG", "1")  # SVT-AV1 tells of errors only, else of each clip in twenty lines
    try:
        context: Any = av.CodecContext.create(name, "w")
        context.options = options_of(name, None, PRESETS[0])
        context.width, context.height, context.pix_fmt = 256, 256, "yuv420p"
        context.time_base, context.framerate = Fraction(1, 25), Fraction(25)
        context.open()
    except (FFmpegError, ValueError, AttributeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def options_of(name: str, crf: int | None, preset: str) -> dict[str, str]:
    """The options of an encoder. With these, in one thread, the same pictures give the same bytes."""
    at = PRESETS.index(preset)
    codec = next((codec for codec, names in _CODECS.items() if Codec(name, "w").canonical_name == names), "h264")
    quality = str(CRF[codec] if crf is None else crf)
    if name == "libx264":
        return {"crf": quality, "preset": preset, **_steady()}
    if name == "libx265":
        return {"crf": quality, "preset": preset, "x265-params": "pools=none:frame-threads=1:log-level=error"}
    if name == "libsvtav1":
        return {"crf": quality, "preset": _SVTAV1[at], "svtav1-params": "lp=1"}
    if name == "libvpx-vp9":
        return {"crf": quality, "b": "0", "deadline": "good" if at else "realtime", "cpu-used": _VPX[at], "row-mt": "0"}
    if name.endswith("_nvenc"):
        return {"rc": "vbr", "cq": quality, "b": "0", "preset": _NVENC[at]}
    return {"crf": quality}


@functools.cache
def format_of(name: str, pix_fmt: str, depth: int) -> str:
    """The pixel format in which a picture of this one is encoded: 10 bits and full range stay where the encoder knows them."""
    known = {one.name for one in Codec(name, "w").video_formats or ()}
    deep = [] if depth <= 8 or name == "h264_nvenc" else ["yuv420p10le", "p010le"]
    full = ["yuvj420p"] if pix_fmt == "yuvj420p" else []
    return next((one for one in (*deep, *full) if one in known), "yuv420p")


@functools.cache
def _steady() -> dict[str, str]:
    """Options with which x264 gives the same bytes each time: on AVX-512 it reads memory that nothing was written to, and what it
    finds there decides how many bits go where. With AVX2 it takes the same time."""
    try:
        wide = "avx512" in Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        wide = False
    return {"x264-params": "asm=avx2"} if wide else {}
