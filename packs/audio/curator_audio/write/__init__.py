"""Manifests and shards as speech toolkits read them."""
