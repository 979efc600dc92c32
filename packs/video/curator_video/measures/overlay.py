"""Texts, logos and marks that lie over a clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch

LOGO_WIDTH = 1 / 3  # of the picture's width, that a logo has at most
BOX = pa.struct({name: pa.float32() for name in ("left", "top", "right", "bottom", "share")})
COLUMNS: dict[str, pa.DataType] = {"overlay_area": pa.float32(), "text_area": pa.float32(), "logo_area": pa.float32(),
                                   "overlays": pa.list_(BOX)}


@dataclass(kw_only=True)
class Overlay(Stage):
    """Find what lies over a clip without a model: subtitles, titles, logos, marks. It stands still, has sharp edges, and the picture
    beside it moves.

    Adds `overlay_area` (share of the picture in boxes around these, the mean over the clip), of which `logo_area` (what is there from
    first to last and less than a third as wide as the picture) and `text_area` (the rest); `overlays`, a list of the boxes: `left`, `top`,
    `right`, `bottom` (shares of width and height from the left and the top), `share` (of the clip in which it is there).

    Null where too little moves to tell (under 5 % of the picture), or there are not three frames some half a second apart: a still
    scene with a logo cannot be told from one with a sign in it.

    What stands for less than two seconds is not found, nor what lies over a part of the picture that does not move (a subtitle
    under a person who sits before a wall) or in a black bar, nor marks without sharp edges. Letters far apart count each for itself. On
    a texture that pans, boxes of a line of letters and of a mark are right to 2 pixels of 384. Of six clips of five real films two
    have something over them: a logo is found in the one, in the other a part of a title, but not the logo and the subtitle around
    which little moves; in the other four nothing is. Signs in the scene move with it, and are none.

    Needs `frames` and `timestamps`, of about two a second (video.decode); at most 48 of them are looked at, at 384 pixels.

    Source: temporal deviation of edges, as for station logos: Albiol et al. 2004, ICASSP, Detection of TV commercials; limits are
    our own.
    """

    sparse = ("overlay_area", "text_area", "logo_area", "overlays")
    version = 3

    def contract(self) -> Contract:
        return Contract(needs={"frames", "timestamps"}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_video.measures.standing import overlays
        from curator_video.measures.views import smaller

        cv2.setNumThreads(1)

        def found(frames: Any, times: Any) -> dict[str, Any]:
            if frames is None or times is None or not frames.size:
                return {}
            return columns(overlays(lambda k: cv2.cvtColor(smaller(frames[k]), cv2.COLOR_RGB2GRAY), times))

        self._found = found

    def process(self, batch: VideoBatch) -> VideoBatch:
        none = [None] * len(batch)
        measured = [self._found(*of_clip) for of_clip in zip(batch.frames or none, batch.timestamps or none, strict=True)]
        return batch.with_columns({name: pa.array([of_clip.get(name) for of_clip in measured], kind) for name, kind in COLUMNS.items()})


def columns(found: list[tuple[tuple[float, float, float, float], float]] | None) -> dict[str, Any]:
    """The columns of a clip with these boxes, each with its share of the clip."""
    if found is None:
        return {}
    areas = {"text_area": 0.0, "logo_area": 0.0}
    for (left, top, right, bottom), share in found:
        kind = "logo_area" if share == 1 and right - left < LOGO_WIDTH else "text_area"
        areas[kind] += share * (right - left) * (bottom - top)
    boxes = [{"left": box[0], "top": box[1], "right": box[2], "bottom": box[3], "share": share} for box, share in found]
    return {"overlay_area": sum(areas.values()), **areas, "overlays": boxes}
