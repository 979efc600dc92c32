"""Manifests and shards as speech toolkits read them."""

from curator_audio.write.to_hf import ToHf
from curator_audio.write.to_nemo import ToNemo
from curator_audio.write.to_shar import ToShar
from curator_audio.write.to_subtitles import ToSubtitles

STAGES: tuple[type, ...] = (ToNemo, ToShar, ToHf, ToSubtitles)
