"""Where one shot ends and the next begins; spans of clips."""

from curator_video.shots.parts import Parts
from curator_video.shots.shots import Shots
from curator_video.shots.spans import Spans
from curator_video.shots.stride import Stride
from curator_video.shots.transnet import Transnet

STAGES: tuple[type, ...] = (Parts, Shots, Transnet, Stride, Spans)
