"""How clean speech sounds to people, by the models of the DNS challenge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.errors import CuratorError
from curator.api.stage import Context, Contract, Stage, setting
from curator.api.tasks import AudioBatch
from curator_audio.sound.waves import waves_of

EXTRA = "pip install 'curator-audio[models]'"
RATE = 16_000  # Hz
WINDOW = 144_160  # samples: 9.01 s
WINDOWS_AT_ONCE = 8
# Polynomials that bring the raw answers to the scale of the listening tests: square, factor, constant.
SCALES = {"dnsmos_sig": (-0.08397278, 1.22083953, 0.0052439), "dnsmos_bak": (-0.13166888, 1.60915514, -0.39604546),
          "dnsmos_ovr": (-0.06766283, 1.11546468, 0.04602535)}


@dataclass(kw_only=True)
class Dnsmos(Stage):
    """Score speech as listeners would: the signal, the background, all in all, from 1 (bad) to 5.

    Adds `dnsmos_sig`, `dnsmos_bak`, `dnsmos_ovr` (P.835), and with `p808` also `dnsmos_p808` (float32). Null without samples. Heard
    are windows of 9.01 s, one a second, and their scores averaged; what is shorter is doubled until it is long enough.

    `model`: the path of `sig_bak_ovr.onnx`, or `repository:file` on the hub; Microsoft's DNS-Challenge repository has it. `p808`: the
    path of `model_v8.onnx`, None to leave that score out. `normalize`: the RMS level in dB (of full scale) that a record is brought to
    first, such as -26; None hears it as it is.

    Known limits. The scores depend on the level: a tenth of the amplitude costs 0.5 of `dnsmos_ovr`, so bring records to one level. They
    hardly notice clipping (see `clipped_ratio`), and are low for records of under some 5 s, which are heard repeated. They cost
    more than all other measures together (about 0.03 s of CPU for each second of sound): score what has passed the cheap rules.

    Source: Reddy et al. 2022 (arXiv:2110.01763); 2021 (arXiv:2010.15258) for P.808; Emilia (arXiv:2407.05361) keeps 3.0 and more.
    """

    model: str
    p808: str | None = None
    normalize: float | None = None
    threads: int = setting(default=1)

    requires = {"onnxruntime": EXTRA}

    def __post_init__(self) -> None:
        if self.normalize is not None and self.normalize > 0:
            raise ValueError(f"normalize is a level below full scale in dB, such as -26, got {self.normalize}")

    def contract(self) -> Contract:
        names = [*SCALES, *(["dnsmos_p808"] if self.p808 else [])]
        return Contract(needs={"samples": None, "sample_rate": pa.int32()}, adds=dict.fromkeys(names, pa.float32()))

    def setup(self, ctx: Context) -> None:
        self._p835 = _session(self.model, (WINDOW,), self.threads)
        self._p808 = _session(self.p808, (900, 120), self.threads) if self.p808 else None

    def process(self, batch: AudioBatch) -> AudioBatch:
        found: dict[str, list[float | None]] = {name: [None] * len(batch) for name in self.contract().adds}
        for row, wave in waves_of(batch, RATE):
            for name, score in self._scores(wave).items():
                found[name][row] = score
        return batch.with_columns({name: pa.array(values, pa.float32()) for name, values in found.items()})

    def _scores(self, wave: np.ndarray) -> dict[str, float]:
        if self.normalize is not None:
            level = float(np.sqrt(np.mean(np.square(wave, dtype=np.float64))))
            wave = wave * np.float32(10 ** (self.normalize / 20) / level) if level else wave
        pieces = windows_of(wave)
        raw, p808 = [], []
        for at in range(0, len(pieces), WINDOWS_AT_ONCE):
            some = np.stack(pieces[at:at + WINDOWS_AT_ONCE])
            raw.append(_answer(self._p835, some))
            if self._p808 is not None:
                p808.append(_answer(self._p808, np.stack([mel_levels(piece[:-160]) for piece in some])))
        values = np.concatenate(raw).astype(np.float64)
        scores = {name: float(np.polyval(scale, values[:, column]).mean())
                  for column, (name, scale) in enumerate(SCALES.items())}
        return scores | ({"dnsmos_p808": float(np.concatenate(p808).mean())} if p808 else {})


def windows_of(wave: np.ndarray) -> list[np.ndarray]:
    """Pieces of 9.01 s, a second apart; of a shorter wave one, of it and its repetitions."""
    if len(wave) < WINDOW:
        wave = np.tile(wave, 2 ** int(np.ceil(np.log2(WINDOW / len(wave)))))
    many = int(len(wave) // RATE - WINDOW / RATE) + 1
    return [wave[RATE * at:RATE * at + WINDOW] for at in range(many) if RATE * at + WINDOW <= len(wave)]


def mel_levels(wave: np.ndarray) -> np.ndarray:
    """What the P.808 model sees: 900 frames x 120 mel bands in dB below the loudest, (dB + 40) / 40."""
    size, hop = 321, 160
    padded = np.pad(wave, size // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(frames * window, axis=1)))
    mel = np.maximum(1e-10, power @ mel_bands(120, size).T)
    level = 10 * np.log10(mel) - 10 * np.log10(mel.max())
    return ((np.maximum(level, -80) + 40) / 40).astype(np.float32)


def mel_bands(bands: int, size: int, rate: int = RATE) -> np.ndarray:
    """Triangles on the mel scale of equal area, bands x (size / 2 + 1) bins. Source: Slaney 1998, Auditory Toolbox: linear up to 1 kHz."""
    step = np.log(6.4) / 27
    top = 15 + np.log(rate / 2 / 1000) / step
    marks = np.linspace(0, top, bands + 2)
    edges = np.where(marks < 15, marks * 200 / 3, 1000 * np.exp(step * (np.maximum(marks, 15) - 15)))
    bins = np.arange(size // 2 + 1) * rate / size
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def _session(reference: str, shape: tuple[int, ...], threads: int) -> Any:
    """A model in ONNX.

    Raises:
        CuratorError: onnxruntime is not installed, there is no such file, or it takes something else.
    """
    from curator.models.loading import fetch, library

    try:
        onnxruntime = library("onnxruntime")
    except CuratorError as error:
        raise CuratorError(f"{error}; {EXTRA} brings it") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(str(fetch(reference)), options, providers=["CPUExecutionProvider"])
    except CuratorError:
        raise
    except Exception as error:  # onnxruntime has an exception of its own for each thing that may be wrong with a file
        raise CuratorError(f"{reference!r} is no ONNX model that can be read: {str(error)[:300]}") from error
    wanted = session.get_inputs()[0].shape
    if tuple(wanted[1:]) != shape:
        raise CuratorError(f"{reference!r} takes {wanted}, and this score is of a model that takes {['N', *shape]}: is it the right "
                           "file?")
    return session


def _answer(session: Any, given: np.ndarray) -> np.ndarray:
    return session.run(None, {session.get_inputs()[0].name: given.astype(np.float32)})[0]
