"""Whether a clip has sound, and whether anything is to be heard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator_video.read.record import Films, Part, check_file, parts_of

COLUMNS: dict[str, pa.DataType] = {"sound_level": pa.float32(), "sound_peak": pa.float32(), "silence_ratio": pa.float32()}
WINDOW_S = 0.05
LEAST_DB = -120.0


@dataclass(kw_only=True)
class SoundLevel(Stage):
    """Measure how loud the first sound track of a film or clip is, and how much of it is silent.

    Reads `path`, or `bytes` where they are there, and of a record with `start_s` and `end_s` that span.

    Adds `sound_level` (root of the mean square of all channels, dB of full scale, -120 at least), `sound_peak` (the largest sample,
    likewise) and `silence_ratio` (share of the span without sound louder than `silence` in 50 ms, also where the track begins later or
    ends earlier). All null where there is no sound track, or none that can be decoded.

    `silence`: dB of full scale. For more (speech, music, noise, clipping) `video.audio` gives the sound to the audio pack's stages.

    Source: levels are plain RMS and peak; the limit of silence is our own (a quiet room recorded by a phone has -60 dB and more).
    """

    silence: float = -60.0
    storage_options: dict[str, Any] | None = setting(default=None)

    sparse = ("sound_level", "sound_peak", "silence_ratio")
    version = 2

    def __post_init__(self) -> None:
        if not LEAST_DB < self.silence < 0:
            raise ValueError(f"silence is in dB of full scale, between -120 and 0, got {self.silence}")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)

    def setup(self, ctx: Context) -> None:
        from curator_video.clips.sound import Sound
        from curator_video.read.film import BadFilm

        self._bad, self._sound = BadFilm, Sound

    def process(self, batch: Batch) -> Outputs:
        good: dict[int, dict[str, float]] = {}
        bad: dict[int, str] = {}
        with Films(self.storage_options) as films:
            for part in parts_of(batch):
                try:
                    film = films.open(part)
                except self._bad as error:
                    bad[part.row] = str(error)
                    continue
                good[part.row] = self._measured(film, part)
        columns = {name: pa.array([found.get(name) for found in good.values()], kind) for name, kind in COLUMNS.items()}
        outputs = Outputs(out=batch.take(list(good)).with_columns(columns))
        if bad:
            outputs["failed"] = batch.take(list(bad)).with_error(list(bad.values()))
        return outputs

    def _measured(self, film: Any, part: Part) -> dict[str, float]:
        if not film.container.streams.audio:
            return {}
        try:
            sound = self._sound(film, 0)
            seconds = None if part.end is None else part.end - part.begin
            return levels(sound.blocks(part.begin, part.end), sound.rate, self.silence, seconds)
        except self._bad:
            return {}


def levels(blocks: Iterable[np.ndarray], rate: int, silence: float, seconds: float | None) -> dict[str, float]:
    """The columns of sound in blocks, float32 [channels, n]. `seconds`: how long it should be; what is missing is silent."""
    size = max(1, round(WINDOW_S * rate))
    least = 10 ** (silence / 10)
    square = peak = 0.0
    samples = loud = 0
    rest = np.empty(0)
    for block in blocks:
        peak = max(peak, float(np.abs(block).max(initial=0)))
        power = np.concatenate([rest, np.mean(np.square(block, dtype=np.float64), axis=0)])
        square += float(power[len(rest):].sum())
        samples += block.shape[1]
        whole = len(power) // size * size
        loud += size * int(np.count_nonzero(power[:whole].reshape(-1, size).mean(axis=1) > least))
        rest = power[whole:]
    loud += len(rest) if len(rest) and rest.mean() > least else 0
    missing = round((seconds or 0) * rate) - samples
    total = samples + (missing if missing > size else 0)
    if not total:
        return {}
    return {"sound_level": decibels(square / samples, 10) if samples else LEAST_DB, "sound_peak": decibels(peak, 20),
            "silence_ratio": 1 - loud / total}


def decibels(value: float, factor: int) -> float:
    return max(LEAST_DB, factor * float(np.log10(value))) if value > 0 else LEAST_DB
