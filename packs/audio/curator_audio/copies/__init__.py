"""Copies of recordings: exact ones by a hash, near ones by a fingerprint."""
