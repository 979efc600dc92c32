"""MinHash signatures of sets of hashes, many sets at once, by numpy or on a torch device.

Source: Fast Similarity Sketching (Dahlgaard, Knudsen and Thorup 2017, arXiv 1704.04370). A round throws every
element of a set into one of the K places, with a random value; the least value of the first round that
reaches a place stays there. So a set of n elements costs about max(n, K ln K) instead of n K operations. What
is still free after 32 rounds (in sets of fewer than about 0.2 K elements) gets the least of K-wise separate
hashes, as in Broder's MinHash.

Two sets agree in a place with a probability that is their Jaccard similarity J, so the share of places in
which they agree estimates J without bias. Its standard error is at most sqrt(J (1 - J) / K), that of K
separate hash functions; measured with K = 112 it is 0.7 to 0.9 of it for sets of 16 to 400 elements. Known
difference: one-permutation hashing with densification (Li, Owen and Zhang 2012; Shrivastava 2017) is as fast
and its error for sets smaller than K is greater, because it fills places by copying.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator.ngrams.hashing import MULTIPLIER, Grams, mixed

# done together, before it is seen which sets are complete
ROUNDS = ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32))
_FREE = np.iinfo(np.int64).max
_LOW = 0xFFFFFFFF
_STEP = 0x9E3779B97F4A7C15  # Source: splitmix64 (Steele, Lea and Flood 2014)
_PART = 1 << 17  # elements and places worked on at once: they fit the cache


def sketches(grams: Grams, count: int, seed: int, device: Any = None) -> np.ndarray:
    """`count` values of each set, uint32 [sets, count]; those of an empty set are all 2^32 - 1.

    `device`: a torch device to compute on, None for numpy; the values are the same.
    """
    constants = mixed(np.arange(1, ROUNDS[-1][1] + count + 1,
                                dtype=np.uint64) * np.uint64(_STEP) + mixed(_seed(seed)))
    if device is not None:
        return _fill(_Torch(device), grams.hashes, grams.of, count, constants)
    found = np.empty((len(grams.of) - 1, count), np.uint32)
    first = 0
    while first < len(found):
        stop = min(first + _PART // count + 1, int(np.searchsorted(grams.of, grams.of[first] + _PART)))
        stop = max(stop, first + 1)
        of = grams.of[first:stop + 1]
        found[first:stop] = _fill(_Numpy, grams.hashes[of[0]:of[-1]], of - of[0], count, constants)
        first = stop
    return found


def _seed(seed: int) -> np.ndarray:
    return np.array([seed % (1 << 64)], np.uint64)


def _fill(ops: Any, hashes: np.ndarray, of: np.ndarray, count: int, constants: np.ndarray) -> np.ndarray:
    sets = len(of) - 1
    hashes, of, constants = (ops.put(values) for values in (hashes, of, constants))
    keys = ops.free(sets * count)
    owner = ops.repeat(ops.arange(sets), of[1:] - of[:-1])  # the set of each element
    for first, stop in ROUNDS:
        high, low = ops.halves(hashes[None, :] ^ constants[first:stop, None], mix=first > 0)
        rounds = ops.arange(stop - first)[:, None] + first << 32
        ops.lower(keys, (owner * count + (high * count >> 32)).reshape(-1), (low | rounds).reshape(-1))
        complete = (keys.reshape(sets, count) != _FREE).all(1)
        if complete.all():
            break
        left = ~complete[owner]
        hashes, owner = hashes[left], owner[left]
    free = ops.where(keys == _FREE)
    free = free[(of[1:] > of[:-1])[free // count]]
    if len(free):
        _fill_separately(ops, keys, free, (hashes, owner), (count, constants))
    return ops.get(keys & _LOW).astype(np.uint32).reshape(sets, count)


def _fill_separately(ops: Any, keys: Any, free: Any, left: tuple[Any, Any], how: tuple[int, Any]) -> None:
    """For each free place the least value that a hash function of its own gives to the elements of its
    set."""
    (hashes, owner), (count, constants) = left, how
    sets = free // count
    firsts = ops.find(owner, sets)
    sizes = ops.find(owner, sets + 1) - firsts
    ends = ops.cumsum(sizes)
    at = ops.arange(int(ends[-1])) - ops.repeat(ends - sizes - firsts, sizes)
    _, low = ops.halves(hashes[at] ^ ops.repeat(constants[ROUNDS[-1][1] + free % count], sizes))
    ops.lower(keys, ops.repeat(free, sizes), low | ROUNDS[-1][1] << 32)


class _Numpy:
    """What the algorithm asks of arrays, by numpy."""

    arange, repeat, cumsum, where, find = np.arange, np.repeat, np.cumsum, np.flatnonzero, np.searchsorted
    lower = np.minimum.at

    @staticmethod
    def put(values: np.ndarray) -> np.ndarray:
        return values

    get = put

    @staticmethod
    def free(size: int) -> np.ndarray:
        return np.full(size, _FREE)

    @staticmethod
    def halves(values: np.ndarray, mix: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """The upper and the lower 32 bits, int64. The first round does not mix, for what it gets is a hash
        already."""
        if mix:
            values = mixed(values)
        return (values >> np.uint64(32)).view(np.int64), (values & np.uint64(_LOW)).view(np.int64)


class _Torch:
    """The same on a torch device. Torch has no uint64: products are the same modulo 2^64, shifts are made
    logical."""

    def __init__(self, device: Any) -> None:
        import torch

        self._torch, self._device = torch, torch.device(device)
        self.repeat, self.find = torch.repeat_interleave, torch.searchsorted

    def put(self, values: np.ndarray) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(values).view(np.int64).copy()).to(self._device)

    def get(self, values: Any) -> np.ndarray:
        return values.cpu().numpy()

    def arange(self, stop: int) -> Any:
        return self._torch.arange(stop, device=self._device)

    def cumsum(self, values: Any) -> Any:
        return self._torch.cumsum(values, 0)

    def where(self, mask: Any) -> Any:
        return self._torch.nonzero(mask).reshape(-1)

    def free(self, size: int) -> Any:
        return self._torch.full((size,), _FREE, dtype=self._torch.int64, device=self._device)

    def lower(self, keys: Any, at: Any, values: Any) -> None:
        keys.scatter_reduce_(0, at, values, "amin")

    def halves(self, values: Any, mix: bool = True) -> tuple[Any, Any]:
        if mix:  # as `mixed` does
            factor = MULTIPLIER - (1 << 64)  # the same number as an int64
            values = (values ^ (values >> 32 & _LOW)) * factor
            values = (values ^ (values >> 32 & _LOW)) * factor
            values = values ^ (values >> 32 & _LOW)
        return values >> 32 & _LOW, values & _LOW
