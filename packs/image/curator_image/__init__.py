"""Image stages for Curator: decoding, scores, perceptual hashes, faces, models, thumbnails."""

from __future__ import annotations

from curator_image.decode import Decode
from curator_image.encode import Encode
from curator_image.resize import Resize
from curator_image.thumbnail import Thumbnail
from curator_image.hash import Hash

STAGES: tuple[type, ...] = (
    # files and pixels
    Decode,
    Encode,
    Resize,
    Thumbnail,

    # scores, hashes and faces
    Hash,

    # models

)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
