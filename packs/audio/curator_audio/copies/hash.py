"""One text for one sound, whatever file it came in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Contract, Stage
from curator.api.tasks import AudioBatch
from curator_audio.sound.pcm import pcm16

_BLOCK = 1 << 16  # samples of a channel that are rounded at once: they stay in the cache


@dataclass(kw_only=True)
class Hash(Stage):
    """Hash the samples and not the file, so that `dedup.exact` finds the same sound in another container.

    Adds `audio_hash` (string, 64 hex digits: SHA-256 of the samples as 16 bits, of their rate and the number
    of channels; null without samples, and with `trim` where all is silence). Equal for wav, flac, aiff, au
    and caf of one recording at 16 bits, and at 24 where these only pad it; not for mp3 and the like, nor at
    another rate: for those there is `audio.fingerprint`. Two stages between, `audio.resample` or a change of
    level, change it: put it right behind `audio.decode`.

    `trim`: without zeros at the beginning and the end, so that a copy with padding is a copy. Exact zeros
    only.

    Source: SHA-256, FIPS 180-4. Samples are round(32768 x), clipped, little endian, interleaved; then rate
    and channels follow, as 32 bits each.
    """

    trim: bool = False

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds={"audio_hash": pa.string()})

    def process(self, batch: AudioBatch) -> AudioBatch:
        hashes = [None if samples is None or rate is None else audio_hash(samples, rate, trim=self.trim)
                  for samples, rate in zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True)]
        return batch.with_columns({"audio_hash": pa.array(hashes, pa.string())})


def audio_hash(samples: np.ndarray, rate: int, *, trim: bool = False) -> str | None:
    """The hash of float32 [channels, n]; None where there is nothing to hash."""
    if trim:
        start, stop = sounding(samples)
        samples = samples[:, start:stop]
    channels, count = samples.shape
    if not count or not channels:
        return None
    digest = hashlib.sha256()
    for start in range(0, count, _BLOCK):
        digest.update(pcm16(samples[:, start:start + _BLOCK]).tobytes())
    digest.update(np.array([rate, channels], "<u4").tobytes())
    return digest.hexdigest()


def sounding(samples: np.ndarray) -> tuple[int, int]:
    """First sample that is not 0 at 16 bits in some channel, and the one behind the last; (0, 0) if all are.
    Looks from both ends, so that little of a recording is looked at."""
    count = samples.shape[1]
    starts = range(0, count, _BLOCK)
    for start in starts:
        if (loud := _loud(samples[:, start:start + _BLOCK])).any():
            break
    else:
        return 0, 0
    first = start + int(loud.argmax())
    for start in reversed(starts):
        if (loud := _loud(samples[:, start:start + _BLOCK])).any():
            break
    return first, start + len(loud) - int(loud[::-1].argmax())


def _loud(samples: np.ndarray) -> np.ndarray:
    """Which samples are not 0 at 16 bits in some channel."""
    return np.abs(samples).max(axis=0, initial=0) > 0.5 / 32768  # 0.5 itself is rounded to 0, the even one
