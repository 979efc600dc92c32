"""Clips in the layouts of others."""
