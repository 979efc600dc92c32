"""A job as a plain loop over Pillow and numpy in a pool of processes: what one writes in an hour without a library.

The hash is imagehash's (DCT of 32 x 32 pixels, by a matrix product); the scores are a part of ours: brightness, contrast,
colourfulness, entropy, and sharpness by a Laplacian, of the image as it is.
"""

from __future__ import annotations

import json
import multiprocessing
from functools import cache
from pathlib import Path

import common
import numpy as np
from PIL import Image


@cache
def cosines() -> np.ndarray:
    k, n = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    return np.cos(np.pi * k * (2 * n + 1) / 64)


def phash(image: Image.Image) -> str:
    small = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), dtype=np.float64)
    low = (cosines() @ small @ cosines().T)[:8, :8]
    return np.packbits(low > np.median(low)).tobytes().hex()


def scores(image: Image.Image) -> dict[str, float]:
    rgb = np.asarray(image.convert("RGB"), dtype=np.float32)
    grey = np.asarray(image.convert("L"), dtype=np.float32)
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * grey[1:-1, 1:-1]
    red_green, yellow_blue = rgb[..., 0] - rgb[..., 1], (rgb[..., 0] + rgb[..., 1]) / 2 - rgb[..., 2]
    colour = np.hypot(red_green.std(), yellow_blue.std()) + 0.3 * np.hypot(red_green.mean(), yellow_blue.mean())
    return {"width": image.width, "height": image.height, "brightness": float(grey.mean()), "contrast": float(grey.std()),
            "entropy": float(image.convert("L").entropy()), "sharpness": float(laplacian.var()), "colourfulness": float(colour)}


def hash_of(path: str) -> tuple[str, str]:
    with Image.open(path) as image:
        return path, phash(image)


def scores_of(path: str) -> tuple[str, dict]:
    with Image.open(path) as image:
        return path, {**scores(image), "phash": phash(image)}


def pooled(job: common.Job, work) -> dict:
    with multiprocessing.Pool(job.workers) as pool:
        found = dict(pool.map(work, job.paths, chunksize=16))
    Path(job.place, "found.json").write_text(json.dumps(found), encoding="utf-8")
    return {"version": Image.__version__, "images": len(found)}


if __name__ == "__main__":
    common.main({"hash": lambda job: pooled(job, hash_of), "scores": lambda job: pooled(job, scores_of)})
