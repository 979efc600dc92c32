"""Samples as integers, and as a WAV file."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

WAV_BYTES = (1 << 32) - 64  # its sizes are 32 bits
_FLOAT, _PCM = 3, 1


def pcm16(samples: np.ndarray) -> np.ndarray:
    """Interleaved int16 [n, channels] of float32 [channels, n]: round(32768 x), half to even, clipped."""
    return _whole(samples, 32768).astype("<i2")


def pcm24(samples: np.ndarray) -> np.ndarray:
    """Interleaved int32 [n, channels], of which the upper 24 bits are used."""
    return _whole(samples, 1 << 23).astype("<i4") << 8


def _whole(samples: np.ndarray, scale: int) -> np.ndarray:
    scaled = samples.T.astype(np.float32 if scale <= 32768 else np.float64)
    np.multiply(scaled, scale, out=scaled)
    np.rint(scaled, out=scaled)
    return np.clip(scaled, -scale, scale - 1, out=scaled)


def wav(samples: np.ndarray, rate: int, bits: int) -> bytes:
    """A WAV file of float32 [channels, n]; `bits`: 16, 24, or 32 for floats, which are kept as they are."""
    channels, count = samples.shape
    frame = channels * bits // 8
    format = struct.pack("<HHIIHH", _FLOAT if bits == 32 else _PCM, channels, rate, rate * frame, frame, bits)
    fact = b"fact" + struct.pack("<II", 4, count) if bits == 32 else b""
    data = b"".join(_encoded(samples, bits))
    pad = b"\0" * (len(data) % 2)
    chunks = b"WAVEfmt " + struct.pack("<I", len(format)) + format + fact + b"data" + struct.pack("<I", len(data))
    return b"".join([b"RIFF", struct.pack("<I", len(chunks) + len(data) + len(pad)), chunks, data, pad])


def _encoded(samples: np.ndarray, bits: int) -> Iterator[bytes]:
    step = 1 << 16
    for start in range(0, samples.shape[1], step):
        block = samples[:, start:start + step]
        if bits == 16:
            yield pcm16(block).tobytes()
        elif bits == 24:
            whole = np.ascontiguousarray(pcm24(block)).view(np.uint8).reshape(-1, 4)
            yield whole[:, 1:].tobytes()
        else:
            yield np.ascontiguousarray(block.T, "<f4").tobytes()
