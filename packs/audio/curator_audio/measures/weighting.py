"""The K weighting of ITU-R BS.1770: a filter that recurs, run as matrix products over blocks of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

LOWEST_RATE = 4000      # the shelf lies at 1682 Hz; below this rate there is nothing to weight
WEIGHTED_BLOCKS = 2000  # blocks at a time, so that what is made on the way stays in the cache
GROUP = 16              # blocks whose states are one matrix product


def coefficients(rate: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The shelf and the high-pass as (b, a) for a rate, by the bilinear transform of the filters that the standard gives at 48 kHz."""
    k, q, gain = math.tan(math.pi * 1681.974450955533 / rate), 0.7071752369554196, 10 ** (3.999843853973347 / 20)
    bend, norm = gain**0.4996667741545416, 1 + k / q + k * k
    shelf_b = np.array([gain + bend * k / q + k * k, 2 * (k * k - gain), gain - bend * k / q + k * k]) / norm
    shelf_a = np.array([norm, 2 * (k * k - 1), 1 - k / q + k * k]) / norm
    k, q = math.tan(math.pi * 38.13547087602444 / rate), 0.5003270373238773
    norm = 1 + k / q + k * k
    return [(shelf_b, shelf_a), (np.array([1.0, -2.0, 1.0]), np.array([norm, 2 * (k * k - 1), 1 - k / q + k * k]) / norm)]


def weighted(channel: np.ndarray, rate: int, block: int) -> Iterator[np.ndarray]:
    """The channel after the filter, in pieces of whole blocks; what is left over at the end is left out."""
    to_output, from_state, to_state = _matrices(rate, block)
    state = np.zeros(4)
    rows = len(channel) // block
    for start in range(0, rows, WEIGHTED_BLOCKS):
        count = min(WEIGHTED_BLOCKS, rows - start)
        samples = channel[start * block : (start + count) * block].reshape(count, block)
        states = _states((samples @ to_state).astype(np.float64), state, rate, block)
        output = samples @ to_output
        output += states[:-1].astype(np.float32) @ from_state
        state = states[-1]
        yield output.reshape(-1)


def _states(pushed: np.ndarray, state: np.ndarray, rate: int, block: int) -> np.ndarray:
    """The state before each block and after the last: each is `carried` @ the one before + what the block pushed.

    A group of blocks is one matrix product, and the states between groups are found in the same way.
    """
    count = len(pushed)
    if count <= GROUP:
        carried, states = _carried(rate, block), [state]
        for push in pushed:
            states.append(carried @ states[-1] + push)
        return np.array(states)
    inside, onward = _group(rate, block)
    whole = count // GROUP * GROUP
    after = pushed[:whole].reshape(-1, 4 * GROUP) @ inside  # the state after each block if its group began at 0
    begins = _states(after[:, -4:], state, rate, GROUP * block)
    after += begins[:-1] @ onward
    return np.concatenate([state[None], after.reshape(-1, 4), _states(pushed[whole:], begins[-1], rate, block)[1:]])


@lru_cache(maxsize=64)
def _group(rate: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a group of blocks: what their pushes, and the state before the first, add to the state after each."""
    powers = [np.eye(4)]
    for _ in range(GROUP):
        powers.append(_carried(rate, block) @ powers[-1])
    inside = np.zeros((GROUP, 4, GROUP, 4))
    for first in range(GROUP):
        for at in range(first, GROUP):
            inside[first, :, at] = powers[at - first].T
    return inside.reshape(4 * GROUP, 4 * GROUP), np.concatenate([power.T for power in powers[1:]], axis=1)


@lru_cache(maxsize=64)
def _carried(rate: int, block: int) -> np.ndarray:
    """What stays of the state after so many samples."""
    return np.linalg.matrix_power(_step(rate)[:4, :4], block)


@lru_cache(maxsize=16)
def _matrices(rate: int, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a block of samples: what it gives, what the state adds, what it leaves in the state."""
    step = _step(rate)
    a, b, c, d = step[:4, :4], step[:4, 4], step[4, :4], step[4, 4]
    pushes, reads = [b], [c]
    for _ in range(block - 1):
        pushes.append(a @ pushes[-1])
        reads.append(reads[-1] @ a)
    impulse = np.array([d, *(read @ b for read in reads[:-1])])
    to_output = np.sum([np.diag(np.full(block - lag, value), lag) for lag, value in enumerate(impulse)], axis=0)
    return to_output.astype(np.float32), np.array(reads).T.astype(np.float32), np.array(pushes[::-1]).astype(np.float32)


@lru_cache(maxsize=16)
def _step(rate: int) -> np.ndarray:
    """(state, sample) -> (next state, output): transposed direct form II of both filters in a row."""
    (b1, a1), (b2, a2) = coefficients(rate)
    step = np.zeros((5, 5))
    for column in range(5):
        s, x = np.eye(5)[column][:4], float(column == 4)
        middle = b1[0] * x + s[0]
        output = b2[0] * middle + s[2]
        step[:, column] = (b1[1] * x - a1[1] * middle + s[1], b1[2] * x - a1[2] * middle,
                           b2[1] * middle - a2[1] * output + s[3], b2[2] * middle - a2[2] * output, output)
    return step
