"""The similar pairs of a big bucket, for measures that compare many sketches with many at once
(`Cosine.pairs`).

Leaders as in `candidates`, but by the block: the best place leads those after it, then the next best one, and
so on; who has `most` leaders has enough, and neither gets more nor leads. No crowd is too big, it only takes
the square of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

LEADERS_BLOCK = 512  # places that lead at a time
MEMBERS_BLOCK = 8192  # places that they are compared with at a time

Near = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""For places a [n] and b [m], int64: positions i, j of those that are similar, in order of i, then j, and their
similarity."""


def led(places: np.ndarray, near: Near, reference: np.ndarray,
        most: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs of leaders and those that they lead: places a < b, int64, and their similarity, float32.

    `places`: of one bucket, int64, the best first. `reference`: bool by place; two of these are no pair, and
    they come before all others.
    """
    leaders = np.zeros(len(places), dtype=np.int64)  # that were found for each place
    while len(places) > 1 and not reference[places[-1]]:
        block, count = places[:LEADERS_BLOCK], leaders[:LEADERS_BLOCK]
        i, j, similarity = _within(block, count, near, reference, most)
        yield block[i], block[j], similarity
        leading = block[count < most]
        places, leaders = places[LEADERS_BLOCK:], leaders[LEADERS_BLOCK:]
        for start in range(0, len(places), MEMBERS_BLOCK):
            members, count = places[start:start + MEMBERS_BLOCK], leaders[start:start + MEMBERS_BLOCK]
            i, j, similarity = _beyond(leading, members, count, near, reference, most)
            yield leading[i], members[j], similarity
        places, leaders = places[leaders < most], leaders[leaders < most]


def _within(block: np.ndarray, leaders: np.ndarray, near: Near, reference: np.ndarray,
            most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs inside a block, by position; `leaders` is counted up."""
    if reference[block].all():
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    i, j, similarity = near(block, block)
    wanted = (i < j) & ~(reference[block[i]] & reference[block[j]])
    i, j, similarity = i[wanted], j[wanted], similarity[wanted]
    taken = np.zeros(len(i), dtype=bool)
    starts = np.searchsorted(i, np.arange(len(block) + 1))
    for leader in np.unique(i).tolist():
        if leaders[leader] < most:
            span = slice(starts[leader], starts[leader + 1])
            taken[span] = leaders[j[span]] < most
            leaders[j[span]] += taken[span]
    return i[taken], j[taken], similarity[taken]


def _beyond(leading: np.ndarray, members: np.ndarray, leaders: np.ndarray, near: Near, reference: np.ndarray,
            most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of these leaders with places that do not lead yet, by position; `leaders` of the latter is
    counted up."""
    i, j, similarity = near(leading, members)
    wanted = ~(reference[leading[i]] & reference[members[j]])
    i, j, similarity = i[wanted], j[wanted], similarity[wanted]
    order = np.argsort(j, kind="stable")  # member after member, its leaders from the best one
    i, j, similarity = i[order], j[order], similarity[order]
    rank = np.arange(len(j)) - np.searchsorted(j, j)
    taken = rank < most - leaders[j]
    leaders += np.bincount(j[taken], minlength=len(members))
    return i[taken], j[taken], similarity[taken]
