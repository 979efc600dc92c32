"""Pictures to look at a clip by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import VideoBatch

KINDS: tuple[Literal["sheet", "preview"], ...] = ("sheet", "preview")


@dataclass(kw_only=True)
class Preview(Stage):
    """Make a contact sheet of each clip, and a small animation, to look at beside its row.

    Adds the columns that `kinds` names. `sheet` (binary, a JPEG file): pictures of the clip in rows, evenly spread over it, each
    with its second in the source. `preview` (binary, a WebP file that moves): those of them that are a second and more apart, one after the
    other, each for half a second, over and over. Both null where there are no frames.

    `pictures`: how many at most. `columns`: in a row of the sheet. `size`: pixels of the longer side of a picture, at most; small
    ones are not enlarged. `quality`: 1 to 100, of both.

    The report shows pictures of up to 48 KiB: a sheet of 12 at 160 pixels had 17 to 35 on real clips, an animation 7 to 27.
    """

    kinds: Sequence[Literal["sheet", "preview"]] = field(default_factory=lambda: list(KINDS))
    pictures: int = 12
    columns: int = 4
    size: int = 160
    quality: int = 60

    version = 4

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ValueError(f"kinds lists some of {', '.join(KINDS)}, each once, got {list(self.kinds)!r}")
        for name, least, most in (("pictures", 1, 200), ("columns", 1, 50), ("size", 16, 1024), ("quality", 1, 100)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {least} to {most}, got {getattr(self, name)}")

    def contract(self) -> Contract:
        return Contract(needs={"frames", "timestamps"}, adds=dict.fromkeys(self.kinds, pa.binary()))

    def example_columns(self) -> dict[str, Shown]:
        return dict.fromkeys(self.kinds, "image")

    def setup(self, ctx: Context) -> None:
        import cv2

        from curator_video.clips import pictures

        cv2.setNumThreads(1)
        self._pictures = pictures

    def process(self, batch: VideoBatch) -> VideoBatch:
        none = [None] * len(batch)
        made: dict[str, list[bytes | None]] = {kind: [] for kind in self.kinds}
        for frames, times in zip(batch.frames or none, batch.timestamps or none, strict=True):
            shown = None
            if frames is not None and times is not None and frames.size:
                shown = self._pictures.spread(frames, times, self.pictures, self.size)
            for kind, column in made.items():
                if shown is None:
                    column.append(None)
                elif kind == "sheet":
                    column.append(self._pictures.sheet(*shown, self.columns, self.quality))
                else:
                    column.append(self._pictures.animation(*shown, self.quality))
        return batch.with_columns({kind: pa.array(column, pa.binary()) for kind, column in made.items()})
