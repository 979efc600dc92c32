"""Numbers about a clip that need no model."""

from curator_video.measures.motion import Motion
from curator_video.measures.overlay import Overlay
from curator_video.measures.signals import Signals
from curator_video.measures.sound_level import SoundLevel
from curator_video.measures.vectors import Vectors

STAGES: tuple[type, ...] = (Motion, Overlay, Signals, SoundLevel, Vectors)
