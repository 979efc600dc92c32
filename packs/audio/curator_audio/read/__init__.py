"""Recordings from folders, manifests and shards."""
