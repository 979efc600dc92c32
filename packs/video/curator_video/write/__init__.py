"""Clips in the layouts of others."""

from curator_video.write.to_nemo import ToNemo

STAGES: tuple[type, ...] = (ToNemo,)
