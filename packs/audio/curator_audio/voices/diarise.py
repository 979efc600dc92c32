"""Who speaks when, by a model that hears speakers at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator_audio.sound.waves import waves_of
from curator_audio.voices.turns import TURNS, Turn, merged, overlap_s

COLUMNS = {"turns": TURNS, "speaker_count": pa.int32(), "overlap_s": pa.float64()}


@dataclass(kw_only=True)
class Diarise(Stage):
    """Tell who speaks when, also where two speak at once, by a diarisation model of transformers.

    Adds `turns` (list of start, end, speaker; seconds of the record, speakers `s0`, `s1`, … by who speaks first), `speaker_count`
    (int32) and `overlap_s` (float64, seconds in which two or more speak). Null without samples, and for records of over `longest_s`: the
    model hears a record whole, so cut long ones first (`audio.segment`, or `audio.windows`).

    `model`: one that answers for each frame which of its speakers talk (`microsoft/wavlm-base-plus-sd`): an id of the hub,
    `id@revision`, or a folder. `threshold`: the probability from which on a speaker talks. `min_s`: shorter turns are left out.
    `gap_s`: turns of one speaker with less between them are one.

    Source: Yang et al. 2021 (arXiv:2105.01051), SUPERB, speaker diarisation: two speakers, permutation-free training.
    """

    model: str
    threshold: float = 0.5
    min_s: float = 0.2
    gap_s: float = 0.3
    longest_s: float = 60.0

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold is a probability between 0 and 1, got {self.threshold}")
        if self.longest_s <= 0:
            raise ValueError(f"longest_s is above 0, got {self.longest_s}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_audio.models.hearing import Diariser

        self._diariser = Diariser(self.model, ctx)

    def process(self, batch: AudioBatch) -> AudioBatch:
        rate = self._diariser.rate
        waves = {row: wave for row, wave in waves_of(batch, rate) if len(wave) <= self.longest_s * rate}
        found: list[tuple[Any, ...]] = [(None, None, None)] * len(batch)
        for (row, wave), chances in zip(waves.items(), self._diariser.chances(list(waves.values())), strict=True):
            turns = self._turns(chances, len(wave) / rate)
            found[row] = [turn.as_dict() for turn in turns], len({turn.speaker for turn in turns}), overlap_s(turns)
        columns = zip(*found, strict=True) if found else ([], [], [])
        return batch.with_columns({name: pa.array(values, kind)
                                   for (name, kind), values in zip(COLUMNS.items(), columns, strict=True)})

    def _turns(self, chances: np.ndarray, seconds: float) -> list[Turn]:
        """Turns of probabilities, frames x speakers."""
        frame_s, turns = seconds / max(1, len(chances)), []
        for speaker in range(chances.shape[1]):
            talks = np.concatenate([[0], chances[:, speaker] >= self.threshold, [0]]).astype(np.int8)
            starts, stops = np.flatnonzero(np.diff(talks) == 1), np.flatnonzero(np.diff(talks) == -1)
            spans = merged([Turn(a * frame_s, b * frame_s, str(speaker)) for a, b in zip(starts, stops, strict=True)], self.gap_s)
            turns += [turn for turn in spans if turn.end - turn.start >= self.min_s]
        turns.sort(key=lambda turn: (turn.start, turn.end))
        names = {speaker: f"s{at}" for at, speaker in enumerate(dict.fromkeys(turn.speaker for turn in turns))}
        return [Turn(turn.start, turn.end, names[turn.speaker]) for turn in turns]
