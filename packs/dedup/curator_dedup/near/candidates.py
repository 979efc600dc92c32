"""From buckets of records to pairs that are verified. Pure: no rows, no files; whole arrays at a time.

Records are known here by their place in keep order, 0 the best. An entry is a place that is in a bucket, as
one uint64: the number of the bucket in the high half, the place in the low half. Entries are sorted and each
is there once, so that a bucket is a run of places, the best one first.

Up to `SMALL` places, all pairs of a bucket are verified. In a bigger one that would cost its square, and make
more edges than anybody wants. There the best place leads: it is verified against all that come after it, then
the next best leads, and so on; a place that `LEADERS` leaders were found for has enough and leaves. So n
copies of one record cost `LEADERS` times n comparisons. With one leader each, all that it leads would be lost
if it is a duplicate itself, of a record that they are not similar to.

Places that share a bucket and are not similar (a template, boilerplate, a common block of a hash) lead one
after the other, and that is the square again. So a bucket ends after `rounds` leaders. Of the places that
have no leader by then, those with equal sketches still find each other; other pairs of them are not found
here, but where they share another bucket. They are counted (`Found.crowded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from curator_dedup.near.blocks import Near, led
from curator_dedup.shared.arrays import distinct, ranges

SMALL = 64  # places: a bucket in which all pairs are verified
LEADERS = 3
PAIRS = 1 << 21  # that are held at a time, 8 bytes each, and a few times that while they are sorted
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


@dataclass(frozen=True)
class Verify:
    """How pairs of places are judged.

    `similar(a, b)`: float32 [m], how alike the places a[i] and b[i] are, NaN where they are no pair.
    `looks(places)`: uint64 [m], equal for places whose sketches are. `reference`: bool by place; two of these
    are never a pair. `near`: see `blocks`; None where sketches are compared pair by pair.
    """

    similar: Callable[[np.ndarray, np.ndarray], np.ndarray]
    looks: Callable[[np.ndarray], np.ndarray]
    reference: np.ndarray
    near: Near | None = None


@dataclass
class Found:
    """What a search came upon on its way. `crowded`: places that a bucket was too crowded for, counted in
    each such bucket."""

    candidates: int = 0  # pairs that were compared
    crowded: int = 0
    buckets: int = 0  # that were too crowded


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]  # places a < b, int64, and their similarity, float32


def verified(entries: np.ndarray, verify: Verify, rounds: int, found: Found) -> Iterator[Pairs]:
    """The similar pairs of these entries (whole buckets, each of two places or more). A pair may come twice.

    Which pairs these are depends on each bucket alone, not on what else there is.
    """
    sizes, starts = _runs(entries >> HALF)
    small = sizes <= SMALL
    for pairs in _distinct(_all_pairs(entries, starts[small], sizes[small])):
        yield from _judged(pairs >> HALF, pairs & LOW, verify, found)
    if verify.near is not None:
        for start, size in zip(starts[~small].tolist(), sizes[~small].tolist(), strict=True):
            yield from led((entries[start:start + size] & LOW).astype(np.int64), verify.near,
                           verify.reference, LEADERS)
    elif not small.all():
        yield from _lead(entries[np.repeat(~small, sizes)], verify, rounds, found)


def _all_pairs(entries: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> Iterator[np.ndarray]:
    """All pairs of places of small buckets, the better place in the high half, sorted by nothing."""
    places = entries & LOW
    ends = np.repeat(starts + sizes, sizes)
    at = ranges(starts, sizes)
    for distance in range(1, SMALL):
        stays = at + distance < ends
        at, ends = at[stays], ends[stays]
        if not len(at):
            return
        for begin in range(0, len(at), PAIRS):
            some = at[begin:begin + PAIRS]
            a, b = places[some], places[some + distance]
            yield a << HALF | b


def _distinct(parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The pairs of these parts, each once among about `PAIRS` of them."""
    waiting: list[np.ndarray] = []
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= PAIRS:
            yield distinct(np.concatenate(waiting))
            waiting = []
    if waiting:
        yield distinct(np.concatenate(waiting))


