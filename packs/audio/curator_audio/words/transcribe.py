"""What is said, by a speech recognition model in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator_audio.sound.waves import calls, waves_of, windows
from curator_audio.words.normalize import is_spaced

if TYPE_CHECKING:
    from curator_audio.words.recogniser import Heard

SEGMENTS = pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64(), "text": pa.string()}))
WORDS = pa.list_(pa.struct({"word": pa.string(), "start": pa.float64(), "end": pa.float64(), "score": pa.float32()}))


@dataclass(kw_only=True)
class Transcribe(Stage):
    """Write down what is said, by Whisper or a CTC model (wav2vec2, HuBERT, WavLM, Parakeet-CTC) of transformers.

    Adds `transcript` (string), `asr_language` (ISO 639-1; null of a model with one language), `avg_logprob` (float32, mean
    log-probability of its tokens: below -1 it guesses), `no_speech` (float32, 0 to 1, of Whisper: that nobody speaks, the least of
    all windows) and `words` (list of word, start, end, score; seconds of the record; of CTC models, and of Whisper with `timestamps:
    words`, else empty). With `timestamps` also `asr_segments` (list of start, end, text; seconds of the record). Null without
    samples.

    A record is heard as mono at 16 kHz. What is longer than 30 s is cut at quiet places and joined again; Whisper with `timestamps`
    hears it in windows of 30 s, each from the end of the last whole segment. The answer is greedy: the likeliest token at each step,
    the same in each run. `audio.hallucination` tells what the model may have made up.

    `model`: an id of the hub (`openai/whisper-large-v3-turbo`, `nvidia/parakeet-ctc-1.1b`), `id@revision`, or a folder. `language`:
    what is spoken, for Whisper (`en`), or the name of a column that says it; None lets the model find out. `task`: `transcribe`, or
    `translate` into English. `timestamps`: of Whisper, `segments` (as it writes them), or also `words` (by what it attends to, one
    record at a time, so slower); a CTC model gives its words in any case, and each window of 30 s as a segment. `into`: the column
    of the text. `seconds_per_batch`: how much is heard at once. `max_new_tokens`: of 30 s.

    Known difference: transformers hears the silence that fills up the last window as well; here what begins behind the end of the
    record is left out. No temperatures: what Whisper's own guards would try again by chance, is a rule's business.

    Source: Radford et al. 2022 (arXiv:2212.04356); Graves et al. 2006 for CTC.
    """

    model: str
    language: str | None = None
    task: Literal["transcribe", "translate"] = "transcribe"
    timestamps: Literal["segments", "words"] | None = None
    into: str = "transcript"
    seconds_per_batch: float = 240.0
    max_new_tokens: int = 440

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if self.task not in ("transcribe", "translate"):
            raise ValueError(f"task is transcribe or translate, got {self.task!r}")
        if self.timestamps not in (None, "segments", "words"):
            raise ValueError(f"timestamps is segments, words or null, got {self.timestamps!r}")
        if self.seconds_per_batch < 30:
            raise ValueError(f"seconds_per_batch is 30 or more, what a model hears of one record, got {self.seconds_per_batch}")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is 1 or more, got {self.max_new_tokens}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()},
                        adds={self.into: pa.string(), "asr_language": pa.string(), "avg_logprob": pa.float32(),
                              "no_speech": pa.float32(), "words": WORDS} | ({"asr_segments": SEGMENTS} if self.timestamps else {}))

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_audio.words.load import load_recogniser
        from curator_audio.words.recogniser import RATE

        self._rate = RATE
        self._recogniser = load_recogniser(self.model, ctx, task=self.task, max_new_tokens=self.max_new_tokens,
                                           timestamps=self.timestamps)

    def process(self, batch: AudioBatch) -> Outputs:
        pieces: list[tuple[int, float, np.ndarray]] = []  # row, where it begins in seconds, what is heard
        for row, wave in waves_of(batch, self._rate):
            most = self._recogniser.window_s
            spans = windows(wave, self._rate, most) if most else [(0, len(wave))]
            pieces += [(row, start / self._rate, wave[start:stop]) for start, stop in spans]
        spoken = self._languages(batch)
        heard: dict[int, Heard] = {}  # by piece: each is in one group
        for group in calls([len(wave) for _, _, wave in pieces], int(self.seconds_per_batch * self._rate)):
            waves = [pieces[at][2] for at in group]
            for at, one in zip(group, self._recogniser.hear(waves, [spoken[pieces[at][0]] for at in group]), strict=True):
                heard[at] = one
        columns = self._columns(len(batch), [(row, start, heard[at]) for at, (row, start, _) in enumerate(pieces)])
        tokens = sum(one.tokens for one in heard.values())
        return Outputs(out=batch.with_columns(columns), counts={"tokens": tokens})

    def _languages(self, batch: AudioBatch) -> list[str | None]:
        if self.language in batch.columns:
            return batch.column(self.language)
        return [self.language] * len(batch)

    def _columns(self, rows: int, heard: list[tuple[int, float, Heard]]) -> dict[str, pa.Array]:
        parts: dict[int, list[tuple[float, Heard]]] = {}
        for row, start, one in heard:
            parts.setdefault(row, []).append((start, one))
        joined: list[tuple[Any, ...]] = [_joined(parts[row]) if row in parts else (None,) * 6 for row in range(rows)]
        values = list(zip(*joined, strict=True)) if joined else [()] * 6
        return {name: pa.array(column, kind) for (name, kind), column in zip(self.contract().adds.items(), values, strict=False)}


def _joined(parts: list[tuple[float, Heard]]) -> tuple[Any, ...]:
    """One record of its windows: text, language of the longest text, mean log-probability by tokens, least silence, words, segments."""
    texts = [one.text for _, one in parts if one.text]
    text = (" " if is_spaced("".join(texts)) else "").join(texts)
    scored = [(one.logprob, one.tokens) for _, one in parts if one.logprob is not None]
    tokens = sum(count for _, count in scored)
    logprob = sum(score * count for score, count in scored) / tokens if tokens else None
    silent = [one.no_speech for _, one in parts if one.no_speech is not None]
    words = [{"word": w.text, "start": start + w.start, "end": start + w.end, "score": w.score}
             for start, one in parts for w in one.words]
    segments = [{"start": start + s.start, "end": start + s.end, "text": s.text} for start, one in parts for s in one.segments]
    language = max((one for _, one in parts), key=lambda one: len(one.text)).language
    return text, language, logprob, min(silent, default=None), words, segments
