"""Clusters over similar pairs, greedy in keep order: pure arrays, no records.

The best record is kept and takes all records within `radius` pairs of it; of those that are left the best is
kept, and so on. A record is reached only through records that nobody has taken before, and never through a
reference. With the radius 1 the records that are kept are the lexicographically first maximal independent
set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from curator_dedup.shared.arrays import distinct, first_of_each, ranges

NOBODY = np.uint32(2**32 - 1)
# a parallel round that leaves more of the pairs than this is slower than going through them in turn
WORTHWHILE = 0.9


def assign(first: np.ndarray, second: np.ndarray, similarity: np.ndarray, order: np.ndarray,
           reference: np.ndarray,
           radius: int | None = 1) -> tuple[np.ndarray, np.ndarray]:
    """For each record the one that is kept in its place (itself if it is kept), uint32, and how similar they
    are, float32.

    `first`, `second`: the two records of each pair, by number, in any direction and any number of times; one
    record with itself says nothing. `order`: the rank of each record, all different, 0 the best. `reference`:
    records that come before all others and are always kept. `radius`: None for no bound (connected
    components, each to the best reference beside it).

    The similarity is that of the pair where there is one; else the lowest on the best of the shortest ways
    there; NaN for records that are kept.
    """
    best_first = np.lexsort((order, ~reference))
    place = np.empty(len(order), dtype=np.uint32)
    place[best_first] = np.arange(len(order), dtype=np.uint32)
    fixed = reference[best_first]
    useful = (first != second) & ~(reference[first] & reference[second])
    better, worse, similarity = distinct_pairs(place[first[useful]], place[second[useful]],
                                               similarity[useful])
    if radius is None:
        kept = _components(better, worse, fixed)
    elif radius == 1:
        kept = _neighbouring(better, worse, len(order))
    else:
        kept = _within(better, worse, fixed, radius)
    found = _similarities(better, worse, similarity, kept)
    representative, measured = np.empty_like(place), np.empty(len(order), dtype=np.float32)
    representative[best_first], measured[best_first] = best_first[kept], found
    return representative, measured


def distinct_pairs(first: np.ndarray, second: np.ndarray,
                   similarity: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each pair of numbers once, the smaller one first, sorted; of several similarities the highest."""
    if not first.size:
        return first, second, similarity
    keys = np.minimum(first, second).astype(np.uint64) << np.uint64(32) | np.maximum(first, second)
    sorting = np.argsort(keys)
    keys = keys[sorting]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    similarity, keys = np.maximum.reduceat(similarity[sorting], starts), keys[starts]
    return (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32), similarity


# -- who is kept. From here a number is a place in keep order, and pairs are sorted and distinct, the better
# one first --


def _neighbouring(better: np.ndarray, worse: np.ndarray, count: int) -> np.ndarray:
    """Radius 1. In each round all records are kept that have no better neighbour left: what is decided is
    what going through them in turn decides, and the rounds are few where the order has nothing to do with the
    pairs.

    Source: Blelloch, Fineman, Shun, "Greedy sequential maximal independent set and matching are parallel on
    average", SPAA 2012, algorithm 2.
    """
    taken, blocked = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    left, right = better, worse
    while left.size:
        blocked[right] = True
        taken[right[~blocked[left]]] = True
        blocked[right] = False
        open_ = ~(taken[left] | taken[right])
        slow = np.count_nonzero(open_) > WORTHWHILE * len(left)
        left, right = left[open_], right[open_]
        if slow:  # a chain in keep order: a round decides one record
            _in_turn(left, right, taken)
            break
    kept = np.arange(count, dtype=np.uint32)
    takes = ~taken[better] & taken[worse]
    kept[worse[takes][::-1]] = better[takes][::-1]  # of several the last that is written, which is the best
    return kept


def _in_turn(better: np.ndarray, worse: np.ndarray, taken: np.ndarray) -> None:
    nodes, starts = first_of_each(better)
    ends = np.append(starts[1:], len(better))
    flags = taken.view(np.uint8).data
    for node, start, end in zip(nodes.data, starts.data, ends.data, strict=True):
        if not flags[node]:
            taken[worse[start:end]] = True


