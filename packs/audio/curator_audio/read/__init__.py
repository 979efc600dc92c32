"""Recordings from folders, manifests and shards."""

from curator_audio.read.decode import Decode
from curator_audio.read.files import AudioFiles
from curator_audio.read.manifest import Manifest
from curator_audio.read.shar import Shar
from curator_audio.read.tarred import Tarred

STAGES: tuple[type, ...] = (AudioFiles, Manifest, Tarred, Shar, Decode)
