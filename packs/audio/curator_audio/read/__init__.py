"""Recordings from folders, manifests and shards."""

STAGES: tuple[type, ...] = ()
