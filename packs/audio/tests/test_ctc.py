"""Forced alignment against paths worked out by trying all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from curator_audio.words.ctc import align
from hypothesis import given
from hypothesis import strategies as st

# Probabilities of blank, a, b in six frames.
FRAMES = np.log([[.6, .3, .1], [.1, .8, .1], [.2, .7, .1], [.5, .1, .4], [.1, .1, .8], [.7, .2, .1]])


@pytest.mark.parametrize(("tokens", "log_probability", "spans"), [
    ([1, 2], -2.363610, [(1, 3), (4, 5)]), ([1], -4.443051, [(1, 3)]), ([1, 1], -4.443051, [(1, 3), (4, 5)]),
    ([1, 1, 2], -5.136199, None), ([1, 2, 1], -3.616373, [(1, 3), (4, 5), (5, 6)]), ([1, 1, 1], -7.215640, None)])
def test_the_likeliest_path_of_known_texts(tokens, log_probability, spans):
    found = align(FRAMES, tokens)
    assert found.log_probability == pytest.approx(log_probability, abs=1e-6)
    if spans and tokens != [1, 1]:
        assert list(zip(found.starts, found.stops, strict=True)) == spans
    assert (found.starts < found.stops).all()
    assert (found.stops[:-1] <= found.starts[1:]).all()


def test_a_text_that_needs_more_frames_has_no_path():
    assert align(FRAMES, [1, 1, 1, 1]) is None
    assert align(FRAMES, []) is None
    assert align(FRAMES[:0], [1]) is None


def collapsed(path):
    return [token for token, _ in itertools.groupby(path) if token]


@given(st.integers(1, 5), st.lists(st.integers(1, 2), min_size=1, max_size=3), st.integers(0, 10 ** 6))
def test_no_path_is_likelier(frames, tokens, seed):
    log_probs = np.log(np.random.default_rng(seed).dirichlet([1, 1, 1], frames))
    every = [sum(log_probs[t, token] for t, token in enumerate(path))
             for path in itertools.product(range(3), repeat=frames) if collapsed(path) == tokens]
    found = align(log_probs, tokens)
    assert (found is None) == (not every)
    if every:
        assert found.log_probability == pytest.approx(max(every))
        inside = np.zeros(frames, int)
        for token, start, stop, score in zip(tokens, found.starts, found.stops, found.scores, strict=True):
            inside[start:stop] = token
            assert score == pytest.approx(log_probs[start:stop, token].mean())
        assert log_probs[np.arange(frames), inside].sum() == pytest.approx(found.log_probability)


def test_a_text_of_hundreds_of_letters_is_found_where_it_is():
    chance = np.random.default_rng(0)
    tokens = chance.integers(1, 5, 300)
    best = np.zeros(900, np.int64)
    best[1::3] = tokens
    found = align(np.where(np.arange(5) == best[:, None], np.log(0.9), np.log(0.025)), tokens)
    assert np.array_equal(found.starts, np.arange(1, 900, 3))
    assert np.array_equal(found.stops, found.starts + 1)
    assert found.log_probability == pytest.approx(900 * np.log(0.9))
