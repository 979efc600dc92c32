"""Image stages for Curator: decoding, scores, perceptual hashes, faces, models, thumbnails."""

from __future__ import annotations

from curator_image.faces import Faces
from curator_image.hash import Hash

STAGES: tuple[type, ...] = (
    # files and pixels

    # scores, hashes and faces
    Faces,
    Hash,

    # models

)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
