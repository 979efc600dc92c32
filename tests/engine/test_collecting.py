"""How often Python looks for garbage while runs work."""

import gc

import pytest

from curator.run.loop import COLLECT_EVERY, collecting_rarely


@pytest.mark.parametrize("first", [0, 1])
def test_two_runs_of_one_process_leave_it_as_it_was_whichever_ends_first(first):
    before, runs = gc.get_threshold(), [collecting_rarely(), collecting_rarely()]
    for run in runs:
        run.__enter__()
    assert gc.get_threshold()[0] == COLLECT_EVERY
    runs[first].__exit__(None, None, None)
    runs[1 - first].__exit__(None, None, None)
    assert gc.get_threshold() == before
