"""Clips cut out of films, their frames, sound and previews."""

from curator_video.clips.audio import Audio
from curator_video.clips.cut import Cut
from curator_video.clips.frames import Frames
from curator_video.clips.preview import Preview

STAGES: tuple[type, ...] = (Cut, Frames, Audio, Preview)
