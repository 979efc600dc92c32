"""Recordings from folders, manifests and shards."""

from curator_audio.read.decode import Decode
from curator_audio.read.files import AudioFiles

STAGES: tuple[type, ...] = (AudioFiles, Decode)
