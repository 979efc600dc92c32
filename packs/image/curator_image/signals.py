"""Scores of an image that need no model.

Ratios are shares of what their name says, 0 to 1. Levels are those of 8-bit luma (ITU-R BT.601), 0 to 255.

| column | what | range | source |
| --- | --- | --- | --- |
| aspect_ratio | width / height, as displayed | above 0 | |
| megapixels | width x height / 10^6, before any reduction | above 0 | |
| brightness | mean luma | 0 to 1 | |
| contrast | RMS contrast: standard deviation of luma / 255 | 0 to 0.5 | Peli 1990 |
| dark_ratio | pixels in the lowest 6 levels: shadows without detail | 0 to 1 | |
| bright_ratio | pixels in the highest 6 levels: burnt highlights, white backgrounds | 0 to 1 | |
| entropy | bits of the histogram of luma; 0 is one shade | 0 to 8 | Shannon 1948 |
| colourfulness | 0 grey, 15 slightly, 33 moderately, 59 quite, 109 extremely | 0 to 293 | Hasler and Suesstrunk 2003, M3 |
| greyscale | in no pixel do channels differ by over 8 levels; sepia is not grey | bool | |
| blank_ratio | largest share of one colour, within 8 levels a channel | 0 to 1 | |
| sharpness | variance of the Laplacian (4 neighbours) | 0 and more | Pech-Pacheco et al. 2000 |
| sharpness_max | mean square of the Laplacian where it is greatest, of tiles of about 48 pixels | 0 and more | |
| noise | standard deviation of the noise in levels, in the smoothest quarter of the tiles | 0 and more | Immerkaer 1996 |
| blockiness | steps on the grid of 8 x 8 blocks (B) against those inside (A): (B - A) / (B + A) | 0 to 1 | Wang et al. 2002 |
| border_ratio | area in borders of one shade with a straight inner edge; 1 if all is one shade | 0 to 1 | |
| text_ratio | area in boxes around what looks like upright lines of text | 0 to 1 | Wu et al. 2008 |
| edge_text_ratio | the same, of lines in the upper and lower fifth: captions, credits, timestamps | 0 to 1 | |
| tiling | how strongly fine detail repeats at a distance, as a tiled watermark does | 0 to 1 | |

Null: all where there are no pixels, aspect_ratio and megapixels where the size is not known; where the pixels
have too few rows or columns, the sharpnesses and noise (under 3), text (32), blockiness (32) and tiling
(128). Blockiness also where the pixels are not those of the file (they are fewer than width x height): the
grid is gone then.

Scale. Luma is measured on at most 384 pixels of the shorter side (1536 of the longer), scaled down with area
weights and never up, so that images of different sizes compare: a large one that is soft at full size counts
as sharp if it is so at 384. Colours are those of 96 x 96 pixels spread over the image. `noise` and
`blockiness` look at the middle 512 x 512 pixels as they are.

Known differences. Immerkaer takes the mean over the image, and so counts texture as noise. Wang et al.
compare means on the grid that begins in the corner; here medians are compared, so that a line in the picture
is no grid, at the strongest of its eight places in either direction, so that rotation and cropping do not
matter.

`sharpness_max` tells a sharp face before a soft background from a picture that is soft everywhere;
`sharpness` does not. Both grow with the square of the contrast, so that a dim picture has less.

`border_ratio` finds nine in ten of the black, white and grey bars and frames drawn around photographs and
saved as JPEG, to the pixel; a black bar is missed where the picture beside it is black too. A box seen from
the front before an even background is a border to it.

`text_ratio` is a heuristic: rendered pages have 0.38 and more, two lines of caption 0.02 to 0.07, photographs
0.00 to 0.02, a few with fine horizontal texture or real lettering 0.04. It does not see slanted or vertical
text, single letters, strokes over 6 pixels of 384, or light grey on white.

`tiling` is the highest peak of the whitened autocorrelation away from its origin, which is 1, and from the
axes. Photographs have 0.0014, up to 0.0027 with masonry; with a word in white at 15 to 40% every 50 to 90
pixels of 500 they have 0.006 to
0.010, every 90 to 150 pixels 0.002 to 0.004. Marks that repeat fewer than four times across are seldom found,
and single ones never: a logo in a corner shows in `edge_text_ratio`, if it is a line of text, or not at all.

Peli: JOSA A 7(10). Hasler and Suesstrunk: SPIE 5007. Pech-Pacheco et al.: ICPR 2000. Immerkaer: CVIU 64(2).
Wang, Sheikh and Bovik: ICIP 2002. Wu, Hsieh and Chen: Machine Vision and Applications 19(3). What has no
source is our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curator.api.names import chosen
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import ImageBatch

OF_SIZE = ("aspect_ratio", "megapixels")
OF_PIXELS = (
    "brightness", "contrast", "dark_ratio", "bright_ratio", "entropy", "colourfulness", "greyscale",
    "blank_ratio", "sharpness",
    "sharpness_max", "noise", "blockiness", "border_ratio", "text_ratio", "edge_text_ratio", "tiling",
)
COLUMNS: dict[str, pa.DataType] = dict.fromkeys((*OF_SIZE, *OF_PIXELS),
                                                pa.float32()) | {"greyscale": pa.bool_()}


@dataclass(kw_only=True)
class Signals(Stage):
    """Measure an image without a model: shape, exposure, sharpness, noise, colour, blocks, borders, text,
    tiled marks.

    Adds the columns of the table in `curator_image.signals`. Decide on them with `drop`, by the packaged rule
    set `quality` or `strict` or conditions of your own. Null where there are no pixels, or too few.

    `only`: the columns to add; None for all. What is left out is not computed, though columns that come of
    one computation cost what one of them does: those of the histogram, of colours, of sharpness, of text.
    """

    only: list[str] | None = None

    def __post_init__(self) -> None:
        chosen(self.only, COLUMNS)  # raises where it names what is none

    def contract(self) -> Contract:
        adds = chosen(self.only, COLUMNS)
        needs: dict[str, pa.DataType | None] = {}
        if not adds.keys().isdisjoint(OF_PIXELS):
            needs["pixels"] = None
        if not adds.keys().isdisjoint((*OF_SIZE, "blockiness")):
            needs |= {"width": pa.int32(), "height": pa.int32()}
        return Contract(needs=needs, adds=adds)

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_image.measures import measure

        cv2.setNumThreads(1)
        self._measure = measure

    def process(self, batch: ImageBatch) -> ImageBatch:
        contract = self.contract()
        values: dict[str, pa.ChunkedArray] = {}
        measured: list[Any] = []
        sizes: list[tuple] = [(None, None)] * len(batch)
        if "width" in contract.needs:
            values |= _of_size(batch.rows.column("width"), batch.rows.column("height"))
            sizes = list(zip(batch.column("height"), batch.column("width"), strict=True))
        if "pixels" in contract.needs:
            wanted = [name for name in OF_PIXELS if name in contract.adds]
            measured = [self._measure(image, wanted, reduced=image is not None and image.shape[:2] != size)
                        for image, size in zip(batch.pixels or [None] * len(batch), sizes, strict=True)]
        return batch.with_columns({name: pa.array([of_image[name] for of_image in measured], kind)
                                   if name in OF_PIXELS else values[name].cast(kind)
                                   for name, kind in contract.adds.items()})


def _of_size(width: pa.ChunkedArray, height: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Shape and area, null where a side is null or 0."""
    sides = [pc.if_else(pc.greater(side, 0), side, None).cast(pa.float64()) for side in (width, height)]
    return {"aspect_ratio": pc.divide(*sides), "megapixels": pc.divide(pc.multiply(*sides), 1e6)}
