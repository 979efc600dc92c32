"""Who speaks: embeddings, turns, purity, RTTM."""
