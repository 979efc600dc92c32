"""Transcripts: made, compared with each other, held against the sound."""
