# For editors and type checkers alone, which cannot ask what is installed. A pack that is not is of any type.
import curator_audio as audio
import curator_dedup as dedup
import curator_image as image
import curator_text as text
import curator_video as video

import curator.stages as core

__all__ = ["audio", "core", "dedup", "image", "text", "video"]
