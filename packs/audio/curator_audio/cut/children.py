"""Pieces of recordings as records of their own, and lists of spans moved into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator import RecipeError
from curator.api.tasks import AudioBatch
from curator_audio.cut.pieces import covered
from curator_audio.cut.spans import SPANS

MADE: dict[str, pa.DataType | None] = {"samples": None, "duration": pa.float64(), "start_s": pa.float64(), "end_s": pa.float64(),
                                       "parent": pa.string()}
OF_SPEECH = {"speech_ratio": pa.float32(), "speech_seconds": pa.float64()}
TOUCH_S = 1e-4  # a span reaches into a piece when it does so by more: ends of pieces are rounded to samples
OF_FILE = "bytes"  # of the whole file: no piece has them


def cut(batch: AudioBatch, pieces: Sequence[np.ndarray], lists: Sequence[str]) -> AudioBatch:
    """A record for each piece, samples [k, 2] of each row, which has one at least. The `lists` are moved into them."""
    counts = [len(made) for made in pieces]
    parents = np.repeat(np.arange(len(batch)), counts)
    bounds = np.concatenate(pieces)
    rates = batch.array("sample_rate")[parents]
    begins, ends = bounds[:, 0] / rates, bounds[:, 1] / rates
    wholes = [whole for whole in batch.samples or () if whole is not None]  # of every row
    views = [_most_of(whole, cuts) for whole, cuts in zip(wholes, pieces, strict=True)]
    samples = [wholes[parent][:, first:stop] for parent, (first, stop) in zip(parents, bounds, strict=True)]
    samples = [one if views[parent] else one.copy() for parent, one in zip(parents, samples, strict=True)]
    starts = pc.cast(batch.rows.column("start_s"), pa.float64()).take(pa.array(parents))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "duration": pa.array(ends - begins), "start_s": pc.add(starts, pa.array(begins)), "end_s": pc.add(starts, pa.array(ends))}
    for name in lists:
        columns[name] = moved(batch.rows.column(name), parents, begins, ends)
    if "speech" in lists:
        columns |= of_speech(columns["speech"], ends - begins)
    made = batch.without([OF_FILE]).with_payloads(encoded=None).explode(counts)
    return made.with_payloads(samples=samples).with_columns(columns)


def _most_of(whole: np.ndarray, cuts: np.ndarray) -> bool:
    """Whether pieces may be views: these keep the whole recording in memory, so they are to be most of it. Of several channels
    a view is not one stretch of memory, and would be copied wherever it goes."""
    return len(whole) == 1 and 2 * int((cuts[:, 1] - cuts[:, 0]).sum()) > whole.shape[1]


def whole(batch: AudioBatch, lists: Sequence[str]) -> AudioBatch:
    """Rows as one piece each, so that they have the columns that pieces have."""
    seconds = [None if samples is None or not rate else samples.shape[1] / rate
               for samples, rate in zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True)]
    durations = pa.array(seconds, pa.float64())
    ends = pc.add(pc.cast(batch.rows.column("start_s"), pa.float64()), durations)
    columns = {"duration": durations, "end_s": ends}
    if "speech" in lists:
        lengths = durations.to_numpy(zero_copy_only=False)
        columns |= of_speech(moved(batch.rows.column("speech"), np.arange(len(batch)), np.zeros(len(batch)), lengths), lengths)
    return batch.without([OF_FILE]).with_columns(columns)


def moved(column: pa.ChunkedArray, parents: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> pa.Array:
    """Lists of spans as they are in pieces: those that reach into a piece, cut at its ends, its first sample being 0.

    One without a time (a word that was not found in the sound) goes where `times_of` would have it, and still has none.
    """
    lists, kind = column.combine_chunks(), type_moved(column.type)
    if not pa.types.is_list(lists.type):  # of nulls only, or large
        lists = lists.cast(kind)
    valid, offsets, spans = lists.is_valid().to_numpy(zero_copy_only=False), lists.offsets.to_numpy(), lists.values
    start, end = (spans.field(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("start", "end"))
    chosen = []
    for parent, begin, stop in zip(parents, begins, ends, strict=True):
        first, behind = offsets[parent], offsets[parent + 1]
        low, high = times_of(spans.slice(first, behind - first))
        inside = (high > begin + TOUCH_S) & (low < stop - TOUCH_S) | (low == high) & (low >= begin) & (low < stop)
        chosen.append(first + np.flatnonzero(inside))
    sizes = [len(one) for one in chosen]
    at = np.concatenate([np.empty(0, np.int64), *chosen])
    shift, most = np.repeat(begins, sizes), np.repeat(ends - begins, sizes)
    times = {"start": np.maximum(start[at] - shift, 0), "end": np.minimum(end[at] - shift, most)}
    taken = spans.take(pa.array(at))
    fields = [pa.array(times[field.name], from_pandas=True) if field.name in times else taken.field(field.name)
              for field in kind.value_type]
    made = pa.StructArray.from_arrays(fields, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(np.cumsum([0, *sizes]), pa.int32()), made, type=kind, mask=pa.array(~valid[parents]))


def type_moved(kind: pa.DataType) -> pa.DataType:
    """The type of a list of spans in pieces: its times are float64, whatever they were in the recording."""
    if not _is_spans(kind):  # of nulls only
        return SPANS
    fields = [field.with_type(pa.float64()) if field.name in ("start", "end") else field for field in kind.value_type]
    return pa.list_(kind.value_field.with_type(pa.struct(fields)))


def times_of(spans: pa.StructArray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the spans of one record in seconds, float64. One that has none lies between its neighbours: a word that was
    not found in the sound is somewhere there."""
    start, end = (spans.field(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in ("start", "end"))
    lost = np.isnan(start) | np.isnan(end)
    if not lost.any():
        return start, end
    known = np.flatnonzero(~lost)
    before = np.searchsorted(known, np.flatnonzero(lost))
    lows = np.append(0.0, end[known])[before]
    highs = np.append(start[known], lows[-1])[before]
    start, end = start.copy(), end.copy()
    start[lost], end[lost] = lows, np.maximum(highs, lows)
    return start, end


def of_speech(speech: pa.Array, durations: np.ndarray) -> dict[str, pa.Array]:
    """How much speech there is in pieces, from their spans."""
    start, end = (speech.values.field(name).to_numpy(zero_copy_only=False) for name in ("start", "end"))
    of = np.repeat(np.arange(len(speech)), np.diff(speech.offsets.to_numpy()))
    seconds = np.bincount(of, end - start, len(speech)).astype(np.float64)
    missing, some = speech.is_null().to_numpy(zero_copy_only=False), durations > 0
    ratio = np.divide(seconds, durations, out=np.zeros(len(speech)), where=some)
    return {"speech_seconds": pa.array(seconds, mask=missing), "speech_ratio": pa.array(ratio.astype(np.float32), mask=missing | ~some)}


def check_lists(stage: str, lists: Sequence[str], columns: Mapping[str, pa.DataType | None]) -> None:
    """Raises:
        RecipeError: there are other lists of spans, which would be those of the whole recording in each piece; or one named
            is none, or not there.
    """
    for name, kind in columns.items():
        if name not in lists and kind is not None and _is_spans(kind):
            raise RecipeError(f"{stage}: column {name!r} has spans of the whole recording: name it in `also`, so that each piece "
                              f"gets its own, or take it away before by `select: {{drop: [{name}]}}`")
    for name in lists:
        kind = columns.get(name)
        if name not in columns or not (kind is None or pa.types.is_null(kind) or _is_spans(kind)):
            raise RecipeError(f"{stage}: column {name!r} is {columns.get(name, 'not there')}; spans are lists of `start` and `end`, "
                              "as audio.vad makes them")


def _is_spans(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    return inner is not None and pa.types.is_struct(inner) and min(inner.get_field_index(n) for n in ("start", "end")) >= 0


# -- accounts -------------------------------------------------------------------------------------------------------


def account(totals: Sequence[tuple[int, int]], kept: Sequence[np.ndarray], short: Sequence[np.ndarray]) -> dict[str, int]:
    """Milliseconds in pieces that are kept, in those that are too short, in none. `totals`: samples and rate of recordings."""
    found = {"kept_ms": 0, "short_ms": 0, "rest_ms": 0}
    for (total, rate), good, bad in zip(totals, kept, short, strict=True):
        if not rate:
            continue
        inside, either = covered(good), covered(np.concatenate([good, bad]))
        ms = [0, *(1000 * samples // rate for samples in (inside, either, total))]
        for name, first, last in zip(found, ms, ms[1:], strict=False):
            found[name] += last - first
    return found
