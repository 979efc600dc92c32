"""Which pieces of a recording follow each other, and one record of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.tasks import AudioBatch
from curator_audio.cut.children import of_speech, type_moved
from curator_audio.words.normalize import is_spaced

PARTS = pa.list_(pa.struct({"id": pa.string(), "start": pa.float64(), "end": pa.float64(), "start_s": pa.float64(), "end_s": pa.float64()}))
ALONE = ("id", "start_s", "end_s")  # what tells one piece from another
TOUCH_S = 1e-4  # pieces that overlap by less do so by rounding


@dataclass(frozen=True)
class Join:
    """How pieces are joined: see `Concat`."""

    pause: float | None
    text: tuple[str, ...]
    also: tuple[str, ...]


def groups_of(batch: AudioBatch, places: Sequence[tuple], equal: Sequence[str], *, max_s: float, gap_s: float,
              pause: float | None) -> list[list[int]]:
    """Rows that are to be joined, two or more each, in their order in the recording.

    `equal`: columns whose values are the same within a group; the first of them is not null. Of rows that nothing tells apart, none.
    """
    often = Counter(places)
    keys = list(zip(*(batch.column(name) for name in equal), strict=True))
    samples = batch.samples or [None] * len(batch)
    channels = [0 if heard is None else len(heard) for heard in samples]
    rows = [row for row, (key, place, heard) in enumerate(zip(keys, places, samples, strict=True))
            if often[place] == 1 and heard is not None and None not in (key[0], key[1], *place)]
    rows.sort(key=lambda row: (str(keys[row][0]), places[row][1], places[row][2], places[row][0]))
    groups: list[list[int]] = []
    last: int | None = None
    seconds = 0.0
    for row in rows:
        _, start, end = places[row]
        gap = None if last is None else start - places[last][2]
        after = seconds + (end - start) + (0 if gap is None else max(gap, 0) if pause is None else pause)
        if (gap is not None and last is not None and -TOUCH_S <= gap <= gap_s and keys[row] == keys[last]
                and channels[row] == channels[last] and after <= max_s + TOUCH_S):
            groups[-1].append(row)
            seconds = after
        else:
            groups.append([row])
            seconds = end - start
        last = row
    return [group for group in groups if len(group) > 1]


def made_of(batch: AudioBatch, groups: Sequence[Sequence[int]], how: Join) -> AudioBatch:
    """One record of each group."""
    sizes = [len(group) for group in groups]
    offsets = np.cumsum([0, *sizes])
    pieces = batch.take([row for group in groups for row in group])
    rates = pieces.column("sample_rate")
    begins = [pieces.column("start_s")[at] for at in offsets[:-1]]
    waves = [wave for wave in pieces.samples or () if wave is not None]  # of every piece
    samples, shifts = [], []
    for first, stop in pairwise(offsets):
        wave, shift = joined(waves[first:stop], pieces.column("start_s")[first:stop], rates[first], how.pause)
        samples.append(wave)
        shifts += shift
    seconds = np.array([wave.shape[1] / rates[at] for wave, at in zip(samples, offsets, strict=False)])
    columns: dict[str, Any] = {"duration": pa.array(seconds), "start_s": pa.array(begins, pa.float64()),
                               "end_s": pc.take(pieces.rows.column("end_s"), pa.array(offsets[1:] - 1)),
                               "parts": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _parts(pieces, shifts), type=PARTS)}
    ids = pieces.column("id")
    columns["id"] = pa.array([f"{ids[at]}+{size - 1}" for at, size in zip(offsets, sizes, strict=False)], pa.string())
    for name in how.text:
        texts = pieces.column(name)
        columns[name] = pa.array([_text(texts[a:b]) for a, b in pairwise(offsets)], pa.string())
    for name in how.also:
        columns[name] = _lists(pieces.rows.column(name), offsets, shifts)
    if "speech" in how.also:
        columns |= of_speech(columns["speech"], seconds)
    for name in set(pieces.rows.column_names) - set(columns):
        columns[name] = agreed(pieces.rows.column(name), offsets)
    order = [*(name for name in pieces.rows.column_names), *(name for name in columns if name not in pieces.rows.column_names)]
    return replace(pieces, rows=pa.table({name: columns[name] for name in order}), samples=list(samples))


def joined(waves: Sequence[np.ndarray], starts: Sequence[float], rate: int, pause: float | None) -> tuple[np.ndarray, list[float]]:
    """Samples one behind the other, float32 [channels, n], and by how many seconds each was moved.

    With silence between them as long as in the file, or of `pause` seconds.
    """
    places, behind = list[int](), 0
    for wave, start in zip(waves, starts, strict=True):
        wanted = round((start - starts[0]) * rate) if pause is None else behind + (round(pause * rate) if places else 0)
        places.append(max(wanted, behind))
        behind = places[-1] + wave.shape[1]
    whole = np.zeros((len(waves[0]), behind), np.float32)
    for wave, place in zip(waves, places, strict=True):
        whole[:, place:place + wave.shape[1]] = wave
    return whole, [place / rate for place in places]


def alone(batch: AudioBatch, how: Join) -> AudioBatch:
    """Pieces without a neighbour, with the columns that joined records have."""
    samples = batch.samples or [None] * len(batch)
    seconds = [None if wave is None or not rate else wave.shape[1] / rate
               for wave, rate in zip(samples, batch.column("sample_rate"), strict=True)]
    parts = [[{"id": one, "start": 0.0, "end": length, "start_s": start, "end_s": end}]
             for one, length, start, end in zip(batch.column("id"), seconds, batch.column("start_s"), batch.column("end_s"), strict=True)]
    columns: dict[str, Any] = {name: batch.rows.column(name).cast(pa.float64()) for name in ("start_s", "end_s")}
    columns |= {"duration": pa.array(seconds, pa.float64()), "parts": pa.array(parts, PARTS)}
    columns |= {name: batch.rows.column(name).cast(pa.string()) for name in how.text}
    columns |= {name: _typed(batch.rows.column(name)) for name in how.also}
    if "speech" in how.also:
        columns |= of_speech(columns["speech"], np.array([0 if one is None else one for one in seconds], float))
    return batch.with_columns(columns)


def agreed(values: pa.ChunkedArray, offsets: np.ndarray) -> pa.Array:
    """The value that all rows of a group have, null where they differ; of lists and structures none."""
    kind = values.type
    if pa.types.is_nested(kind):
        return pa.nulls(len(offsets) - 1, kind)
    first = values.take(pa.array(offsets[:-1]))
    if pa.types.is_null(kind):
        return first
    codes = values.combine_chunks()
    codes = codes if isinstance(codes, pa.DictionaryArray) else pc.dictionary_encode(codes, null_encoding="encode")
    numbers = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    same = np.minimum.reduceat(numbers, offsets[:-1]) == np.maximum.reduceat(numbers, offsets[:-1])
    return pc.if_else(pa.array(same), first, pa.scalar(None, kind))


def _parts(pieces: AudioBatch, shifts: Sequence[float]) -> pa.Array:
    rows = zip(pieces.column("id"), shifts, pieces.samples or (), pieces.column("sample_rate"), pieces.column("start_s"),
               pieces.column("end_s"), strict=True)
    return pa.array([{"id": one, "start": shift, "end": shift + wave.shape[1] / rate, "start_s": start, "end_s": end}
                     for one, shift, wave, rate, start, end in rows], PARTS.value_type)


def _text(texts: Sequence[str | None]) -> str | None:
    """Texts in order; null where there is none."""
    said = [text.strip() for text in texts if text is not None]
    return (" " if is_spaced("".join(said)) else "").join(text for text in said if text) if said else None


def _typed(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(type_moved(column.type))


def _lists(column: pa.ChunkedArray, offsets: np.ndarray, shifts: Sequence[float]) -> pa.Array:
    """Lists of spans of all rows of each group one behind the other, in its time; null where all are."""
    lists = _typed(column)
    found = []
    for first, stop in pairwise(offsets):
        some = [(value, shifts[at]) for at in range(first, stop) if (value := lists[at].as_py()) is not None]
        found.append([_later(span, shift) for value, shift in some for span in value] if some else None)
    return pa.array(found, lists.type)


def _later(span: dict[str, Any], shift: float) -> dict[str, Any]:
    times = {name: None if span[name] is None else span[name] + shift for name in ("start", "end")}
    return span | times
