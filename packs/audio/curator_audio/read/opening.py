"""Opening a file with sound, whatever its name says."""

from __future__ import annotations

from typing import BinaryIO

from curator_audio.read.by_av import AvSound
from curator_audio.read.by_soundfile import FileSound
from curator_audio.read.sound import BadSound, Sound

# The first bytes of what libsndfile decodes exactly. MP3 is not among them: without an index it ends early, and tells nothing.
_SOUNDFILE = (b"RIFF", b"RIFX", b"RF64", b"riff", b"fLaC", b"OggS", b"FORM", b".snd", b"dns.", b"caff")


def open_sound(file: BinaryIO, audio_stream: int = 0) -> Sound:
    """The sound of a file, by libsndfile where that is exact and else by FFmpeg; its content decides which.

    `audio_stream`: which one, of a file with several.

    Raises: BadSound: there is none that can be read.
    """
    head = file.read(12)
    if not head:
        raise BadSound("empty file")
    fault = None
    if audio_stream == 0 and head.startswith(_SOUNDFILE) and head[8:12] != b"AVI ":
        try:
            return FileSound(file)
        except BadSound as error:
            fault = error
    try:
        return AvSound(file, audio_stream, known=["damaged"] if fault is not None and fault.malformed else [])
    except BadSound as error:
        raise fault or error from None
