"""Turns that somebody else found, and turns for somebody else: RTTM read and written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Stage, setting
from curator.io.files.folder import list_files, open_input
from curator_audio.voices.turns import TURNS, Turn, overlap_s, read_rttm

COLUMNS = {"turns": TURNS, "speaker_count": pa.int32(), "overlap_s": pa.float64()}
_NAME = re.compile(r"([^/\\]+?)(\.[^./\\]*)?$")


@dataclass(kw_only=True)
class Rttm(Stage):
    """Take the turns of speakers from RTTM files, as diarisation systems write them.

    Adds `turns` (list of start, end, speaker; seconds of the record), `speaker_count` (int32) and `overlap_s` (float64, seconds in which
    two or more speak). Null for records that no RTTM names. The turns of a file are cut to what the record has of it, from
    `start_s` to `end_s`, as `audio.decode` tells. `audio.segment` with `by: turns` cuts by them.

    `path`: RTTM files, folders or globs. `key`: the column whose value the RTTM has in its second field; None for the name of the
    record's file, without folder and ending.

    Source: NIST Rich Transcription evaluations, RTTM format.
    """

    path: str | list[str]
    key: str | None = None
    storage_options: dict[str, Any] | None = setting(default=None)

    def contract(self) -> Contract:
        return Contract(needs={self.key or "source": pa.string(), "start_s": pa.float64(), "end_s": pa.float64()}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        self._turns: dict[str, list[Turn]] = {}
        for file in list_files(self.path, self.storage_options, (".rttm",)):
            with open_input(file.uri, self.storage_options) as stream:
                for name, turns in read_rttm(stream.read().decode("utf-8", "replace"), file.uri).items():
                    self._turns.setdefault(name, []).extend(turns)

    def process(self, batch: Batch) -> Batch:
        names = batch.column(self.key) if self.key else [_stem(source) for source in batch.column("source")]
        spans = zip(batch.column("start_s"), batch.column("end_s"), strict=True)
        found = [self._of(name, start or 0.0, end) for name, (start, end) in zip(names, spans, strict=True)]
        columns = zip(*found, strict=True) if found else ([], [], [])
        return batch.with_columns({name: pa.array(values, kind)
                                   for (name, kind), values in zip(COLUMNS.items(), columns, strict=True)})

    def _of(self, name: str | None, start: float, end: float | None) -> tuple[Any, ...]:
        if name not in self._turns:
            return None, None, None
        turns = list(within(self._turns[name], start, end))
        return [turn.as_dict() for turn in turns], len({turn.speaker for turn in turns}), overlap_s(turns)


def within(turns: list[Turn], start: float, end: float | None) -> Iterator[Turn]:
    """What of the turns lies between two times, counted from the first of them."""
    for turn in turns:
        begins, ends = max(turn.start, start), turn.end if end is None else min(turn.end, end)
        if ends > begins:
            yield Turn(begins - start, ends - start, turn.speaker)


def _stem(source: str | None) -> str | None:
    found = _NAME.search(source or "")
    return found[1] if found else None
