"""Which pictures of a film are taken: those that are about so far apart."""

import numpy as np
import pytest
from curator_video.read.sampling import Choice, Seen, chosen, spaced
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.floats(0.01, 2), min_size=1, max_size=30), st.floats(0.1, 1.5))
def test_pictures_are_spaced(steps, every):
    times = np.cumsum(steps)
    taken = spaced(times, every)
    assert taken[0] == 0
    assert np.all(np.diff(times[taken]) >= 0.6 * every - 1e-5)
    assert len(taken) - 1 <= (times[-1] - times[0]) / every + 0.2 + 1e-5  # so many in all, however they lie
    for k in set(range(len(times))) - set(taken.tolist()):
        before = taken[taken < k].max()
        assert times[k] - times[before] < 1.2 * every


@pytest.mark.parametrize("rate", [10, 12, 15, 23.976, 24, 25, 29.97, 30, 50, 60])
def test_of_a_film_sampled_twice_a_second_every_picture_is_taken(rate):
    """Those for 0, 0.5, 1 s are at 0, 0.48, 1 of 25 pictures a second."""
    times = np.array([time for time, _ in chosen(((k / rate, None) for k in range(int(10 * rate))), Choice("fps", 2, 1), 0, 10, Seen())])
    assert len(times) == 20
    assert len(spaced(times, 0.5)) == 20
    assert 20 <= len(spaced(np.arange(10 * rate) / rate, 0.5)) <= 21  # of all its pictures, too: the last may be near to 10 s
