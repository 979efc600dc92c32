"""Transcripts: made, compared with each other, held against the sound."""

from curator_audio.words.hallucination import Hallucination
from curator_audio.words.rates import Rates
from curator_audio.words.wer import Wer

STAGES: tuple[type, ...] = (Rates, Wer, Hallucination)
