"""Scores, tags, languages and embeddings by models."""

STAGES: tuple[type, ...] = ()
