"""Scores of a clip that need no model.

Ratios are shares of what their name says, 0 to 1. Luma is between black (16 in the film) and white (235), 0 to 1. Shares of
a clip are shares of its time: each frame counts as long as it is shown.

| column | what | range | source |
| --- | --- | --- | --- |
| brightness | mean luma | 0 to 1 | |
| brightness_min, brightness_max | of the darkest and the brightest frame | 0 to 1 | |
| contrast | standard deviation of luma in a frame, the mean of the frames | 0 to 0.5 | Peli 1990 |
| black_ratio | frames that are black: mean below 0.02, deviation below 0.03 | 0 to 1 | |
| white_ratio | frames that are white: mean above 0.97, deviation below 0.03 | 0 to 1 | |
| blank_ratio | frames of one shade: deviation below 0.009 | 0 to 1 | |
| exposure_ratio | frames of which over 12 % are at the camera's limits (5 levels of 255), bars left out | 0 to 1 | UltraVideo |
| freeze_ratio | in runs of half a second and more in which nothing changes | 0 to 1 | |
| longest_freeze | the longest of these runs | s | |
| duplicate_ratio | frames that repeat the one before, while there is motion | 0 to 1 | |
| true_fps | new frames a second while there is motion | Hz | |
| flicker | RMS of L(t) - (L(t-1) + L(t+1)) / 2 over mean L; L: mean luma of a frame; cuts and repeats left out | 0 and more | |
| jump_ratio | steps between frames that are cuts left inside | 0 to 1 | |
| saturation | mean saturation of HSV | 0 to 1 | Step-Video |
| colourfulness | 0 grey, 15 slightly, 33 moderately, 59 quite, 109 extremely; mean of the frames | 0 to 293 | Hasler 2003 |
| greyscale | in no frame do the channels of over 0.1 % of the pixels differ by over 12 levels of 255 | bool | |
| sharpness | mean square of the Laplacian in the sharpest of 8 x 8 tiles; median of the frames | 0 and more | Pech-Pacheco 2000 |
| sharpness_min, sharpness_max | of the softest and the sharpest frame | 0 and more | |
| border_top, border_bottom | height of the black bar, as a share of the frame's height | 0 to 1 | |
| border_left, border_right | width of the black bar, as a share of the frame's width | 0 to 1 | |
| border_ratio | area in bars | 0 to 1 | |
| content_aspect | width / height of what is between the bars | above 0 | |

Down to `jump_ratio` they are measured on every frame, on the thumbnails of 64 x 36 (`thumbs`); the others on up to 32 of the
sampled `frames`, scaled down to 384 pixels of the longer side; of these the colours are those of single pixels, 90 along that side.

Null: all where there is no frame; what compares frames where there are fewer than 2 (flicker: 3); true_fps and
duplicate_ratio of less than half a second of motion; flicker of a black clip; sharpness of frames under 3 pixels a side;
bars and content_aspect of a clip that is black all over.

A frame repeats another if their thumbnails differ by less than 0.25 levels in the mean: what x264 makes of a repeat differs by 0.01, a
picture that moves by 1 and more. In a freeze each frame is compared with the first of the run, so that a slow pan is none. A still
scene before a camera that stands still is a freeze to this measure, if it is quiet: no film can tell them apart.

`true_fps`: of 24 pictures a second written as 30 by repeats it is 24; cartoons drawn on twos have 12. It counts repeats that
stand out, with less than a tenth of the change of the ten steps around them: no blended frames, and fewer at low bit rates, where
an encoder moves what stood still.

`jump_ratio` finds hard cuts: two frames that hardly correlate (below 0.6), nor after one is shifted, and differ by 4 levels and more,
when the next 0.16 s do not return to what was before: a flash is no cut. Fades and dissolves are found by `video.shots` only.

`border_*` are black bars of a straight inner edge, in rows and columns where 98 % of all pixels of all frames are black; of two
opposite ones one may have a logo or words over it, if 75 % of it are black. They
are found to the pixel of the frames given; coloured or blurred sides are none, nor bars beside which all is dark on both sides.
`video.hash` leaves them out in the same way.

Peli: JOSA A 7(10). Hasler and Suesstrunk: SPIE 5007, M3. Pech-Pacheco et al.: ICPR 2000. UltraVideo: as the survey
github.com/xiaojian-pika/data-wiki gives it. Step-Video-T2V: arXiv:2502.10248, section 7. What has no source is our own.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.names import chosen
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch

OF_THUMBS = (
    "brightness", "brightness_min", "brightness_max", "contrast", "black_ratio", "white_ratio", "blank_ratio", "exposure_ratio",
    "freeze_ratio", "longest_freeze", "duplicate_ratio", "true_fps", "flicker", "jump_ratio",
)
OF_FRAMES = (
    "saturation", "colourfulness", "greyscale", "sharpness", "sharpness_min", "sharpness_max", "border_top", "border_bottom",
    "border_left", "border_right", "border_ratio", "content_aspect",
)
COLUMNS: dict[str, pa.DataType] = dict.fromkeys((*OF_THUMBS, *OF_FRAMES), pa.float32()) | {
    "longest_freeze": pa.float64(), "greyscale": pa.bool_()}


@dataclass(kw_only=True)
class Signals(Stage):
    """Measure a clip without a model: exposure, black, frozen and repeated frames, flicker, cuts left inside, colour, sharpness, bars.

    Adds the columns of the table in `curator_video.measures.signals`. Decide on them with `drop`, by the packaged rule set
    `video/quality` or conditions of your own. Null where there are no frames, or too few.

    `only`: the columns to add; None for all. What is left out is not computed, though columns that come of one computation
    cost what one of them does: those of repeats, of colours, of sharpness, of bars. Columns of the first group need `thumbs`
    and `thumb_times`, those of the second `frames`; `video.decode` makes both.
    """

    only: list[str] | None = None

    sparse = ("black_ratio", "white_ratio", "blank_ratio", "exposure_ratio", "freeze_ratio", "longest_freeze",
              "duplicate_ratio", "true_fps", "jump_ratio", "border_top", "border_bottom", "border_left", "border_right",
              "border_ratio", "content_aspect")
    version = 5

    def __post_init__(self) -> None:
        chosen(self.only, COLUMNS)  # raises where it names what is none

    def contract(self) -> Contract:
        adds = chosen(self.only, COLUMNS)
        needs: set[str] = set()
        if not adds.keys().isdisjoint(OF_THUMBS):
            needs |= {"thumbs", "thumb_times"}
        if not adds.keys().isdisjoint(OF_FRAMES):
            needs.add("frames")
        return Contract(needs=needs, adds=adds)

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_video.measures.measured import measure

        cv2.setNumThreads(1)
        self._measure = measure

    def process(self, batch: VideoBatch) -> VideoBatch:
        contract = self.contract()
        none = [None] * len(batch)
        given = [(getattr(batch, name) or none) if name in contract.needs else none for name in ("thumbs", "thumb_times", "frames")]
        measured = [self._measure(thumbs, times, frames, contract.adds) for thumbs, times, frames in zip(*given, strict=True)]
        return batch.with_columns({name: pa.array([of_clip[name] for of_clip in measured], kind)
                                   for name, kind in contract.adds.items()})
