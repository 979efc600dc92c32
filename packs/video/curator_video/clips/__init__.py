"""Clips cut out of films, their frames, sound and previews."""

from curator_video.clips.preview import Preview

STAGES: tuple[type, ...] = (Preview,)
