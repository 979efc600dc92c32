"""Bytes of audio files from samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.findings import Shown
from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import AudioBatch
from curator_audio.sound.pcm import WAV_BYTES, wav
from curator_audio.sound.resampler import resampled

BITS = {"flac": (16, 24), "wav": (16, 24, 32)}
KBPS = {"opus": (6, 510, 32), "mp3": (8, 320, 96)}  # lowest, highest, what is taken if nothing is said
RATES = {"opus": (8_000, 12_000, 16_000, 24_000, 48_000),
         "mp3": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)}
MOST_CHANNELS = {"flac": 8, "wav": 64, "opus": 2, "vorbis": 8, "mp3": 2}
EXTENSIONS = {"flac": "flac", "wav": "wav", "opus": "opus", "vorbis": "ogg", "mp3": "mp3"}
FORMATS = {"opus": "ogg", "vorbis": "ogg"}
_PCM = {16: "pcm_s16le", 24: "pcm_s24le", 32: "pcm_f32le"}
COLUMNS = {"bytes": pa.binary(), "extension": pa.string(), "format": pa.string(), "codec": pa.string(), "bits": pa.int32()}


@dataclass(kw_only=True)
class Encode(Stage):
    """Encode the samples as FLAC, WAV, Opus, Vorbis or MP3, in place of the bytes that were read.

    Replaces `bytes` (binary, the file), `extension` (flac, wav, opus, ogg, mp3), `format` (flac, wav, ogg,
    mp3), `codec` and `bits` (int32; null where the codec keeps none). All are null where there are no
    samples. The same samples give the same bytes: files carry no date, no name and nothing random. What a
    format cannot hold leaves on `failed`.

    `format`: FLAC and WAV give back every sample as it was rounded to `bits`; what was read from 16 bits
    comes back exactly. Opus and Vorbis give back as many samples, in their places; MP3 too, at times with up
    to 47 more of silence behind. `bits`: 16 (default) or 24, and 32 for WAV, which are floats as they are;
    others clip at -1 and 1. `kbps`: kilobits a second, for Opus 6 to 510 (default 32, for one channel of
    speech), MP3 8 to 320 (default 96). `quality`: of Vorbis, 0 to 1 (default 0.4: some 75 kbit/s for music in
    one channel, 35 for speech at 16 kHz). `rate`: resample the file, in Hz (`samples` stay); Opus and MP3
    have a few rates only, and what has another is brought to the next higher one.
    """

    format: Literal["flac", "wav", "opus", "vorbis", "mp3"] = "flac"
    bits: int | None = None
    kbps: int | None = None
    quality: float | None = None
    rate: int | None = None

    def __post_init__(self) -> None:
        if self.format not in EXTENSIONS:
            raise ValueError(f"format is one of {', '.join(EXTENSIONS)}, got {self.format!r}")
        if self.bits is not None and self.bits not in BITS.get(self.format, ()):
            allowed = " or ".join(map(str, BITS.get(self.format, ())))
            raise ValueError(f"bits of {self.format} are {allowed}, got {self.bits}" if allowed else
                             f"bits do not apply to {self.format}, which keeps none; leave it out, or set kbps")
        low, high, _ = KBPS.get(self.format, (0, 0, 0))
        if (self.kbps is not None and not low <= self.kbps <= high) or self.kbps == 0:
            raise ValueError(f"kbps of {self.format} is from {low} to {high}, got {self.kbps}" if high else
                             f"kbps does not apply to {self.format}; it is for opus and mp3")
        if self.quality is not None and (self.format != "vorbis" or not 0 <= self.quality <= 1):
            raise ValueError(f"quality is for vorbis, from 0 to 1, got {self.quality} for {self.format}")
        rates = RATES.get(self.format)
        if self.rate is not None and (self.rate < 100 or (rates and self.rate not in rates)):
            raise ValueError(f"rate of {self.format} is {' or '.join(map(str, rates or ['100 or more']))}, got {self.rate}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds=COLUMNS)

    def example_columns(self) -> dict[str, Shown]:
        return {"bytes": "audio"}

    def setup(self, ctx: Context) -> None:
        from curator_audio.sound.encoders import encoded

        self._encoded = encoded

    def process(self, batch: AudioBatch) -> Outputs:
        found = [None if samples is None or not samples.shape[1] else self._file(samples, rate)
                 for samples, rate in zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True)]
        good = np.array([not isinstance(one, str) for one in found], bool)
        files = [one for one in found if not isinstance(one, str)]
        bits = self.bits or (16 if self.format in BITS else None)
        said = {"extension": EXTENSIONS[self.format], "format": FORMATS.get(self.format, self.format),
                "codec": _PCM[bits] if self.format == "wav" and bits else self.format, "bits": bits}
        columns = {name: pa.array([None if file is None else value for file in files], COLUMNS[name]) for name, value in said.items()}
        written = batch.filter(good).with_columns({"bytes": pa.array(files, pa.binary()), **columns})
        if good.all():
            return Outputs(out=written)
        return Outputs(out=written, failed=batch.filter(~good).with_error([one for one in found if isinstance(one, str)]))

    def _file(self, samples: np.ndarray, rate: int | None) -> bytes | str:
        """The file, or why there is none."""
        if rate is None or rate < 1:
            return f"no sample rate: {rate}"
        most = MOST_CHANNELS[self.format]
        if len(samples) > most:
            return f"too many channels for {self.format}: {len(samples)} (at most {most})"
        target = self.rate or _next_rate(self.format, rate)
        samples = resampled(samples, rate, target)
        if self.format == "wav":
            bits = self.bits or 16
            if samples.size * bits // 8 > WAV_BYTES:
                return f"too long for wav: {samples.shape[1] / target:.0f} s (its sizes have 32 bits)"
            return wav(samples, target, bits)
        return self._encoded(samples, target, self.format, self.bits or 16, self.kbps or KBPS.get(self.format, (0, 0, 0))[2],
                             0.4 if self.quality is None else self.quality)


def _next_rate(format: str, rate: int) -> int:
    allowed = RATES.get(format, (rate,))
    return next((one for one in allowed if one >= rate), allowed[-1])
