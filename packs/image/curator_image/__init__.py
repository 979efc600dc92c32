"""Image stages for Curator: decoding, scores, perceptual hashes, faces, models, thumbnails."""

from __future__ import annotations

from curator_image.signals import Signals

STAGES: tuple[type, ...] = (
    # files and pixels

    # scores, hashes and faces
    Signals,

    # models

)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
