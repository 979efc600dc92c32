"""What the model stages of all packs share, as far as no stage is needed to see it; the image pack's tests show the rest."""

from __future__ import annotations

import math
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.chat import Rejected, message_of, reply_of
from curator.models.heads import erf
from curator.models.loading import place_of

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


def test_a_lent_gpu_that_torch_cannot_use_is_an_error():
    if torch.cuda.is_available():
        pytest.skip("this machine's torch can use its GPU")
    with pytest.raises(CuratorError, match="install a torch built for it"):
        place_of(Context(gpus=(0,)))


def faults_of_a_layer():
    """Pages that the system gives for 40 MB that are taken, written to and let go, for the fifth time."""
    place_of(Context())
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.empty(40 << 20, np.uint8).fill(1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is GNU's C library that gives pages back")
def test_what_a_layer_let_go_is_given_to_the_next_without_the_system():
    words = [sys.executable, "-c", "from tests.models.test_models import faults_of_a_layer; faults_of_a_layer()"]
    few = {"MALLOC_MMAP_THRESHOLD_": "8000000", "MALLOC_TRIM_THRESHOLD_": "16000000"}  # as workers have it
    done = subprocess.run(words, env={**os.environ, **few}, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # of 10,240


@given(st.binary(max_size=60))
def test_whatever_a_server_says_is_read(data):
    message_of(data)
    with pytest.raises(Rejected):
        reply_of(data)


@given(st.floats(-6, 6))
def test_the_error_function(x):
    assert abs(float(erf(np.float64(x))) - math.erf(x)) < 2e-7
