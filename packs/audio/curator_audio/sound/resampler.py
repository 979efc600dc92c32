"""Another sample rate, in one go or block by block: the answer is the same to the bit."""

from __future__ import annotations

import math

import numpy as np

QUALITY = "HQ"  # 20 bits; see `curator_audio.sound.resample`
BLOCK = 1 << 16  # samples of a channel that are resampled at once: they stay in the cache
RATES = (100, 1_000_000)  # Hz: beyond these a header lies, or the recording is none of sound


class Resampler:
    """A stream of blocks, float32 [channels, n], from one rate to another.

    Output sample k stands where k / to_rate seconds of the input are; behind its end the input counts as
    silent, and before it too. Of n samples become ceil(n * to_rate / from_rate), however they are cut into
    blocks.
    """

    def __init__(self, from_rate: int, to_rate: int, channels: int) -> None:
        import soxr

        self._from, self._to, self._channels = from_rate, to_rate, channels
        self._stream = soxr.ResampleStream(from_rate, to_rate, channels, dtype="float32", quality=QUALITY)
        self._taken = self._given = 0

    def add(self, block: np.ndarray) -> np.ndarray:
        """The samples that are ready once this block is in."""
        self._taken += block.shape[1]
        made = self._push(block, last=False)
        self._given += made.shape[1]
        return made

    def finish(self) -> np.ndarray:
        """The samples that are left."""
        total = math.ceil(self._taken * self._to / self._from)
        silence = np.zeros((self._channels, max(1, math.ceil(2 * self._from / self._to))), np.float32)
        rest = self._push(silence, last=True)[:, :total - self._given]
        self._given += rest.shape[1]
        return rest

    def _push(self, block: np.ndarray, last: bool) -> np.ndarray:
        if self._channels == 1:
            return self._stream.resample_chunk(np.ascontiguousarray(block[0], np.float32), last=last)[None]
        made = self._stream.resample_chunk(np.ascontiguousarray(block.T, np.float32), last=last)
        return np.ascontiguousarray(made.T)


def resampled(samples: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """All samples of a recording, [channels, n], at another rate; the array itself where the rates are equal."""
    if from_rate == to_rate:
        return samples
    channels, count = samples.shape
    stream, done = Resampler(from_rate, to_rate, channels), 0
    answer = np.empty((channels, math.ceil(count * to_rate / from_rate)), np.float32)
    for start in range(0, count, BLOCK):
        made = stream.add(samples[:, start:start + BLOCK])
        answer[:, done:done + made.shape[1]] = made
        done += made.shape[1]
    answer[:, done:] = stream.finish()
    return answer
