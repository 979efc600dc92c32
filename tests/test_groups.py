"""The tests run in several processes; those of one group share one, and so one Ray cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

SUITE = """
import os, pathlib, pytest
@pytest.mark.parametrize("n", range(6))
@pytest.mark.xdist_group("one")
def test_it(n):
    pathlib.Path(__file__).with_name(f"{n}.txt").write_text(str(os.getpid()))
"""


@pytest.mark.slow
def test_tests_of_a_group_run_in_one_process(tmp_path):
    (tmp_path / "test_grouped.py").write_text(SUITE)
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadgroup", "-p", "no:cacheprovider", str(tmp_path)],
                   check=True, capture_output=True, cwd=tmp_path)
    assert len({file.read_text() for file in tmp_path.glob("?.txt")}) == 1
