"""How likely each frame of a recording is speech, by several engines behind one interface.

All of them see 16 kHz mono. What is above 8 kHz is taken away by a filter first, not folded down: a model of speech that is given
every third sample of 48 kHz loses half of it under a whistle that nobody hears.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from curator import CuratorError
from curator_audio.cut.spans import joined, runs_of

RATE = 16_000  # Hz
BLOCK = 30 * RATE  # samples at once, a whole number of frames: so a long recording needs no second copy
SILENT_DB = -70.0  # dB of full scale: what is below is silence, whatever an engine says
LOUD_DB = -20.0
FINE = RATE // 100  # samples of what a level is measured of
FLOOR_STEP, DIP = 1000, 30  # in these steps: the noise floor is taken every 10 s, of 30 s; speech dips for up to 0.3 s
EXTRA = "pip install 'curator-audio[models]'"
SILERO = "silero_vad_16k_sequence.onnx"
SILERO_FRAME, SILERO_CONTEXT, SILERO_FRAMES = 512, 64, 512  # samples, samples before them, frames a call


class Engine(Protocol):
    """`frame`: samples of 16 kHz that one score is about."""

    frame: int

    def scores(self, mono: np.ndarray, gain: float = 1.0) -> np.ndarray:
        """How likely each whole or begun frame is speech, from 0 to 1, float32. `mono`: float32 [n] at 16 kHz, to be heard
        with this gain."""


class WebRtc:
    """Yes or no by the WebRTC voice activity detector: mixtures of Gaussians over six bands below 4 kHz.

    Source: https://webrtc.googlesource.com/src/+/main/common_audio/vad (`mode` 0 lets most through, 3 least).
    """

    def __init__(self, mode: int, frame_ms: int) -> None:
        import _webrtcvad  # whose wrapper in `webrtcvad` takes a third of the time of a call

        self._c, self.mode, self.frame = _webrtcvad, mode, RATE * frame_ms // 1000

    def scores(self, mono: np.ndarray, gain: float = 1.0) -> np.ndarray:
        vad = self._c.create()  # it adapts to what it hears: one for each record
        self._c.init(vad)
        self._c.set_mode(vad, self.mode)
        process, frame, size = self._c.process, self.frame, 2 * self.frame
        said: list[bool] = []
        for begin in range(0, len(mono), BLOCK):
            scaled = mono[begin:begin + BLOCK] * np.float32(gain)
            scaled *= np.float32(32767)
            raw = np.clip(scaled, -32767, 32767, out=scaled).astype("<i2").tobytes()
            raw += bytes(-len(raw) % size)  # the last frame is filled with silence
            said += [process(vad, RATE, raw[at:at + size], frame) for at in range(0, len(raw), size)]
        return np.array(said, np.float32)


class Energy:
    """1 where it is loud: a quarter of the way, in dB, from the noise floor to the loud parts around, and -60 dB or more."""

    frame = RATE // 100

    def scores(self, mono: np.ndarray, gain: float = 1.0) -> np.ndarray:
        found = levels(mono * np.float32(gain))
        floor, loud = surroundings(found)
        runs = joined(runs_of(found > np.maximum(floor + np.maximum((loud - floor) / 4, 3), SILENT_DB)), DIP)
        edges = np.zeros(found.size + 1, np.float32)
        edges[runs[:, 0]], edges[runs[:, 1]] = 1, -1
        return np.cumsum(edges[:-1])


class Silero:
    """Probability by Silero VAD, a small recurrent network, whose weights come with the package `silero-vad`.

    Whole stretches go through it at once, with its state carried from one to the next.
    Source: https://github.com/snakers4/silero-vad
    """

    frame = SILERO_FRAME

    def __init__(self) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise CuratorError(f"onnxruntime is wanted and cannot be imported ({error}): {EXTRA}") from error
        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = options.intra_op_num_threads = 1
        self._session: Any = onnxruntime.InferenceSession(str(silero_weights()), options, providers=["CPUExecutionProvider"])

    def scores(self, mono: np.ndarray, gain: float = 1.0) -> np.ndarray:
        count = -(-len(mono) // SILERO_FRAME)
        data = np.zeros((count + 2) * SILERO_FRAME, np.float32)  # silence before the first frame, and behind the last
        np.multiply(mono, np.float32(gain), out=data[SILERO_FRAME:SILERO_FRAME + len(mono)])
        windows = np.lib.stride_tricks.sliding_window_view(data, SILERO_FRAME + SILERO_CONTEXT)
        windows = windows[SILERO_FRAME - SILERO_CONTEXT::SILERO_FRAME][:count]
        hidden = cell = np.zeros((1, 1, 128), np.float32)
        found = [np.empty(0, np.float32)]
        for at in range(0, count, SILERO_FRAMES):
            stretch = np.ascontiguousarray(windows[at:at + SILERO_FRAMES])
            said, hidden, cell = self._session.run(["speech_probs", "hn", "cn"], {"input": stretch, "h": hidden, "c": cell})
            found.append(said)
        return np.concatenate(found)


def silero_weights() -> Path:
    """The file of weights, found without importing its package, which would import torch.

    Raises:
        CuratorError: it is not there; with the command that brings it.
    """
    found = find_spec("silero_vad")
    path = Path(found.origin).parent / "data" / SILERO if found and found.origin else None
    if path is None or not path.is_file():
        raise CuratorError(f"the engine silero needs {SILERO} of silero-vad 6.2.2 or later: {EXTRA}")
    return path


# -- what they are given, and how loud it is ------------------------------------------------------------------------


def gain_for(found: np.ndarray) -> float:
    """What brings a recording with these levels to the one that engines expect: its loud parts at -20 dB; 40 dB at most."""
    found = found[found > SILENT_DB]
    return 10 ** (min(40.0, LOUD_DB - float(np.percentile(found, 95))) / 20) if found.size else 1.0


def levels(mono: np.ndarray) -> np.ndarray:
    """The level around each whole or begun 10 ms of 16 kHz, over 30 ms, in dB of full scale, float32; -120 for digital silence."""
    power = np.zeros(-(-mono.size // FINE) + 2, np.float32)
    whole = mono.size // FINE
    np.einsum("fn,fn->f", *[mono[:whole * FINE].reshape(-1, FINE)] * 2, out=power[1:whole + 1])
    power[-2:-1] += np.square(mono[whole * FINE:]).sum(keepdims=True) if mono.size % FINE else 0
    around = (power[:-2] + power[1:-1] + power[2:]) / (3 * FINE)
    return 10 * np.log10(np.maximum(around, 1e-12))


def surroundings(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The noise floor and the loud parts around each 10 ms, in dB: the 10th and the 95th percentile of the levels in some 15 s
    before and after, those of silence (below -70 dB) left out."""
    edges = np.empty((2, -(-found.size // FLOOR_STEP)), np.float32)
    for at in range(edges.shape[1]):
        near = found[max(0, at - 1) * FLOOR_STEP:(at + 2) * FLOOR_STEP]
        near = near[near > SILENT_DB]
        edges[:, at] = np.percentile(near, (10, 95)) if near.size else SILENT_DB
    floor, loud = np.repeat(edges, FLOOR_STEP, axis=1)[:, :found.size]
    return floor, loud


def loud_stretches(found: np.ndarray, margin_db: float) -> np.ndarray:
    """Stretches that may be speech by their levels, in seconds, [k, 2]: louder than the noise floor by so many dB, and than
    silence. What is lower for less than 0.3 s between two loud moments, as most sounds of speech are, belongs to them."""
    floor, _ = surroundings(found)
    return joined(runs_of(found > np.maximum(floor + margin_db, SILENT_DB)), DIP) * (FINE / RATE)
