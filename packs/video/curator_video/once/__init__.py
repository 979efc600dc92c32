"""Clips in one pass over a film."""

from curator_video.once.clips import Clips

STAGES: tuple[type, ...] = (Clips,)
