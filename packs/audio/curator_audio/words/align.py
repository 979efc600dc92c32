"""Where the words of a known transcript are spoken: forced alignment by a CTC model."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models
from curator_audio.sound.waves import calls, waves_of
from curator_audio.words.ctc import align
from curator_audio.words.normalize import words_of

ALIGNED = pa.list_(pa.struct({"word": pa.string(), "start": pa.float64(), "end": pa.float64(), "score": pa.float32(),
                              "estimated": pa.bool_()}))


@dataclass(kw_only=True)
class Align(Stage):
    """Find the times of the words of a transcript, and how well the sound agrees with it.

    Adds `alignment` (list of word, start, end in seconds of the record, score: mean log-probability of its letters, estimated),
    `align_score` (float32, mean log-probability of all letters) and `align_min` (of the worst word). A word without a letter
    that the model knows (a number in digits, another script) gets the time between its neighbours, `estimated` and without a score: it
    does not count in the scores. Null without samples or text, and where the text has more letters than the sound has frames.

    The scores compare within a language and a model. OWSM v4 drops the tenth of each language whose worst word is lowest.

    `model`: any CTC model with letters as tokens (`facebook/wav2vec2-base-960h`, MMS, XLS-R). `text`: the transcript. Records
    of over `longest_s` are left null: cut them first (`audio.segment`).

    Source: Graves et al. 2006; CTC-Segmentation, Kürzinger et al. 2020 (arXiv:2007.09127); OWSM v4 (arXiv:2506.00338).
    """

    model: str
    text: str = "text"
    longest_s: float = 120.0

    resources: Resources = MODEL_RESOURCES
    requires = MODELS

    def __post_init__(self) -> None:
        if self.longest_s <= 0:
            raise ValueError(f"longest_s is above 0, got {self.longest_s}")

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32(), self.text: pa.string()},
                        adds={"alignment": ALIGNED, "align_score": pa.float32(), "align_min": pa.float32()})

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator.api.errors import CuratorError
        from curator_audio.words.load import load_recogniser
        from curator_audio.words.recogniser import RATE, Ctc

        self._rate = RATE
        recogniser = load_recogniser(self.model, ctx)
        if not isinstance(recogniser, Ctc):
            raise CuratorError(f"{self.model!r} has no CTC head: name a model such as facebook/wav2vec2-base-960h")
        self._recogniser, self._spelling = recogniser, Spelling(recogniser.tokenizer)

    def process(self, batch: AudioBatch) -> AudioBatch:
        texts = batch.column(self.text)
        waves = {row: wave for row, wave in waves_of(batch, self._rate)
                 if texts[row] and len(wave) <= self.longest_s * self._rate}
        found: list[tuple[Any, ...]] = [(None, None, None)] * len(batch)
        rows = list(waves)
        for group in calls([len(waves[row]) for row in rows], 240 * self._rate):
            of_group = [rows[at] for at in group]
            scores = self._recogniser.log_probs([waves[row] for row in of_group])
            for row, log_probs in zip(of_group, scores, strict=True):
                found[row] = self._aligned(log_probs, texts[row], len(waves[row]) / self._rate)
        words, mean, least = zip(*found, strict=True) if found else ([], [], [])
        return batch.with_columns({"alignment": pa.array(words, ALIGNED), "align_score": pa.array(mean, pa.float32()),
                                   "align_min": pa.array(least, pa.float32())})

    def _aligned(self, log_probs: np.ndarray, text: str, seconds: float) -> tuple[Any, ...]:
        """Words with their times, the mean and the least score."""
        spelt = self._spelling.words(text)
        tokens, owner = self._spelling.tokens(spelt)
        path = align(log_probs, tokens, self._recogniser.blank) if tokens else None
        if path is None:
            return None, None, None
        frame_s, owners = seconds / len(log_probs), np.array(owner)
        words: list[dict[str, Any]] = []
        for number, word in enumerate(spelt):
            at = np.flatnonzero(owners == number)
            if not len(at):
                words.append({"word": word.text, "start": None, "end": None, "score": None, "estimated": True})
                continue
            frames = path.stops[at] - path.starts[at]
            words.append({"word": word.text, "start": path.starts[at[0]] * frame_s, "end": path.stops[at[-1]] * frame_s,
                          "score": float((path.scores[at] * frames).sum() / frames.sum()), "estimated": False})
        fill_gaps(words, seconds)
        of_words = owners >= 0
        frames = (path.stops - path.starts)[of_words]
        mean = float((path.scores[of_words] * frames).sum() / frames.sum())
        return words, mean, min(word["score"] for word in words if word["score"] is not None)


@dataclass(frozen=True)
class Spelt:
    """A word and the tokens of the letters that the model knows."""

    text: str
    tokens: list[int] = field(default_factory=list)


class Spelling:
    """Texts in the letters of a tokenizer: its case, its word delimiter, accents left out where it has none."""

    def __init__(self, tokenizer: Any) -> None:
        special = set(tokenizer.all_special_tokens)
        self._ids = {token: at for token, at in tokenizer.get_vocab().items() if token not in special and len(token) == 1}
        self._delimiter = self._ids.pop(getattr(tokenizer, "word_delimiter_token", None), None)
        lower, upper = (sum(letter in self._ids for letter in letters) for letters in ("abcdefghij", "ABCDEFGHIJ"))
        self._case = str.upper if upper > lower else str.lower

    def words(self, text: str) -> list[Spelt]:
        return [Spelt(word, [self._ids[letter] for letter in self._letters(word)]) for word in words_of(text)]

    def tokens(self, words: list[Spelt]) -> tuple[list[int], list[int]]:
        """The tokens of a text with delimiters between words, and the word of each; -1 for a delimiter."""
        tokens: list[int] = []
        owner: list[int] = []
        for number, word in enumerate(words):
            if word.tokens and tokens and self._delimiter is not None:
                tokens.append(self._delimiter)
                owner.append(-1)
            tokens += word.tokens
            owner += [number] * len(word.tokens)
        return tokens, owner

    def _letters(self, word: str) -> list[str]:
        found = []
        for letter in self._case(unicodedata.normalize("NFC", word)):
            plain = letter if letter in self._ids else unicodedata.normalize("NFD", letter)[:1]
            if plain in self._ids:
                found.append(plain)
        return found


def fill_gaps(words: list[dict[str, Any]], seconds: float) -> None:
    """Give words without a time an equal part of the time between their neighbours."""
    at = 0
    while at < len(words):
        if words[at]["start"] is not None:
            at += 1
            continue
        stop = next((i for i in range(at, len(words)) if words[i]["start"] is not None), len(words))
        start_s = words[at - 1]["end"] if at else 0.0
        step = ((words[stop]["start"] if stop < len(words) else seconds) - start_s) / (stop - at)
        for number, word in enumerate(words[at:stop]):
            word["start"], word["end"] = start_s + number * step, start_s + (number + 1) * step
        at = stop
