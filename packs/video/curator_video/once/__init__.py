"""Clips in one pass over a film."""
