"""Spans of time: out of scores of frames, and moved into a piece of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SPANS = pa.list_(pa.struct([("start", pa.float64()), ("end", pa.float64())]))  # seconds from the record's first sample


@dataclass(frozen=True)
class Smoothing:
    """How scores of frames become spans; all in seconds.

    `enter`: a span begins at a frame with this score or more; it goes on until one is below `leave`. Pauses shorter than
    `min_pause` are no pauses, then spans shorter than `min_speech` are none, then both ends are moved outwards by `pad`.
    """

    enter: float
    leave: float
    min_speech: float
    min_pause: float
    pad: float


def spans_of(scores: np.ndarray, frame_s: float, how: Smoothing, duration: float,
             within: np.ndarray | None = None) -> np.ndarray:
    """Where the speech is, float64 [k, 2], in seconds, in order and apart, within `duration`; before padding only inside the
    spans `within`."""
    found = runs_of(hysteresis(scores, how.enter, how.leave)) * frame_s
    found = joined(common(found, within) if within is not None else found, how.min_pause)
    found = found[found[:, 1] - found[:, 0] >= how.min_speech - 1e-9]
    return padded(found, how.pad, duration)


def hysteresis(scores: np.ndarray, enter: float, leave: float) -> np.ndarray:
    """True from a frame of at least `enter` to the last one before a frame below `leave`; bool."""
    said = np.where(scores >= enter, 1, np.where(scores < leave, 0, -1))
    known = np.maximum.accumulate(np.where(said >= 0, np.arange(said.size), -1))
    return (known >= 0) & (said[known] == 1)


def runs_of(flags: np.ndarray) -> np.ndarray:
    """Where flags are true, as [first, behind the last], int [k, 2]."""
    return np.flatnonzero(np.diff(flags, prepend=False, append=False)).reshape(-1, 2)


def common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What lies in a span of `a` and in one of `b`, both in order and apart, [k, 2]."""
    if not len(a) or not len(b):
        return np.empty((0, 2))
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")  # the first of b that ends behind the beginning
    behind = np.searchsorted(b[:, 0], a[:, 1], side="left")  # the first of b that begins at the end or later
    counts = np.maximum(behind - first, 0)
    of_a = np.repeat(np.arange(len(a)), counts)
    of_b = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts - first, counts)
    return np.column_stack([np.maximum(a[of_a, 0], b[of_b, 0]), np.minimum(a[of_a, 1], b[of_b, 1])])


def joined(spans: np.ndarray, gap: float) -> np.ndarray:
    """Spans with pauses shorter than `gap` between them made one, [k, 2]."""
    if len(spans) < 2:
        return spans
    apart = spans[1:, 0] - spans[:-1, 1] >= gap - 1e-9
    return np.column_stack([spans[np.append(True, apart), 0], spans[np.append(apart, True), 1]])


def padded(spans: np.ndarray, pad: float, end: float) -> np.ndarray:
    """Spans made longer at both ends, within 0 and `end`; where two would overlap they share the pause, [k, 2]."""
    if not len(spans):
        return spans.reshape(0, 2)
    middle = (spans[1:, 0] + spans[:-1, 1]) / 2
    begins = np.maximum(spans[:, 0] - pad, np.append(0.0, middle))
    ends = np.minimum(spans[:, 1] + pad, np.append(middle, end))
    return np.column_stack([np.minimum(begins, end), np.minimum(ends, end)])


def as_lists(found: Sequence[np.ndarray | None]) -> pa.Array:
    """A column of spans, one array [k, 2] a row, null where there is None."""
    sizes = [0 if spans is None else len(spans) for spans in found]
    joined_spans = np.concatenate([np.empty((0, 2)), *(spans for spans in found if spans is not None)])
    values = pa.StructArray.from_arrays([pa.array(joined_spans[:, 0]), pa.array(joined_spans[:, 1])], ["start", "end"])
    offsets = pa.array(np.cumsum([0, *sizes]), pa.int32())
    missing = pa.array([spans is None for spans in found], pa.bool_())
    return pa.ListArray.from_arrays(offsets, values.cast(SPANS.value_type), mask=missing)
