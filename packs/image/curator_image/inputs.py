"""What an image model gets to see, made of pixels as the model's own image processor makes it. Imported in
workers only.

Geometry (scaling, cropping) is done in uint8 with Pillow, on the processor; what has the right size already
is left alone. The rest (scale and shift of the numbers) happens in one step where the model computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.image_processing_backends import PilBackend

from curator.models.loading import Place, load
from curator_image.resize import target

# A picture that is this much longer than wide would be scaled to hundreds of megabytes before its middle is
# cut out.
ASPECT_MAX = 20


@dataclass(frozen=True)
class Form:
    """The geometry of an input: scale to `size` (height, width), or the shorter side to `shorter`, then cut
    out `crop`.

    `resample`: Pillow's number of the filter. None is a step that is left out.
    """

    size: tuple[int, int] | None = None
    shorter: int | None = None
    crop: tuple[int, int] | None = None
    resample: int = Image.Resampling.BILINEAR

    def scaled(self, height: int, width: int) -> tuple[int, int]:
        """The height and width that an image of this size is scaled to."""
        if self.size is not None:
            return self.size
        return (height, width) if self.shorter is None else target((height, width), self.shorter, None)


class ImageInputs:
    """Makes a model's inputs of pixels.

    Source: the values are those of `preprocessor_config.json`, the steps those of transformers' `PilBackend`;
    a processor with steps of its own is called itself.
    """

    def __init__(self, model: str, place: Place) -> None:
        self.processor, self.place = load("AutoImageProcessor", model, backend="pil"), place
        self.form = form_of(self.processor)
        self.scale, self.shift = (torch.tensor(v, device=place.device).reshape(1, -1, 1, 1)
                                  for v in _levels(self.processor))

    def __call__(self, images: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
        """The arguments of the model's forward for these images, H x W x 3 uint8."""
        if self.form is None:
            made = self.processor(images=list(images), return_tensors="pt", input_data_format="channels_last")
            return {name: self._moved(values) for name, values in made.items()}
        shaped = torch.from_numpy(np.stack([shape(image, self.form) for image in images]))
        values = shaped.to(self.place.device).permute(0, 3, 1, 2).to(torch.float32,
                                                                     memory_format=torch.contiguous_format)
        return {"pixel_values": values.mul_(self.scale).sub_(self.shift).to(self.place.dtype)}

    def _moved(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.place.device, self.place.dtype if values.is_floating_point() else None)


def shape(pixels: np.ndarray, form: Form) -> np.ndarray:
    """Pixels scaled and cropped; the same array where nothing is to be done."""
    height, width = pixels.shape[:2]
    scaled = form.scaled(height, width)
    if scaled != (height, width):
        image = Image.fromarray(pixels)
        if form.crop and form.size is None and max(height, width) > ASPECT_MAX * min(height, width):
            return _middle(image, scaled, form)
        pixels = np.asarray(image.resize(scaled[::-1], form.resample))
    return pixels if form.crop is None else center_crop(pixels, form.crop)


def center_crop(pixels: np.ndarray, crop: tuple[int, int]) -> np.ndarray:
    """The middle of an image; black around it where it is too small. The odd pixel falls as in
    transformers."""
    (height, width), (high, wide) = pixels.shape[:2], crop
    top, left = (height - high) // 2, (width - wide) // 2
    if top >= 0 and left >= 0:
        return pixels[top:top + high, left:left + wide]
    down, right = -min(top, 0), -min(left, 0)
    inner = pixels[max(top, 0):max(top, 0) + high, max(left, 0):max(left, 0) + wide]
    padded = np.zeros((high, wide, 3), pixels.dtype)
    padded[down:down + inner.shape[0], right:right + inner.shape[1]] = inner
    return padded


def _middle(image: Image.Image, scaled: tuple[int, int], form: Form) -> np.ndarray:
    """The crop of the scaled image, made without the rest of it.

    Known difference: rounding, and a few levels beside hard edges, where Pillow filters rows and columns in
    another order.
    """
    crop, (height, width) = form.crop or scaled, scaled
    high, wide = min(crop[0], height), min(crop[1], width)
    top, left = (height - high) // 2, (width - wide) // 2
    across, down = image.width / width, image.height / height
    box = (left * across, top * down, min(image.width, (left + wide) * across),
           min(image.height, (top + high) * down))
    return center_crop(np.asarray(image.resize((wide, high), form.resample, box=box)), crop)


def form_of(processor: Any) -> Form | None:
    """The geometry that a processor's settings describe; None where it takes steps of its own or gives sizes
    that differ."""
    steps = ("_preprocess", "process_image", "resize", "center_crop", "rescale", "normalize")
    if not isinstance(processor, PilBackend) or any(getattr(type(processor), s) is not getattr(PilBackend, s)
                                                    for s in steps):
        return None
    its: Any = processor  # settings that its class does not declare
    size, crop = (its.size if its.do_resize else None), None
    if getattr(its, "do_center_crop", None):
        crop = (its.crop_size.height, its.crop_size.width)
    resample = int(Image.Resampling.BILINEAR if its.resample is None else its.resample)
    if getattr(its, "do_pad", None) or (size and (size.longest_edge or size.max_height)):
        return None
    if size and size.shortest_edge:
        return Form(shorter=size.shortest_edge, crop=crop, resample=resample) if crop else None
    if size and size.height and size.width:
        return Form(size=(size.height, size.width), crop=crop, resample=resample)
    return Form(crop=crop) if crop else None


def _levels(processor: Any) -> tuple[list[float], list[float]]:
    """By what the levels 0 to 255 of each channel are multiplied, and what is then subtracted."""
    rescale = processor.rescale_factor if getattr(processor, "do_rescale", None) else 1.0
    if not getattr(processor, "do_normalize", None):
        return [rescale] * 3, [0.0] * 3
    pairs = list(zip(np.broadcast_to(processor.image_mean, 3), np.broadcast_to(processor.image_std, 3),
                     strict=True))
    return [float(rescale / std) for _, std in pairs], [float(mean / std) for mean, std in pairs]
