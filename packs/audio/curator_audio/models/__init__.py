"""Scores, tags and embeddings by models."""

from curator_audio.models.dnsmos import Dnsmos
from curator_audio.models.embed import Embed
from curator_audio.models.tag import Tag

STAGES: tuple[type, ...] = (Dnsmos, Embed, Tag)
