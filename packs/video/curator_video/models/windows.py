"""Which frames of a clip a model looks at: some of all, or those of windows in time."""

from __future__ import annotations

import numpy as np


def spread(there: int, wanted: int) -> np.ndarray:
    """The places of `wanted` frames among those that are there: in the middle of equal parts.

    Some come several times where there are fewer.
    """
    return ((np.arange(wanted) + 0.5) * there / wanted).astype(np.int64)
