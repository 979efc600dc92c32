"""Records with pixels, as stages are given them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from curator.api.tasks import ImageBatch


def images(*pixels: np.ndarray | None, **columns) -> ImageBatch:
    """Records named 0, 1, 2, … with these pixels and columns."""
    ids = pa.array([str(i) for i in range(len(pixels))], pa.string())
    return ImageBatch(rows=pa.table({"id": ids, "source": ids, **columns}), pixels=list(pixels))


def sized(*pixels: np.ndarray | None, sizes: list[tuple[int | None, int | None]] | None = None) -> ImageBatch:
    """Records that have `width` and `height` too: those of their pixels, or `sizes`, as (height, width)."""
    sizes = sizes or [(None, None) if image is None else image.shape[:2] for image in pixels]
    height, width = zip(*sizes, strict=True)
    return images(*pixels, width=pa.array(width, pa.int32()), height=pa.array(height, pa.int32()))
