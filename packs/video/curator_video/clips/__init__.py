"""Clips cut out of films, their frames, sound and previews."""
