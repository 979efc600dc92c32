"""Audio stages for Curator: decoding, measures, voice activity, utterances, transcripts, speakers, copies."""

from __future__ import annotations

from curator_audio.copies.fingerprint import Fingerprint
from curator_audio.copies.hash import Hash
from curator_audio.cut.concat import Concat
from curator_audio.cut.segment import Segment
from curator_audio.cut.vad import Vad
from curator_audio.cut.windows import Windows
from curator_audio.measures.signals import Signals
from curator_audio.models.dnsmos import Dnsmos
from curator_audio.models.embed import Embed
from curator_audio.models.tag import Tag
from curator_audio.read.decode import Decode
from curator_audio.read.files import AudioFiles
from curator_audio.read.manifest import Manifest
from curator_audio.read.shar import Shar
from curator_audio.read.tarred import Tarred
from curator_audio.sound.encode import Encode
from curator_audio.sound.loudness import Loudness
from curator_audio.sound.mono import Mono
from curator_audio.sound.resample import Resample
from curator_audio.sound.trim import Trim
from curator_audio.sound.waveform import Waveform
from curator_audio.voices.diarise import Diarise
from curator_audio.voices.embed_speaker import EmbedSpeaker
from curator_audio.voices.rttm import Rttm
from curator_audio.voices.speakers import Speakers
from curator_audio.words.align import Align
from curator_audio.words.hallucination import Hallucination
from curator_audio.words.rates import Rates
from curator_audio.words.spoken_language import SpokenLanguage
from curator_audio.words.transcribe import Transcribe
from curator_audio.words.transcribe_server import TranscribeServer
from curator_audio.words.wer import Wer
from curator_audio.write.to_hf import ToHf
from curator_audio.write.to_nemo import ToNemo
from curator_audio.write.to_shar import ToShar
from curator_audio.write.to_subtitles import ToSubtitles

STAGES: tuple[type, ...] = (
    # reading
    AudioFiles,
    Manifest,
    Tarred,
    Shar,
    Decode,
    # samples
    Resample,
    Mono,
    Trim,
    Loudness,
    Encode,
    Waveform,
    # measures
    Signals,
    # speech and utterances
    Vad,
    Segment,
    Windows,
    Concat,
    # transcripts
    Rates,
    Transcribe,
    TranscribeServer,
    Wer,
    Hallucination,
    Align,
    SpokenLanguage,
    # speakers
    EmbedSpeaker,
    Speakers,
    Diarise,
    Rttm,
    # models
    Dnsmos,
    Embed,
    Tag,
    # copies
    Fingerprint,
    Hash,
    # writing
    ToNemo,
    ToShar,
    ToHf,
    ToSubtitles,
)

__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
