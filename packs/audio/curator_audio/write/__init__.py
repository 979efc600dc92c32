"""Manifests and shards as speech toolkits read them."""

from curator_audio.write.to_nemo import ToNemo

STAGES: tuple[type, ...] = (ToNemo,)
