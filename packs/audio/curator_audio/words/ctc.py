"""Where the tokens of a known text lie in the frames of a CTC model: the likeliest path through its log-probabilities.

Source: Graves et al. 2006, "Connectionist Temporal Classification", 3.2 (the paths); Kürzinger et al. 2020 (arXiv:2007.09127) for their
use in alignment. The recursion is Viterbi's, over the text with a blank around each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Aligned:
    """The likeliest path. `starts`, `stops`: frames of each token, stop not included. `scores`: mean log-probability of each token
    over its frames. `log_probability`: of the whole path."""

    starts: np.ndarray
    stops: np.ndarray
    scores: np.ndarray
    log_probability: float


def align(log_probs: np.ndarray, tokens: Sequence[int], blank: int = 0) -> Aligned | None:
    """Align `tokens` with frames; None where there are too few frames for them (equal neighbours need a blank between them).

    `log_probs`: frames x vocabulary. Memory: frames x (2 tokens + 1) bytes.
    """
    frames, size = len(log_probs), len(tokens)
    wanted = np.full(2 * size + 1, blank)
    wanted[1::2] = tokens
    if not size or frames < size + int((np.diff(tokens) == 0).sum()):
        return None
    can_skip = np.zeros(len(wanted), bool)  # the blank before a token is left out where the token differs from the one before it
    can_skip[3::2] = wanted[3::2] != wanted[1:-2:2]
    emitted = log_probs[:, wanted].astype(np.float64)
    came_by = np.zeros((frames, len(wanted)), np.int8)  # how many states the path went on by
    best = np.full(len(wanted), -np.inf)
    best[:2] = emitted[0, :2]
    by = np.full((3, len(wanted)), -np.inf)
    for frame in range(1, frames):
        by[0] = best
        by[1, 1:] = best[:-1]
        by[2, 2:] = np.where(can_skip[2:], best[:-2], -np.inf)
        came_by[frame] = step = by.argmax(axis=0)
        best = np.take_along_axis(by, step[None], axis=0)[0] + emitted[frame]
    state = len(wanted) - 1 if best[-1] >= best[-2] else len(wanted) - 2
    path = np.empty(frames, np.int64)
    log_probability = float(best[state])
    for frame in range(frames - 1, -1, -1):
        path[frame] = state
        state -= int(came_by[frame, state])
    ranks = np.arange(1, 2 * size, 2)
    starts, stops = np.searchsorted(path, ranks, "left"), np.searchsorted(path, ranks, "right")
    along = np.concatenate([[0.0], np.cumsum(emitted[np.arange(frames), path])])
    return Aligned(starts, stops, (along[stops] - along[starts]) / (stops - starts), log_probability)
