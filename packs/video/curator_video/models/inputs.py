"""What a video model gets to see, made of frames as the settings beside its weights say. Imported in workers only.

Geometry (scaling, cropping) is done in uint8 on the processor, the rest where the model computes. transformers' own video
processors want torchvision, which computes the same by the same functions of torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from curator.api.errors import CuratorError
from curator.models.loading import Place, fetch

FILES = ("video_preprocessor_config.json", "preprocessor_config.json", "processor_config.json")
FILTERS = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # by Pillow's numbers


@dataclass(frozen=True)
class Form:
    """Scale to `size` (height, width), or the shorter side to `shorter`; cut `crop` out of the middle; then
    level * scale - shift of each channel. None is a step that is left out."""

    size: tuple[int, int] | None
    shorter: int | None
    crop: tuple[int, int] | None
    filter: str
    scale: tuple[float, ...]
    shift: tuple[float, ...]

    def scaled(self, height: int, width: int) -> tuple[int, int]:
        """The height and width that a picture of this size is scaled to."""
        if self.shorter is None:
            return self.size or (height, width)
        if height <= width:
            return self.shorter, int(self.shorter * width / height)
        return int(self.shorter * height / width), self.shorter


class ClipInputs:
    """Makes a model's input of frames."""

    def __init__(self, model: str, place: Place) -> None:
        self.form, self.place = form_of(settings_of(model), model), place
        self._scale, self._shift = (torch.tensor(v, device=place.device).reshape(1, 1, 3, 1, 1)
                                    for v in (self.form.scale, self.form.shift))

    def __call__(self, clips: Sequence[np.ndarray]) -> torch.Tensor:
        """Clips of as many frames each (T x H x W x 3, uint8) as one tensor [clips, T, 3, height, width]."""
        shaped = torch.stack([shape(clip, self.form) for clip in clips]).to(self.place.device)
        return shaped.to(torch.float32).mul_(self._scale).sub_(self._shift).to(self.place.dtype)


def shape(frames: np.ndarray, form: Form) -> torch.Tensor:
    """Frames scaled and cropped, uint8 [T, 3, height, width]."""
    pictures = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2)
    height, width = pictures.shape[-2:]
    size = form.scaled(height, width)
    if size != (height, width):
        smooth = {"antialias": True, "align_corners": False} if form.filter != "nearest" else {}
        pictures = torch.nn.functional.interpolate(pictures, size, mode=form.filter, **smooth)
    return pictures if form.crop is None else center_crop(pictures, form.crop)


def center_crop(pictures: torch.Tensor, crop: tuple[int, int]) -> torch.Tensor:
    """The middle of pictures; black around it where they are too small. The odd pixel falls as in torchvision."""
    (height, width), (high, wide) = pictures.shape[-2:], crop
    if height < high or width < wide:
        left, top = max(0, (wide - width) // 2), max(0, (high - height) // 2)
        right, below = max(0, (wide - width + 1) // 2), max(0, (high - height + 1) // 2)
        pictures = torch.nn.functional.pad(pictures, (left, right, top, below))
        height, width = pictures.shape[-2:]
    top, left = round((height - high) / 2), round((width - wide) / 2)
    return pictures[..., top:top + high, left:left + wide]


def settings_of(model: str) -> dict[str, Any]:
    """The settings of a model's processor: of videos, or of images where it has none for videos.

    Raises:
        CuratorError: there are none.
    """
    for name in FILES:
        try:
            found = json.loads(fetch(f"{model}:{name}").read_text(encoding="utf-8"))
        except CuratorError as error:
            last = error
            continue
        inner = found.get("video_processor") or found.get("image_processor")
        if name != FILES[-1] or inner:
            return inner or found
    raise CuratorError(f"{model!r} does not say how it wants its frames: none of {', '.join(FILES)} is there ({last})")


def form_of(settings: Mapping[str, Any], model: str) -> Form:
    """What the settings of a processor describe.

    Raises:
        CuratorError: they describe steps that no clip is given here.
    """
    given = settings.get("size")
    size, shorter = _size_of(given) if given and settings.get("do_resize", True) else (None, None)
    crop, edge = None, settings.get("crop_size") or shorter
    if edge and settings.get("do_center_crop", "crop_size" in settings):
        crop = (edge, edge) if isinstance(edge, int) else (int(edge["height"]), int(edge["width"]))
    number = settings.get("resample", 2)
    if number not in FILTERS or (crop is None and size is None):
        raise CuratorError(f"{model!r} wants its frames as nothing here makes them (resample {number}, size {given}, "
                           "without a crop): name a model whose input has one size")
    rescale = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1.0
    mean, deviation = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if settings.get("do_normalize", "image_mean" in settings):
        mean, deviation = (tuple(np.broadcast_to(settings[name], 3).tolist()) for name in ("image_mean", "image_std"))
    # ViViT's moves levels to -1 to 1 before the rest; only its old settings say so.
    offset = 1.0 if settings.get("offset", settings.get("video_processor_type") == "VivitVideoProcessor") else 0.0
    return Form(size, shorter, crop, FILTERS[number], tuple(rescale / d for d in deviation),
                tuple((m + offset) / d for m, d in zip(mean, deviation, strict=True)))


def _size_of(size: Any) -> tuple[tuple[int, int] | None, int | None]:
    """(height, width), or the length of the shorter side."""
    if isinstance(size, int):  # as settings were written until 2022
        return None, size
    if "shortest_edge" in size:
        return None, int(size["shortest_edge"])
    return (int(size["height"]), int(size["width"])), None
