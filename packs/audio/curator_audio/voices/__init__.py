"""Who speaks: embeddings, turns, purity, RTTM."""

from curator_audio.voices.embed_speaker import EmbedSpeaker
from curator_audio.voices.rttm import Rttm
from curator_audio.voices.speakers import Speakers

STAGES: tuple[type, ...] = (EmbedSpeaker, Speakers, Rttm)
