"""Image stages for Curator: decoding, scores, perceptual hashes, faces, models, thumbnails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes

# Each by its name, as `module:Class`: who asks for one imports that module alone.
STAGES = {
    # files and pixels
    "files": "curator_image.files:ImageFiles",
    "decode": "curator_image.decode:Decode",
    "resize": "curator_image.resize:Resize",
    "thumbnail": "curator_image.thumbnail:Thumbnail",
    "encode": "curator_image.encode:Encode",
    # scores, hashes and faces
    "signals": "curator_image.signals:Signals",
    "hash": "curator_image.hash:Hash",
    "faces": "curator_image.faces:Faces",
    # models
    "embed": "curator_image.embed:Embed",
    "aesthetic": "curator_image.head:Aesthetic",
    "head": "curator_image.head:Head",
    "nsfw": "curator_image.classify:Nsfw",
    "classify": "curator_image.classify:Classify",
    "zero_shot": "curator_image.zero_shot:ZeroShot",
    "alignment": "curator_image.alignment:Alignment",
    "caption": "curator_image.caption:Caption",
    "caption_server": "curator_image.caption_server:CaptionServer",
    "ocr": "curator_image.ocr:Ocr",
}

if TYPE_CHECKING:
    from curator_image.alignment import Alignment as Alignment
    from curator_image.caption import Caption as Caption
    from curator_image.caption_server import CaptionServer as CaptionServer
    from curator_image.classify import Classify as Classify
    from curator_image.classify import Nsfw as Nsfw
    from curator_image.decode import Decode as Decode
    from curator_image.embed import Embed as Embed
    from curator_image.encode import Encode as Encode
    from curator_image.faces import Faces as Faces
    from curator_image.files import ImageFiles as ImageFiles
    from curator_image.hash import Hash as Hash
    from curator_image.head import Aesthetic as Aesthetic
    from curator_image.head import Head as Head
    from curator_image.ocr import Ocr as Ocr
    from curator_image.resize import Resize as Resize
    from curator_image.signals import Signals as Signals
    from curator_image.thumbnail import Thumbnail as Thumbnail
    from curator_image.zero_shot import ZeroShot as ZeroShot
else:
    __getattr__, __dir__ = attributes(__name__, STAGES)
