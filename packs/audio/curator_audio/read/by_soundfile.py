"""Sound by libsndfile: wav, flac, ogg, aiff, au, caf, w64, to the sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import soundfile

from curator_audio.read.by_av import AvSound
from curator_audio.read.sound import BLOCK, About, BadSound

_FORMATS = {"WAV": "wav", "WAVEX": "wav", "RF64": "wav", "FLAC": "flac", "OGG": "ogg", "AIFF": "aiff", "AU": "au", "CAF": "caf",
            "W64": "w64"}
_CODECS = {"PCM_S8": "pcm_s8", "PCM_U8": "pcm_u8", "ULAW": "pcm_mulaw", "ALAW": "pcm_alaw", "IMA_ADPCM": "adpcm_ima_wav",
           "MS_ADPCM": "adpcm_ms", "GSM610": "gsm_ms", "VORBIS": "vorbis", "OPUS": "opus"}
_WIDE = {"PCM_16": "pcm_s16", "PCM_24": "pcm_s24", "PCM_32": "pcm_s32", "FLOAT": "pcm_f32", "DOUBLE": "pcm_f64"}
_BITS = {"PCM_S8": 8, "PCM_U8": 8, "PCM_16": 16, "PCM_24": 24, "PCM_32": 32, "FLOAT": 32, "DOUBLE": 64, "ALAC_16": 16, "ALAC_20": 20,
         "ALAC_24": 24, "ALAC_32": 32, "ULAW": 8, "ALAW": 8}
_BIG_ENDIAN = {"aiff", "au", "caf"}
_LENGTHS = re.compile(r"^ *(?:data|SSND|Data Size|riff) *: *(\d+) \(should be (\d+)\)", re.MULTILINE)
_UNKNOWN_LENGTH = 0x7FFF_0000  # bytes: what writers put who did not know when they began, or a little more
_ANY_LENGTH = 1 << 36  # samples: more does not fit into the header of a FLAC
_PRE_ROLL_S = {"opus": 2.0}  # until what Opus has learned of the sound before is the same to the bit; 0.08 s are enough for the ear
_VORBIS_TAIL_S = 30  # libsndfile 1.2 jumps beside the place, by up to 256 samples, where that lies in the last page
_FIRST_PAGE = b"OggS\0\x02"
_STEP_16 = np.float32(1 / 32768)
_MALFORMED = 3  # SF_ERR_MALFORMED_FILE
_TAIL = 65_536  # bytes: an Ogg page has less


class FileSound:
    """A file that libsndfile opens. Where a FLAC is damaged, FFmpeg goes on behind it."""

    def __init__(self, file: BinaryIO) -> None:
        file.seek(0)
        try:
            self._sound = soundfile.SoundFile(_Patient(file))
        except (soundfile.LibsndfileError, TypeError, ValueError) as error:
            raise BadSound(_explained(file, error), malformed=getattr(error, "code", None) == _MALFORMED) from error
        self._file, self.notes = file, list[str]()
        self._cut = False  # whether the header or the last page says that something is missing
        sound = self._sound
        if sound.format not in _FORMATS or sound.subtype.startswith("MPEG"):
            raise BadSound(f"not read by libsndfile: {sound.format} {sound.subtype}")
        name = _FORMATS[sound.format]
        if name == "ogg" and _has_several_streams(file):
            raise BadSound("several streams in one ogg, of which libsndfile reads the first")
        codec = _codec(name, sound)
        self.about = About(format=name, codec=codec, bits=_BITS.get(sound.subtype), rate=sound.samplerate,
                           channels=sound.channels, declared_s=self._declared(name),
                           expected_s=sound.frames / sound.samplerate if 0 < sound.frames < _ANY_LENGTH else None)

    def blocks(self, start: int = 0, count: int | None = None) -> Iterator[np.ndarray]:
        self.notes = []
        done, left, step = 0, count, max(1, BLOCK // self.about.channels)
        kind = "int16" if self._sound.subtype == "PCM_16" else "float32"  # libsndfile is slow at making floats
        try:
            self._go_to(start)
            while left is None or left > 0:
                block = self._sound.read(step if left is None else min(step, left), dtype=kind, always_2d=True)
                if not len(block):
                    break
                done += len(block)
                left = None if left is None else left - len(block)
                yield block.T if kind == "float32" else block.T * _STEP_16
        except soundfile.LibsndfileError:
            yield from self._behind_damage(start, done, count)
            return
        if left is None and (self._cut or start + done < self._sound.frames):
            self.notes.append("truncated")

    def _go_to(self, start: int) -> None:
        """The next sample that is read is number `start`."""
        rate, last = self.about.rate, max(0, self._sound.frames)
        start = min(start, last)
        place = max(0, start - round(_PRE_ROLL_S.get(self.about.codec, 0) * rate))
        if self.about.codec == "vorbis":
            place = min(place, max(0, last - _VORBIS_TAIL_S * rate))
        # In an Opus file that begins later than at 0 (whose encoder was not told of its delay), libsndfile 1.2 displaces all of its
        # first read by so much, and loses that much behind it; not after a seek, be it to 0.
        if place != self._sound.tell() or self.about.codec == "opus":
            self._sound.seek(place)
        while place < start:
            place += len(self._sound.read(min(start - place, BLOCK), dtype="float32", always_2d=True)) or start

    def close(self) -> None:
        self._sound.close()

    def _behind_damage(self, start: int, done: int, count: int | None) -> Iterator[np.ndarray]:
        """What FFmpeg decodes of the rest: it looks for the next good frame, where libsndfile gives up."""
        try:
            other = AvSound(self._file, 0)
        except BadSound:
            self.notes.append("truncated")
            return
        skip, left = start + done, None if count is None else count - done
        for block in other.from_beginning(skip, left):
            if len(block) == self.about.channels:
                yield block
        self.notes += other.notes or ([] if left is not None else ["truncated"] if other.short_of(self.about.declared_s) else [])
        other.close()

    def _declared(self, name: str) -> float | None:
        """Seconds by the header; and whether the file has less."""
        frames, seconds = self._sound.frames, self._sound.frames / self._sound.samplerate
        if name == "flac":
            return seconds if 0 < frames < _ANY_LENGTH else None
        if name == "ogg":  # told by its last page, not by a header
            self._cut = not _has_last_page(self._file)
            return None
        said = _LENGTHS.search(self._sound.extra_info)
        if said and 0 < int(said[2]) < int(said[1]) and int(said[1]) < _UNKNOWN_LENGTH:
            self._cut = True
            sample_bytes = (_BITS.get(self._sound.subtype) or 4) / 8 * self._sound.channels  # 4: what ADPCM has
            return seconds + (int(said[1]) - int(said[2])) / sample_bytes / self._sound.samplerate
        return seconds


class _Patient:
    """A file that stays where it is when a broken header has libsndfile go before its beginning."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.read, self.readinto, self.tell = file.read, file.readinto, file.tell

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            return self._file.seek(offset, whence)
        except (ValueError, OSError):
            return self._file.tell()