def _within(better: np.ndarray, worse: np.ndarray, fixed: np.ndarray, radius: int) -> np.ndarray:
    """Any radius: a search from each record that is kept, in turn."""
    kept = np.where(fixed, np.arange(len(fixed), dtype=np.uint32), NOBODY)
    neighbours = _Neighbours.of_pairs(better, worse, len(fixed))
    for node in distinct(better).data:  # one without a worse neighbour takes nobody
        if kept[node] not in (NOBODY, node):
            continue
        kept[node] = node
        frontier = np.array([node], dtype=np.uint32)
        for _ in range(radius):
            reached = neighbours.to[neighbours.pairs(frontier)]
            frontier = distinct(reached[kept[reached] == NOBODY])
            if not frontier.size:
                break
            kept[frontier] = node
    return np.where(kept == NOBODY, np.arange(len(fixed), dtype=np.uint32), kept)


def _components(better: np.ndarray, worse: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """No bound: the best of each component of records that are no references, or the best reference that has
    a pair there."""
    known = fixed[better]
    label = _lowest(better[~known], worse[~known], len(fixed))
    owner = np.arange(len(fixed), dtype=np.uint32)
    owner[label[worse[known]][::-1]] = better[known][::-1]
    return owner[label]


def _lowest(left: np.ndarray, right: np.ndarray, count: int) -> np.ndarray:
    """The lowest number of each one's component: roots are hung on their lowest neighbour until no pair joins
    two trees."""
    label = np.arange(count, dtype=np.uint32)
    while left.size:
        np.minimum.at(label, right, left)
        while (label != (up := label[label])).any():
            label = up
        left, right = label[left], label[right]
        apart = left != right
        left, right = np.minimum(left, right)[apart], np.maximum(left, right)[apart]
    return label


# -- how similar ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Neighbours:
    """Pairs in both directions: those of `n` are `to[starts[n]:starts[n + 1]]`; `pair`: which pair each one
    is."""

    starts: np.ndarray
    to: np.ndarray
    pair: np.ndarray

    @classmethod
    def of_pairs(cls, left: np.ndarray, right: np.ndarray, count: int) -> _Neighbours:
        here = np.concatenate([left, right])
        sorting = np.argsort(here)
        starts = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(here, minlength=count), out=starts[1:])
        pair = np.arange(len(here), dtype=np.uint32) % np.uint32(max(len(left), 1))
        return cls(starts, np.concatenate([right, left])[sorting], pair[sorting])

    def pairs(self, nodes: np.ndarray) -> np.ndarray:
        """Where the pairs of these stand, one node after the other."""
        return ranges(self.starts[nodes], self.counts(nodes))

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        return self.starts[nodes.astype(np.int64) + 1] - self.starts[nodes]


def _similarities(better: np.ndarray, worse: np.ndarray, similarity: np.ndarray,
                  kept: np.ndarray) -> np.ndarray:
    """How similar each record is to the one in `kept`; all clusters are searched at once, one step after the
    other."""
    found = np.full(len(kept), np.nan, dtype=np.float32)
    direct = kept[worse] == better
    found[worse[direct]] = similarity[direct]
    if np.count_nonzero(kept != np.arange(len(kept))) == np.count_nonzero(direct):
        return found
    inner = np.flatnonzero((kept[better] == kept[worse]) & ~direct)
    neighbours, similarity = _Neighbours.of_pairs(better[inner], worse[inner], len(kept)), similarity[inner]
    frontier = worse[direct]
    while frontier.size:
        origin, pairs = np.repeat(frontier, neighbours.counts(frontier)), neighbours.pairs(frontier)
        fresh = np.isnan(found[neighbours.to[pairs]])
        origin, pairs = origin[fresh], pairs[fresh]
        reached, lowest = neighbours.to[pairs], np.minimum(found[origin], similarity[neighbours.pair[pairs]])
        frontier = distinct(reached)
        found[frontier] = -np.inf
        np.maximum.at(found, reached, lowest)
    return found