def _judged(a: np.ndarray, b: np.ndarray, verify: Verify, found: Found) -> Iterator[Pairs]:
    a, b = a.astype(np.int64), b.astype(np.int64)
    wanted = ~(verify.reference[a] & verify.reference[b])
    a, b = a[wanted], b[wanted]
    found.candidates += len(a)
    similarity = verify.similar(a, b)
    alike = ~np.isnan(similarity)
    if alike.any():
        yield a[alike], b[alike], similarity[alike]


def _lead(entries: np.ndarray, verify: Verify, rounds: int, found: Found) -> Iterator[Pairs]:
    """Pairs of leaders with those that they lead, in big buckets, all of them at the same time: one leader in
    each a round."""
    leaders = np.zeros(len(entries), dtype=np.uint8)  # that were found for an entry
    for _ in range(rounds):
        entries, leaders = _unfinished(entries, leaders, verify)
        if not len(entries):
            return
        sizes, starts = _runs(entries >> HALF)
        members = np.ones(len(entries), dtype=bool)
        members[starts] = False
        _, same, buckets = np.unique(entries[starts] & LOW, return_inverse=True, return_counts=True)
        # what many records have in common brings them together in many buckets, with the same leader
        again = np.repeat(buckets[same] > 1, sizes - 1)
        a = np.repeat(entries[starts] & LOW, sizes - 1).astype(np.int64)
        b = (entries[members] & LOW).astype(np.int64)
        wanted = ~(verify.reference[a] & verify.reference[b])
        similarity = np.full(len(a), np.nan, dtype=np.float32)
        similarity[wanted], compared = _once(a[wanted], b[wanted], again[wanted], verify)
        found.candidates += compared
        alike = ~np.isnan(similarity)
        if alike.any():
            yield a[alike], b[alike], similarity[alike]
        entries, leaders = entries[members], leaders[members] + alike
        stays = leaders < LEADERS
        if not stays.all():
            entries, leaders = entries[stays], leaders[stays]
    entries, leaders = _unfinished(entries, leaders, verify)
    left = entries[leaders == 0]
    found.crowded += len(left)
    found.buckets += len(distinct(left >> HALF))
    yield from _look_alikes(left, verify, found)


def _once(a: np.ndarray, b: np.ndarray, again: np.ndarray, verify: Verify) -> tuple[np.ndarray, int]:
    """How alike the places a[i] and b[i] are, and how many pairs were compared: of those that are marked
    `again`, each pair once."""
    similarity = np.empty(len(a), dtype=np.float32)
    similarity[~again] = verify.similar(a[~again], b[~again])
    pairs, back = np.unique(a[again] << 32 | b[again], return_inverse=True)
    similarity[again] = verify.similar(pairs >> 32, pairs & 0xFFFFFFFF)[back]
    return similarity, len(a) - len(back) + len(pairs)


def _unfinished(entries: np.ndarray, leaders: np.ndarray, verify: Verify) -> tuple[np.ndarray, np.ndarray]:
    """Without buckets in which no pair is left: of one place only, or of references only (these come first in
    keep order)."""
    if not len(entries):
        return entries, leaders
    sizes, starts = _runs(entries >> HALF)
    last = (entries[starts + sizes - 1] & LOW).astype(np.int64)
    open_ = (sizes > 1) & ~verify.reference[last]
    if open_.all():
        return entries, leaders
    stays = np.repeat(open_, sizes)
    return entries[stays], leaders[stays]


def _look_alikes(entries: np.ndarray, verify: Verify, found: Found) -> Iterator[Pairs]:
    """Pairs of each place with the best one of its bucket that has the same sketch."""
    if not len(entries):
        return
    looks = verify.looks((entries & LOW).astype(np.int64))
    order = np.lexsort((entries, looks, entries >> HALF))
    entries, looks = entries[order], looks[order]
    buckets = entries >> HALF
    first = np.ones(len(entries), dtype=bool)
    first[1:] = (looks[1:] != looks[:-1]) | (buckets[1:] != buckets[:-1])
    leader = entries[first][np.cumsum(first) - 1]
    yield from _judged(leader[~first] & LOW, entries[~first] & LOW, verify, found)


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lengths and the starts of runs of equal values, int64."""
    changes = np.ones(len(values), dtype=bool)
    changes[1:] = values[1:] != values[:-1]
    starts = np.flatnonzero(changes)
    return np.diff(np.append(starts, len(values))), starts