def _codec(name: str, sound: soundfile.SoundFile) -> str:
    """The codec as FFmpeg calls it."""
    if name == "flac":
        return "flac"
    if sound.subtype.startswith("ALAC"):
        return "alac"
    if sound.subtype in _WIDE:
        big = sound.endian == "BIG" or (name in _BIG_ENDIAN and sound.endian != "LITTLE")
        return _WIDE[sound.subtype] + ("be" if big else "le")
    return _CODECS.get(sound.subtype, sound.subtype.lower())


def _has_several_streams(file: BinaryIO) -> bool:
    """Whether a second stream begins somewhere in an Ogg file (bit 1 of byte 5): beside the first, or behind it."""
    place, seen = file.tell(), b""
    file.seek(len(_FIRST_PAGE))
    while block := file.read(1 << 20):
        if _FIRST_PAGE in seen + block:
            break
        seen = block[1 - len(_FIRST_PAGE):]
    file.seek(place)
    return bool(block)


def _has_last_page(file: BinaryIO) -> bool:
    """Whether an Ogg file ends with a whole page that says it is the last one (bit 2 of byte 5 of its
    header).

    Source: RFC 3533, section 6: 27 bytes, of which the last is the number of lengths that follow, then the
    body.
    """
    place = file.tell()
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL))
    tail = file.read()
    file.seek(place)
    at = tail.rfind(b"OggS")
    page = tail[at:]
    if at < 0 or len(page) < 27 or not page[5] & 4:
        return False
    return len(page) >= 27 + page[26] + sum(page[27:27 + page[26]])


def _explained(file: BinaryIO, error: Exception) -> str:
    file.seek(0)
    head = file.read(4)
    kind = {b"fLaC": "flac", b"OggS": "ogg", b"FORM": "aiff", b"caff": "caf", b"riff": "w64"}.get(head)
    kind = kind or ("au" if head in (b".snd", b"dns.") else "wav")
    text = str(error).partition(": ")[2] if str(error).startswith("Error opening") else str(error)
    if "SF_INFO struct incomplete" in text:
        text = "its header gives a sample rate or a number of channels that cannot be"
    return f"broken {kind}: {' '.join(text.split()).rstrip('.') or type(error).__name__}"
