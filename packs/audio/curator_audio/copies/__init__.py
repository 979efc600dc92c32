"""Copies of recordings: exact ones by a hash, near ones by a fingerprint."""

from curator_audio.copies.fingerprint import Fingerprint
from curator_audio.copies.hash import Hash

STAGES: tuple[type, ...] = (Fingerprint, Hash)
