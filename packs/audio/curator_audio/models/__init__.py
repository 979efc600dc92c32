"""Scores, tags and embeddings by models."""
