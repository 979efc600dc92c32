"""What tells that two clips are the same."""

from curator_video.copies.hash import Hash

STAGES: tuple[type, ...] = (Hash,)
