"""Vectors at known cosines."""

from __future__ import annotations

import numpy as np


def directions(random, count, width=32):
    """Vectors of length 1, evenly spread."""
    vectors = random.standard_normal((count, width))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def turned(random, vectors, cosine):
    """A vector for each of these, at this cosine to it, in a random direction."""
    aside = random.standard_normal(vectors.shape)
    aside -= (aside * vectors).sum(axis=1, keepdims=True) * vectors
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    return cosine * vectors + np.sqrt(1 - cosine**2) * aside
