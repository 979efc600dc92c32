"""Where speech is, and utterances cut out of long recordings."""

from curator_audio.cut.segment import Segment
from curator_audio.cut.vad import Vad
from curator_audio.cut.windows import Windows

STAGES: tuple[type, ...] = (Segment, Vad, Windows)
