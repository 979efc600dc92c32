"""Recordings from folders, manifests and shards."""

from curator_audio.read.decode import Decode
from curator_audio.read.files import AudioFiles
from curator_audio.read.manifest import Manifest

STAGES: tuple[type, ...] = (AudioFiles, Manifest, Decode)
