"""Image stages for Curator: decoding, scores, perceptual hashes, faces, models, thumbnails."""

from __future__ import annotations

from curator_image.caption import Caption
from curator_image.ocr import Ocr

STAGES: tuple[type, ...] = (
    # files and pixels

    # scores, hashes and faces

    # models
    Caption,
    Ocr,

)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
