"""Audio stages for Curator: decoding, measures, voice activity, utterances, transcripts, speakers, copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes

# Each by its name, as `module:Class`: who asks for one imports that module alone.
STAGES = {
    # reading
    "files": "curator_audio.read.files:AudioFiles",
    "manifest": "curator_audio.read.manifest:Manifest",
    "tarred": "curator_audio.read.tarred:Tarred",
    "shar": "curator_audio.read.shar:Shar",
    "decode": "curator_audio.read.decode:Decode",
    # samples
    "resample": "curator_audio.sound.resample:Resample",
    "mono": "curator_audio.sound.mono:Mono",
    "trim": "curator_audio.sound.trim:Trim",
    "loudness": "curator_audio.sound.loudness:Loudness",
    "encode": "curator_audio.sound.encode:Encode",
    "waveform": "curator_audio.sound.waveform:Waveform",
    # measures
    "signals": "curator_audio.measures.signals:Signals",
    # speech and utterances
    "vad": "curator_audio.cut.vad:Vad",
    "segment": "curator_audio.cut.segment:Segment",
    "windows": "curator_audio.cut.windows:Windows",
    "concat": "curator_audio.cut.concat:Concat",
    # transcripts
    "rates": "curator_audio.words.rates:Rates",
    "transcribe": "curator_audio.words.transcribe:Transcribe",
    "transcribe_server": "curator_audio.words.transcribe_server:TranscribeServer",
    "wer": "curator_audio.words.wer:Wer",
    "hallucination": "curator_audio.words.hallucination:Hallucination",
    "align": "curator_audio.words.align:Align",
    "spoken_language": "curator_audio.words.spoken_language:SpokenLanguage",
    # speakers
    "embed_speaker": "curator_audio.voices.embed_speaker:EmbedSpeaker",
    "speakers": "curator_audio.voices.speakers:Speakers",
    "diarise": "curator_audio.voices.diarise:Diarise",
    "rttm": "curator_audio.voices.rttm:Rttm",
    # models
    "dnsmos": "curator_audio.models.dnsmos:Dnsmos",
    "embed": "curator_audio.models.embed:Embed",
    "tag": "curator_audio.models.tag:Tag",
    # copies
    "fingerprint": "curator_audio.copies.fingerprint:Fingerprint",
    "hash": "curator_audio.copies.hash:Hash",
    # writing
    "to_nemo": "curator_audio.write.to_nemo:ToNemo",
    "to_shar": "curator_audio.write.to_shar:ToShar",
    "to_hf": "curator_audio.write.to_hf:ToHf",
    "to_subtitles": "curator_audio.write.to_subtitles:ToSubtitles",
}

if TYPE_CHECKING:
    from curator_audio.copies.fingerprint import Fingerprint as Fingerprint
    from curator_audio.copies.hash import Hash as Hash
    from curator_audio.cut.concat import Concat as Concat
    from curator_audio.cut.segment import Segment as Segment
    from curator_audio.cut.vad import Vad as Vad
    from curator_audio.cut.windows import Windows as Windows
    from curator_audio.measures.signals import Signals as Signals
    from curator_audio.models.dnsmos import Dnsmos as Dnsmos
    from curator_audio.models.embed import Embed as Embed
    from curator_audio.models.tag import Tag as Tag
    from curator_audio.read.decode import Decode as Decode
    from curator_audio.read.files import AudioFiles as AudioFiles
    from curator_audio.read.manifest import Manifest as Manifest
    from curator_audio.read.shar import Shar as Shar
    from curator_audio.read.tarred import Tarred as Tarred
    from curator_audio.sound.encode import Encode as Encode
    from curator_audio.sound.loudness import Loudness as Loudness
    from curator_audio.sound.mono import Mono as Mono
    from curator_audio.sound.resample import Resample as Resample
    from curator_audio.sound.trim import Trim as Trim
    from curator_audio.sound.waveform import Waveform as Waveform
    from curator_audio.voices.diarise import Diarise as Diarise
    from curator_audio.voices.embed_speaker import EmbedSpeaker as EmbedSpeaker
    from curator_audio.voices.rttm import Rttm as Rttm
    from curator_audio.voices.speakers import Speakers as Speakers
    from curator_audio.words.align import Align as Align
    from curator_audio.words.hallucination import Hallucination as Hallucination
    from curator_audio.words.rates import Rates as Rates
    from curator_audio.words.spoken_language import SpokenLanguage as SpokenLanguage
    from curator_audio.words.transcribe import Transcribe as Transcribe
    from curator_audio.words.transcribe_server import TranscribeServer as TranscribeServer
    from curator_audio.words.wer import Wer as Wer
    from curator_audio.write.to_hf import ToHf as ToHf
    from curator_audio.write.to_nemo import ToNemo as ToNemo
    from curator_audio.write.to_shar import ToShar as ToShar
    from curator_audio.write.to_subtitles import ToSubtitles as ToSubtitles
else:
    __getattr__, __dir__ = attributes(__name__, STAGES)
