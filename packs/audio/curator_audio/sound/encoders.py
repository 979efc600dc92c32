"""Files by libsndfile and FFmpeg, the same bytes each time."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import av
import numpy as np
import soundfile
from av.error import FFmpegError

from curator_audio.sound.pcm import pcm16, pcm24

BLOCK_S = 5  # at once libsndfile would need a stack as large as the recording for Vorbis, and crash
_REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
_AV = {"opus": ("ogg", "libopus", "flt"), "mp3": ("mp3", "libmp3lame", "fltp")}


def encoded(samples: np.ndarray, rate: int, format: str, bits: int, kbps: int, quality: float) -> bytes | str:
    """The file of float32 [channels, n], or why there is none."""
    try:
        if format == "flac":
            return _by_soundfile(samples, rate, "FLAC", f"PCM_{bits}")
        if format == "vorbis":
            return with_serial(_by_soundfile(samples, rate, "OGG", "VORBIS", 1 - quality), 1)
        return _by_av(samples, rate, *_AV[format], kbps)
    except (soundfile.LibsndfileError, FFmpegError) as error:
        return f"{format} cannot hold it: {' '.join(str(error).split())} ({len(samples)} channels at {rate:,} Hz)"


def _by_soundfile(samples: np.ndarray, rate: int, format: str, subtype: str, compression: float | None = None) -> bytes:
    file, step = io.BytesIO(), max(1, BLOCK_S * rate)
    with soundfile.SoundFile(file, "w", rate, len(samples), subtype, format=format, compression_level=compression) as output:
        for start in range(0, samples.shape[1], step):
            block = samples[:, start:start + step]
            output.write(pcm16(block) if subtype == "PCM_16" else pcm24(block) if subtype == "PCM_24" else
                         np.clip(block.T, -1, 1))
    return file.getvalue()


def _by_av(samples: np.ndarray, rate: int, container: str, codec: str, format: str, kbps: int) -> bytes:
    file, step = io.BytesIO(), max(1, BLOCK_S * rate)
    layout = "mono" if len(samples) == 1 else "stereo"
    with av.open(file, "w", format=container, options={"fflags": "+bitexact"}) as output:  # no version, no number by chance
        stream: Any = output.add_stream(codec, rate=rate, layout=layout, options={"flags": "+bitexact"})
        stream.bit_rate = 1000 * kbps
        stream.codec_context.format = format
        for start in range(0, samples.shape[1], step):
            frame = av.AudioFrame.from_ndarray(np.clip(samples[:, start:start + step], -1, 1), "fltp", layout)
            frame.sample_rate, frame.pts = rate, start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


def with_serial(ogg: bytes, serial: int) -> bytes:
    """An Ogg stream with this number; libsndfile takes one by chance. Source: RFC 3533, section 6."""
    made, at = [], 0
    while at < len(ogg):
        segments = ogg[at + 26]
        end = at + 27 + segments + sum(ogg[at + 27:at + 27 + segments])
        page = bytearray(ogg[at:end])
        struct.pack_into("<I", page, 14, serial)
        page[22:26] = bytes(4)
        page[22:26] = struct.pack("<I", checksum(bytes(page)))
        made.append(bytes(page))
        at = end
    return b"".join(made)


def checksum(page: bytes) -> int:
    """The CRC of Ogg: that of zlib with the bits the other way round, and nothing inverted."""
    value = zlib.crc32(page.translate(_REVERSED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return int(f"{value:032b}"[::-1], 2)
