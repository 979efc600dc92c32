"""How much of a clip moves, and how the camera does.

`diagonals`: lengths are shares of the picture's diagonal, so that they do not depend on its size.

| column | what | unit |
| --- | --- | --- |
| motion_mean | mean length of optical flow, over all of the picture and the clip | diagonals a second |
| motion_max | that of the fastest step | diagonals a second |
| camera_x, camera_y | mean motion of the camera to the right, and up; what is there and back again cancels out | diagonals a second |
| zoom | growth of the picture, logarithm; above 0 towards what is filmed | 1 a second |
| roll | turn of the picture, clockwise | degrees a second |
| camera_motion | mean length of the flow that is the camera's | diagonals a second |
| shake | how far the camera is off the line between where it was and where it will be, the mean of the steps | diagonals |
| local_motion | mean length of what is left of the flow without the camera's | diagonals a second |
| moving_area | share of the picture that moves by itself: faster than 0.03 diagonals a second against the camera's flow | 0 to 1 |
| camera | `static`, `pan`, `tilt`, `zoom_in`, `zoom_out`, `roll`, `handheld` (shake above 0.006) or `mixed` | |
| static | motion_mean below 0.008 and moving_area below 0.01 | bool |

Null: all where there are fewer than 2 frames, or no two of one shot; those of the camera where the picture has too little
structure to tell; shake where no three frames follow each other.

Flow: DIS (Kroeger et al. 2016) between thumbnails of 64 x 36 without black bars, about `fps` of them a second. Of each four such
steps two that follow each other are looked at, of clips with up to eight steps all; steps across cuts are left out. The camera's
motion is the shift, growth and turn that most textured places have in common, by least squares reweighted after Geman and McClure
1987.

On textures moved by known paths (320 x 240 at 25 frames a second) shifts of 2, 3, 8 and 16 pixels a frame are found to 1 %, a
growth of 1 % a frame and a turn of 1 degree to 8 %; grain of 5 levels has 0.002 diagonals a second, a still 0; a square of 8 %
of the picture that moves counts as 15 to 17 %, as what it covers does, too. In a step of 1 / `fps` seconds an eighth of the
picture's width is found, a quarter is not. As thresholds of others: NVIDIA's 0.00098 a frame is 0.03 diagonals a second, LVD-2M's 20
pixels 0.04.

Source: Kroeger et al. 2016, Fast Optical Flow using Dense Inverse Search, arXiv:1603.03590. Limits of names are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch

COLUMNS: dict[str, pa.DataType] = dict.fromkeys((
    "motion_mean", "motion_max", "camera_x", "camera_y", "zoom", "roll", "camera_motion", "shake", "local_motion", "moving_area",
), pa.float32()) | {"camera": pa.string(), "static": pa.bool_()}


@dataclass(kw_only=True)
class Motion(Stage):
    """Measure how much of a clip moves, and split it into the camera's motion (pan, zoom, roll, shake) and what moves by itself.

    Adds the columns of the table in `curator_video.measures.motion`. Null where there are no two frames. Needs `thumbs` and
    `thumb_times`, and of `frames` the shape only: `video.decode` makes all three.

    `fps`: steps a second, about, of which every second pair is looked at; more find faster and shorter motion, and cost more.
    `shake` is of a step: of a film by hand it is 1.4 times as large with 8 as with 12.
    """

    fps: float = 8.0

    version = 6

    def __post_init__(self) -> None:
        if not 0 < self.fps < math.inf:
            raise ValueError(f"fps is more than 0 frames a second, got {self.fps}")

    def contract(self) -> Contract:
        return Contract(needs={"thumbs", "thumb_times", "frames"}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_video.measures.flow import motion

        cv2.setNumThreads(1)
        self._motion = motion

    def process(self, batch: VideoBatch) -> VideoBatch:
        none = [None] * len(batch)
        measured = []
        for thumbs, times, frames in zip(batch.thumbs or none, batch.thumb_times or none, batch.frames or none, strict=True):
            shape = (9, 16) if frames is None or not frames.size else frames.shape[1:3]
            measured.append(self._motion(thumbs, times, shape[1], shape[0], self.fps))
        return batch.with_columns({name: pa.array([of_clip[name] for of_clip in measured], kind) for name, kind in COLUMNS.items()})
