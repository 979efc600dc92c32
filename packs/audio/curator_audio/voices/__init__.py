"""Who speaks: embeddings, turns, purity, RTTM."""

STAGES: tuple[type, ...] = ()
