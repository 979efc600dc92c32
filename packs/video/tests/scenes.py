"""Pictures with known shots: textures under a moving camera, cut, dissolved, faded and flashed by known pictures."""

from __future__ import annotations

import functools

import cv2
import numpy as np

FPS = 25
WIDTH, HEIGHT = 320, 240


@functools.lru_cache(maxsize=64)
def texture(seed: int, height: int = 640, width: int = 2320) -> np.ndarray:
    """Noise of five octaves in one tint, float32 RGB."""
    rng = np.random.default_rng(seed)
    luma = np.zeros((height, width), np.float32)
    for octave in (8, 16, 32, 64, 128):
        grid = rng.uniform(-1, 1, (height // octave + 2, width // octave + 2)).astype(np.float32)
        luma += cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC) * octave**0.5
    luma = (luma - luma.mean()) / luma.std() * 40 + rng.uniform(70, 170)
    return luma[:, :, None] * rng.uniform(0.75, 1.25, 3).astype(np.float32)


def pan(seed: int, count: int = 75, speed: float = 0.0) -> np.ndarray:
    """`count` pictures of a texture, `speed` pixels further each, float32 [T, 240, 320, 3]."""
    canvas = texture(seed)
    made = np.empty((count, HEIGHT, WIDTH, 3), np.float32)
    for at in range(count):
        shift = np.float32([[1, 0, -40 - speed * at], [0, 1, -40]])
        made[at] = cv2.warpAffine(canvas, shift, (WIDTH, HEIGHT))
    return made


def mixed(first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    """The first goes over into the second in `count` mixed pictures."""
    share = ((np.arange(count) + 1) / (count + 1)).astype(np.float32)[:, None, None, None]
    over = (1 - share) * first[-count:] + share * second[:count]
    return np.concatenate([first[:-count], over, second[count:]])


def through(first: np.ndarray, second: np.ndarray, fade: int, blank: int, level: float) -> np.ndarray:
    share = ((np.arange(fade) + 1) / (fade + 1)).astype(np.float32)[:, None, None, None]
    return np.concatenate([first[:-fade], (1 - share) * first[-fade:] + share * level,
                           np.full((blank, *first.shape[1:]), level, np.float32),
                           share * second[:fade] + (1 - share) * level, second[fade:]])


def _flash(pictures: np.ndarray, shares: dict[int, float]) -> np.ndarray:
    for at, share in shares.items():
        pictures[at] = (1 - share) * pictures[at] + share * 255
    return pictures


def _occluder(seed: int) -> np.ndarray:
    pictures = pan(1 + seed, 75, 2)
    for at in range(10):
        left = -200 + round(at * 520 / 9)
        pictures[35 + at, :, max(0, left):max(0, left + 200)] = 60
    return pictures


def _zoom(seed: int) -> np.ndarray:
    canvas = texture(seed)[:HEIGHT + 200, :WIDTH + 200]
    made = []
    for at in range(75):
        scale = 1.02**at
        turn = np.float32([[scale, 0, 160 - scale * 260], [0, scale, 120 - scale * 220]])
        made.append(cv2.warpAffine(canvas, turn, (WIDTH, HEIGHT)))
    return np.stack(made)


def _wipe(first: np.ndarray, second: np.ndarray, count: int) -> np.ndarray:
    over = first[-count:].copy()
    for at in range(count):
        edge = round((at + 1) / (count + 1) * WIDTH)
        over[at, :, :edge] = second[at, :, :edge]
    return np.concatenate([first[:-count], over, second[count:]])


def _barred(pictures: np.ndarray) -> np.ndarray:
    pictures[:, :36] = pictures[:, -36:] = 0
    return pictures


def cases(seed: int = 0) -> dict[str, tuple[object, list[int], list[tuple[int, int]], int]]:
    """By name: a function that makes the pictures, first pictures after cuts, first and last pictures of gradual changes,
    flashes. `seed` is added to those of the textures."""
    def shot(number: int, count: int = 75, speed: float | None = None) -> np.ndarray:
        return pan(number + seed, count, {1: 2, 2: 1, 3: 3, 4: 0}[number] if speed is None else speed)

    def joined(*parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts)

    def noisy() -> np.ndarray:
        made = joined(shot(1), shot(2))
        return made + np.random.default_rng(seed).normal(0, 12, made.shape).astype(np.float32)

    return {
        "hard": (lambda: joined(shot(1), shot(2), shot(3), shot(4)), [75, 150, 225], [], 0),
        "static_cut": (lambda: joined(shot(1, 50, 0), shot(2, 50, 0)), [50], [], 0),
        "noise": (noisy, [75], [], 0),
        "grey": (lambda: joined(shot(1), shot(2)).mean(axis=3, keepdims=True).repeat(3, 3), [75], [], 0),
        "flip": (lambda: joined(shot(1), shot(1)[:, :, ::-1]), [75], [], 0),
        "short3": (lambda: joined(shot(1, 50), shot(2, 3), shot(3, 50)), [50, 53], [], 0),
        "dark": (lambda: joined(shot(1), shot(2)) * 0.12, [75], [], 0),
        "barred": (lambda: _barred(joined(shot(1), shot(2))), [75], [], 0),
        "flash_at_cut": (lambda: _flash(joined(shot(1), shot(2)), {74: 1.0}), [75], [], 0),
        "flash1": (lambda: _flash(shot(1), {37: 1.0}), [], [], 1),
        "flash2": (lambda: _flash(shot(1), {37: 0.8, 38: 0.5}), [], [], 1),
        "whip": (lambda: joined(shot(1, 30, 0), pan(1 + seed, 15, 40), pan(1 + seed, 16, 40)[15:].repeat(30, 0)), [], [], 0),
        "pan16": (lambda: shot(1, 75, 16), [], [], 0),
        "zoom": (lambda: _zoom(1 + seed), [], [], 0),
        "dim": (lambda: shot(1) * np.linspace(1, 0.4, 75, dtype=np.float32)[:, None, None, None], [], [], 0),
        "occluder": (lambda: _occluder(seed), [], [], 0),
        "dissolve12": (lambda: mixed(shot(1), shot(2), 12), [], [(63, 74)], 0),
        "dissolve25": (lambda: mixed(shot(1), shot(2), 25), [], [(50, 74)], 0),
        "fadeblack": (lambda: through(shot(1), shot(2), 12, 6, 0.0), [], [(63, 92)], 0),
        "fadewhite": (lambda: through(shot(1), shot(2), 12, 0, 255.0), [], [(63, 86)], 0),
        "wipe12": (lambda: _wipe(shot(1), shot(2), 12), [], [(63, 74)], 0),
    }


def drawn(name: str, seed: int = 0) -> np.ndarray:
    """The pictures of a case, uint8 RGB."""
    made = cases(seed)[name][0]()  # type: ignore[operator]
    np.rint(made, out=made)  # in its place: it is a hundred megabytes
    return np.clip(made, 0, 255, out=made).astype(np.uint8)


def thumbs_of(pictures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Luma [T, 36, 64] from 16 to 235 and U, V [T, 2, 18, 32] as a reader of films makes them."""
    luma, chroma = [], []
    for picture in pictures:
        y = picture @ np.float32([0.299, 0.587, 0.114])
        u, v = (0.564 * (picture[:, :, 2] - y) + 128, 0.713 * (picture[:, :, 0] - y) + 128)
        luma.append(cv2.resize(16 + y * (219 / 255), (64, 36), interpolation=cv2.INTER_AREA))
        chroma.append([cv2.resize(one, (32, 18), interpolation=cv2.INTER_AREA) for one in (u, v)])
    return np.rint(luma).astype(np.uint8), np.clip(np.rint(chroma), 0, 255).astype(np.uint8)
