"""Which language is spoken, by the language tokens of Whisper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator_audio.sound.waves import waves_of


@dataclass(kw_only=True)
class SpokenLanguage(Stage):
    """Tell which language is spoken.

    Adds `spoken_language` (ISO 639-1, as Whisper names it) and `spoken_language_score` (float32, 0 to 1: its probability, the mean
    of all windows). Null without samples. The model has an answer for music and noise, too: ask where there is speech.

    `model`: a multilingual Whisper, an id of the hub, `id@revision`, or a folder. `windows`: how many pieces of 30 s of a longer
    record are heard, spread over it evenly.

    Source: Radford et al. 2022 (arXiv:2212.04356), 2.3; Granary (arXiv:2505.13404) hears 7 pieces and keeps 0.7 and more, Emilia
    (arXiv:2407.05361) 0.8.
    """

    model: str
    windows: int = 7

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if self.windows < 1:
            raise ValueError(f"windows is 1 or more, got {self.windows}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()},
                        adds={"spoken_language": pa.string(), "spoken_language_score": pa.float32()})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator.api.errors import CuratorError
        from curator_audio.words.load import load_recogniser
        from curator_audio.words.recogniser import RATE, WINDOW_S, Whisper

        self._rate, self._window = RATE, int(RATE * WINDOW_S)
        recogniser = load_recogniser(self.model, ctx)
        if not isinstance(recogniser, Whisper):
            raise CuratorError(f"{self.model!r} does not tell languages: name a multilingual Whisper, such as openai/whisper-tiny")
        self._recogniser = recogniser

    def process(self, batch: AudioBatch) -> AudioBatch:
        pieces: list[tuple[int, np.ndarray]] = []
        for row, wave in waves_of(batch, self._rate):
            pieces += [(row, piece) for piece in self._pieces(wave)]
        found: list[list[dict[str, float]]] = [[] for _ in range(len(batch))]
        for at in range(0, len(pieces), 8):
            group = pieces[at:at + 8]
            for (row, _), shares in zip(group, self._recogniser.languages([wave for _, wave in group]), strict=True):
                found[row].append(shares)
        best = [_likeliest(shares) for shares in found]
        return batch.with_columns({"spoken_language": pa.array([name for name, _ in best], pa.string()),
                                   "spoken_language_score": pa.array([score for _, score in best], pa.float32())})

    def _pieces(self, wave: np.ndarray) -> list[np.ndarray]:
        """At most `windows` pieces of 30 s, evenly spread."""
        many = min(self.windows, max(1, -(-len(wave) // self._window)))
        starts = np.linspace(0, max(0, len(wave) - self._window), many).astype(int)
        return [wave[start:start + self._window] for start in starts]


def _likeliest(shares: list[dict[str, float]]) -> tuple[str | None, float | None]:
    if not shares:
        return None, None
    mean = {name: sum(one[name] for one in shares) / len(shares) for name in shares[0]}
    best = max(mean, key=mean.__getitem__)
    return best, mean[best]
