"""High dynamic range to the usual one: pictures of PQ and HLG as an ordinary screen would show them."""

from __future__ import annotations

import functools

import numpy as np

HDR = {16: "pq", 18: "hlg"}  # transfer characteristics of ITU-T H.273
WHITE = 203.0    # candelas a square metre of a white sheet (ITU-R BT.2408)
PEAK = 1000.0    # the brightest that is told apart, and what HLG is meant for
KNEE = 0.5       # of white: what is darker stays as it is
GAMMA = 2.4      # of an ordinary screen (ITU-R BT.1886)
_TO_709 = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]], np.float32)  # ITU-R BT.2087
_LUMA_2020 = np.array([0.2627, 0.6780, 0.0593], np.float32)
_BT2020 = 9  # primaries


def shown(rgb: np.ndarray, kind: str, primaries: int) -> np.ndarray:
    """uint8 [height, width, 3] of uint16 RGB that is coded as `kind`."""
    light = _light(kind)[rgb >> 4]
    if kind == "hlg":
        light *= np.maximum(light @ _LUMA_2020 * np.float32(WHITE / PEAK), 1e-6)[..., None] ** np.float32(0.2)
    if primaries == _BT2020:
        light = np.maximum(light @ _TO_709.T, 0)
    brightest = np.maximum(light.max(axis=2, keepdims=True), 1e-6)
    light = light * (compressed(brightest) / brightest)
    return np.round(255 * np.clip(light, 0, 1) ** np.float32(1 / GAMMA)).astype(np.uint8)


@functools.cache
def luma_of(kind: str) -> np.ndarray:
    """For each level of luma, of 16 to 235, the level that an ordinary film has instead; uint8 [256]."""
    signal = np.clip((np.arange(256) - 16) / 219, 0, 1)
    light = linear(signal, kind)
    if kind == "hlg":
        light = light * np.maximum(light * WHITE / PEAK, 1e-6) ** 0.2
    return np.round(16 + 219 * np.clip(compressed(light), 0, 1) ** (1 / GAMMA)).astype(np.uint8)


def linear(signal: np.ndarray, kind: str) -> np.ndarray:
    """Light of a signal from 0 to 1, 1 being white. Of HLG, that of the scene, whose brightest is the peak.

    Source: ITU-R BT.2100, tables 4 and 5.
    """
    if kind == "pq":
        power = np.power(signal, 1 / 78.84375)
        return 10_000 / WHITE * np.power(np.maximum(power - 0.8359375, 0) / (18.8515625 - 18.6875 * power), 1 / 0.1593017578125)
    low = signal**2 / 3
    high = (np.exp((signal - 0.55991073) / 0.17883277) + 0.28466892) / 12
    return PEAK / WHITE * np.where(signal <= 0.5, low, high)


def compressed(light: np.ndarray) -> np.ndarray:
    """What is brighter than the knee, up to the peak, between the knee and white."""
    over, most = np.maximum(light - KNEE, 0) / (1 - KNEE), (PEAK / WHITE - KNEE) / (1 - KNEE)
    return np.where(light <= KNEE, light, KNEE + (1 - KNEE) * over * (1 + over / most**2) / (1 + over))


@functools.cache
def _light(kind: str) -> np.ndarray:
    return linear(np.arange(4096) / 4095, kind).astype(np.float32)
