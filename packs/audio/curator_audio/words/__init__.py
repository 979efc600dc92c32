"""Transcripts: made, compared with each other, held against the sound."""

from curator_audio.words.align import Align
from curator_audio.words.hallucination import Hallucination
from curator_audio.words.rates import Rates
from curator_audio.words.spoken_language import SpokenLanguage
from curator_audio.words.transcribe import Transcribe
from curator_audio.words.transcribe_server import TranscribeServer
from curator_audio.words.wer import Wer

STAGES: tuple[type, ...] = (Rates, Transcribe, TranscribeServer, Wer, Hallucination, Align, SpokenLanguage)
