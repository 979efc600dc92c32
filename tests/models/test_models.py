"""What the model stages of all packs share, as far as no stage is needed to see it; the image pack's tests show the rest."""

from __future__ import annotations

import math

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


def test_a_lent_gpu_that_torch_cannot_use_is_an_error():
    if torch.cuda.is_available():
        pytest.skip("this machine's torch can use its GPU")
    with pytest.raises(CuratorError, match="install a torch built for it"):
        place_of(Context(gpus=(0,)))


@given(st.binary(max_size=60))
def test_whatever_a_server_says_is_read(data):
    message_of(data)
    with pytest.raises(Rejected):
        reply_of(data)


@given(st.floats(-6, 6))
def test_the_error_function(x):
    assert abs(float(erf(np.float64(x))) - math.erf(x)) < 2e-7
