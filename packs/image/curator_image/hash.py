"""Perceptual hashes of images, to find copies by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch

BYTES = {"phash": 8, "dhash": 8, "pdq": 32}
VARIANTS = ("none", "flips", "all")


@dataclass(kw_only=True)
class Hash(Stage):
    """Hash what an image looks like, so that `dedup.near` finds its copies: resized, re-encoded, grey,
    mirrored.

    Adds a column for each of `kinds`:
    `phash` (8 bytes), from the lowest frequencies of a cosine transform: the one to take.
    `dhash` (8 bytes), from steps between neighbours in a row: others are nearer to each other.
    `pdq` (32 bytes), phash of finer detail; and `pdq_quality` (int32, 0 to 100: how much there is to see; 50
    is enough). Null for an image that is not decoded, or has too little structure to compare it by: a blank
    page, an even gradient.

    `variants`: `flips` hashes the mirror image (left to right) too, `all` the image turned and mirrored in
    all eight ways. A column is then a list of hashes, the image as it is first; give `dedup.near` `hashes:
    2`, or 8.

    Copies differ in few bits: `dedup.near: {column: phash, distance: 6}` finds 99 % of what was resized,
    re-encoded, made grey, lighter or darker, or cropped by 2 %, and 82 % of what was cropped by 5 %; no two
    of 116 different photographs are nearer than 14 (dhash: 6). Among many millions take `pdq` with a distance
    of 31, of which others have 90 and more; it finds fewer crops.

    Source: see `curator_image.hashes`: Zauner 2010 (phash), Krawetz 2013 (dhash), Facebook 2019 (PDQ).
    """

    kinds: Sequence[Literal["phash", "dhash", "pdq"]] = field(default_factory=lambda: ["phash"])
    variants: Literal["none", "flips", "all"] = "none"

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in BYTES]
        if unknown or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ValueError(f"kinds lists some of {', '.join(BYTES)}, each once, got {list(self.kinds)!r}")
        if self.variants not in VARIANTS:
            raise ValueError(f"variants must be one of {', '.join(VARIANTS)}, got {self.variants!r}")

    def contract(self) -> Contract:
        adds = {kind: self._type(kind) for kind in self.kinds}
        return Contract(needs={"pixels"}, adds=adds | ({"pdq_quality": pa.int32()} if "pdq" in adds else {}))

    def _type(self, kind: str) -> pa.DataType:
        one = pa.binary(BYTES[kind])
        return one if self.variants == "none" else pa.list_(one)

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_image import hashes

        cv2.setNumThreads(1)
        self._hashes = hashes

    def process(self, batch: ImageBatch) -> ImageBatch:
        columns: dict[str, list] = {name: [] for name in self.contract().adds}
        for pixels in batch.pixels or [None] * len(batch):
            found = {} if pixels is None else self._of(pixels)
            for name, values in columns.items():
                values.append(found.get(name))
        types = self.contract().adds
        return batch.with_columns({name: pa.array(values, types[name]) for name, values in columns.items()})

    def _of(self, pixels: np.ndarray) -> dict[str, object]:
        grey = self._hashes.grey(pixels)
        found: dict[str, object] = {}
        for kind in self.kinds:
            made = getattr(self._hashes, kind)(grey, self.variants)
            if kind == "pdq":
                made, found["pdq_quality"] = made
            if made is not None:
                views = [view.tobytes() for view in made]
                found[kind] = views[0] if self.variants == "none" else views
        return found
