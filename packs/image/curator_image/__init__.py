"""Image stages for Curator: decoding, scores, perceptual hashes, faces, models, thumbnails."""

from __future__ import annotations

from curator_image.alignment import Alignment
from curator_image.caption import Caption
from curator_image.caption_server import CaptionServer
from curator_image.classify import Classify, Nsfw
from curator_image.decode import Decode
from curator_image.embed import Embed
from curator_image.encode import Encode
from curator_image.faces import Faces
from curator_image.files import ImageFiles
from curator_image.hash import Hash
from curator_image.head import Aesthetic, Head
from curator_image.ocr import Ocr
from curator_image.resize import Resize
from curator_image.signals import Signals
from curator_image.thumbnail import Thumbnail
from curator_image.zero_shot import ZeroShot

STAGES: tuple[type, ...] = (
    # files and pixels
    ImageFiles,
    Decode,
    Resize,
    Thumbnail,
    Encode,
    # scores, hashes and faces
    Signals,
    Hash,
    Faces,
    # models
    Embed,
    Aesthetic,
    Head,
    Nsfw,
    Classify,
    ZeroShot,
    Alignment,
    Caption,
    CaptionServer,
    Ocr,
)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
