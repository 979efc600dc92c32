"""How loud samples are, and what went wrong with them: clipping, offsets, zeros, gaps."""

from __future__ import annotations

import numpy as np

from curator_audio.measures.views import BLOCK, Views, decibel

Values = dict[str, float | bool | str | int | None]

SILENT = 1e-5            # mean square of -50 dBFS
CLIP_PEAK = 0.1          # below this peak a run of equal samples is coarse quantisation rather than clipping
CLIP_FLAT = 1e-4         # samples this close to the extreme, relative to it, count as on it
GAP_S = (0.002, 0.5)     # a gap is a run of equal samples of this length
GAP_EDGE_S = 0.005       # beside which there is sound for so long,
GAP_EDGE = 1e-4          # of this mean square, -40 dBFS;
GAP_JUMP = 0.25          # and the wave breaks off by so much of its level there, or away from 0, and does not come to rest


def level(views: Views) -> Values:
    """Peak, mean power and their distance, in dB relative to full scale."""
    size = views.samples.size
    square = sum(float(np.vecdot(block, block)) for block in views.blocks()) / size
    peak, rms = decibel(views.peak**2), decibel(square)
    return {"peak_db": peak, "rms_db": rms, "crest_db": None if peak is None or rms is None else peak - rms}


def clipping(views: Views) -> Values:
    """The share of samples in flat tops: runs of two or more on the highest or the lowest value, with a step beside them.

    Around its top a smooth wave is a parabola: where a run of samples is within a distance of it, the samples beside the run
    are within nine times that distance, and those as far from it as it is long within 25 times. Such a run does not count.
    """
    clipped = 0
    if views.peak >= CLIP_PEAK:
        for channel, (low, high) in zip(views.samples, views.extremes, strict=True):
            clipped += sum(_flat_top(channel, extreme) for extreme in (low, high) if abs(extreme) >= CLIP_PEAK / 2)
    return {"clipped_ratio": clipped / views.samples.size}


def _flat_top(channel: np.ndarray, extreme: float) -> int:
    """Samples in runs on the extreme, which is positive or negative."""
    sign = 1.0 if extreme > 0 else -1.0
    bound = np.float32(sign * extreme * (1 - CLIP_FLAT))
    found = []
    for start in range(0, len(channel), BLOCK):
        block = channel[start : start + BLOCK]
        found.append(np.flatnonzero(block >= bound if sign > 0 else block <= -bound) + start)
    places = np.concatenate(found)
    if not len(places):
        return 0
    breaks = np.flatnonzero(np.diff(places) > 1)
    first, last = places[np.r_[0, breaks + 1]], places[np.r_[breaks, len(places) - 1]]
    lengths = last - first + 1
    stepped = np.zeros(len(first), bool)
    for far, factor in ((1, 10), (lengths, 26)):
        beside = np.minimum(sign * channel[np.maximum(first - far, 0)], sign * channel[np.minimum(last + far, len(channel) - 1)])
        stepped |= beside < sign * extreme * (1 - factor * CLIP_FLAT)
    return int(lengths[(lengths >= 2) & stepped].sum())


def offset(views: Views) -> Values:
    """The mean, of the channel where it is farthest from 0."""
    return {"dc_offset": max(views.means, key=abs)}


def silence(views: Views) -> Values:
    """Exact zeros, and frames of 20 ms that are quiet."""
    frames = views.frame_power
    return {"zero_ratio": views.zeros / views.samples.size,
            "silence_ratio": float(np.mean(frames < SILENT)) if len(frames) else None}


def gaps(views: Views) -> Values:
    """Holes within sound: runs of zeros, or of one held value, where the wave breaks off; it goes on after them."""
    return {"dropouts": max(_gaps(channel, extremes, views.rate) for channel, extremes
                            in zip(views.samples, views.extremes, strict=True))}


def _gaps(channel: np.ndarray, extremes: tuple[float, float], rate: int) -> int:
    shortest, longest = (round(seconds * rate) for seconds in GAP_S)
    edge = max(1, round(GAP_EDGE_S * rate))
    same = np.zeros(len(channel) + 1, bool)  # same[i]: sample i equals the one before it
    np.equal(channel[1:], channel[:-1], out=same[1:-1])
    turns = np.flatnonzero(same[1:] != same[:-1])
    begin, end = turns[::2], turns[1::2] + 1  # of runs of two and more
    right = (end - begin >= max(shortest, 2)) & (end - begin <= longest) & (begin >= edge) & (end <= len(channel) - edge)
    count = 0
    for start, stop in zip(begin[right], end[right], strict=True):
        held = channel[start]
        on_top = held != 0 and (held >= 0.99 * extremes[1] or held <= 0.99 * extremes[0])
        before, after = channel[start - edge : start], channel[stop : stop + edge]
        power = np.vecdot(before, before) / edge
        stuck = max(abs(before[-1] - held), abs(held)) >= GAP_JUMP * np.sqrt(power)
        count += bool(not on_top and stuck and min(power, np.vecdot(after, after) / edge) >= GAP_EDGE)
    return count
