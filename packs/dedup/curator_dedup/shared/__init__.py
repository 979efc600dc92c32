"""What the rooms share: arrays, hashes, who is kept, clusters, the last part of a deduplication."""
