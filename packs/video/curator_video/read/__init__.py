"""Films: found, opened, looked over without decoding, decoded once."""

from curator_video.read.decode import Decode
from curator_video.read.files import VideoFiles
from curator_video.read.manifest import Manifest
from curator_video.read.probe import Probe

STAGES: tuple[type, ...] = (VideoFiles, Manifest, Probe, Decode)
