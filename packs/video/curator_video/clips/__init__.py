"""Clips cut out of films, their frames, sound and previews."""

from curator_video.clips.cut import Cut
from curator_video.clips.preview import Preview

STAGES: tuple[type, ...] = (Cut, Preview)
