"""Whisper with times: segments by the timestamps that it writes itself, words by what it attends to. Imported in workers only.

A long record is heard as Whisper's authors hear it: 30 s, then on from the end of the last segment that is whole.

Source: Radford et al. 2022 (arXiv:2212.04356), 3.8; https://github.com/openai/whisper (`transcribe.py`, `timing.py`), as transformers
has it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from curator.api.errors import CuratorError
from curator_audio.words.recogniser import RATE, WINDOW_S, Heard, Tokens, Whisper, Word

TICK_S = 0.02  # between two timestamps
FRAME_S = 0.01  # of a feature
TICK_FRAMES = 2
BATCH = 8  # windows that are heard at once
NO_SPACES = ("zh", "ja", "th", "lo", "my", "yue")


@dataclass
class Listening:
    """A record that is being heard. `features`: bands x frames; `frames`: how many of them are sound, `seek`: the first one that
    is still to be heard. The rest is what was heard before it."""

    features: Any
    frames: int
    seconds: float
    language: str | None
    seek: int = 0
    said: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    silent: float | None = None
    segments: list[Word] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)


class Timed(Whisper):
    """Whisper, greedy, with the times of segments and, `by_word`, of words.

    Raises:
        CuratorError: the model writes no timestamps, or nobody said which of its attention heads tell the times of words.
    """

    window_s = None

    def __init__(self, model: Any, processor: Any, task: str, max_new_tokens: int, by_word: bool) -> None:
        super().__init__(model, processor, task, max_new_tokens)
        settings = model.generation_config
        if getattr(settings, "no_timestamps_token_id", None) is None:
            raise CuratorError("this model has no tokens for times (no_timestamps_token_id in generation_config.json): leave "
                               "timestamps away, or take audio.align")
        if by_word and not getattr(settings, "alignment_heads", None):
            raise CuratorError("this model does not say which attention heads tell the times of words (alignment_heads in "
                               "generation_config.json): take timestamps: segments, or audio.align")
        self._first_time, self._by_word = settings.no_timestamps_token_id + 1, by_word
        self._window = round(WINDOW_S / FRAME_S)

    def hear(self, waves: Sequence[np.ndarray], languages: Sequence[str | None]) -> list[Heard]:
        """What is said in recordings of any length, mono at 16 kHz. `languages`: None for what the first 30 s are in."""
        records = [self._begun(wave, language) for wave, language in zip(waves, languages, strict=True)]
        # The times of words are found along all tokens of a call, so that they would rest on the others.
        most = 1 if self._by_word else BATCH
        while some := [record for record in records if record.seek < record.frames][:most]:
            self._hear_on(some)
        return [self._ended(record) for record in records]

    def _begun(self, wave: np.ndarray, language: str | None) -> Listening:
        longer = {"truncation": False, "padding": "longest"} if len(wave) > WINDOW_S * RATE else {}
        features = self._processor.feature_extractor([wave], sampling_rate=RATE, return_tensors="pt", **longer).input_features[0]
        return Listening(features, min(features.shape[1], max(1, round(len(wave) / RATE / FRAME_S))), len(wave) / RATE, language)

    def _hear_on(self, records: Sequence[Listening]) -> None:
        """The next window of each."""
        windows = [record.features[:, record.seek:record.seek + self._window] for record in records]
        encoded = self._encode(torch.stack([torch.nn.functional.pad(one, (0, self._window - one.shape[1])) for one in windows]))
        found, _, silent = self._at_first(encoded)
        for record, likely, quiet in zip(records, found, silent, strict=True):
            record.language = record.language or likely
            record.silent = quiet if record.silent is None else min(record.silent, quiet or 0.0)
        options: dict[str, Any] = {"return_timestamps": True}
        if self._by_word:
            mask = torch.ones(1, min(self._window, records[0].frames - records[0].seek), dtype=torch.long, device=encoded[0].device)
            options |= {"return_token_timestamps": True, "attention_mask": mask}
        made = self._generate(encoded, [record.language for record in records], **options)
        for record, tokens in zip(records, made, strict=True):
            self._take_in(record, tokens)

    def _take_in(self, record: Listening, made: Tokens) -> None:
        """Add the segments of a window, and move on."""
        ids = made.ids[:-1] if made.ids and made.ids[-1] < self._first_time and self._is_end(made.ids[-1]) else made.ids
        left = min(self._window, record.frames - record.seek)
        spans, moved = segments_of([token - self._first_time for token in ids], left)
        begun = record.seek * FRAME_S
        for first, stop, start, end in spans:
            if begun + start >= record.seconds:
                continue
            inside = [at for at in range(first, stop) if ids[at] < self._first_time]
            record.said += [ids[at] for at in inside]
            record.scores += made.scores[first:stop].tolist()
            low, high = (round(min(begun + time, record.seconds), 3) for time in (start, end))
            text = self._processor.tokenizer.decode([ids[at] for at in inside], skip_special_tokens=True).strip()
            if not text:
                continue
            score = float(made.scores[inside].mean())
            record.segments.append(Word(text, low, max(low, high), score))
            if made.times is not None:
                times = np.minimum(begun + np.append(made.times, made.times[-1:]).astype(np.float64), record.seconds).round(3)
                words = self._words([ids[at] for at in inside], inside, record.language)
                record.words += [Word(word, float(times[a]), float(times[b + 1]), float(made.scores[a:b + 1].mean()))
                                 for word, a, b in words]  # a word ends where the next token begins
        record.seek += moved

    def _is_end(self, token: int) -> bool:
        end = self._model.generation_config.eos_token_id
        return token in end if isinstance(end, Sequence) else token == end

    def _words(self, ids: Sequence[int], places: Sequence[int], language: str | None) -> list[tuple[str, int, int]]:
        """Words of tokens, each with the places of its first and its last one. A letter may have several tokens."""
        found: list[tuple[str, int, int]] = []
        waiting: list[int] = []
        special = set(self._processor.tokenizer.all_special_ids)
        for at, (token, place) in enumerate(zip(ids, places, strict=True)):
            if token in special:
                continue
            waiting.append(token)
            piece = self._processor.tokenizer.decode(waiting)
            if "\ufffd" in piece and at + 1 < len(ids):
                continue
            first, waiting = place - len(waiting) + 1, []
            apart = piece.startswith(" ") or (language in NO_SPACES and not is_mark(piece))
            if found and not apart:
                word, begin, _ = found[-1]
                found[-1] = (word + piece, begin, place)
            else:
                found.append((piece, first, place))
        return [(word.strip(), first, last) for word, first, last in found if word.strip()]

    def _ended(self, record: Listening) -> Heard:
        text = self._processor.tokenizer.decode(record.said, skip_special_tokens=True).strip()
        score = float(np.mean(record.scores)) if record.scores else None
        return Heard(text, score, len(record.scores), record.silent, record.language, record.words, record.segments)


def segments_of(ticks: Sequence[int], frames: int) -> tuple[list[tuple[int, int, float, float]], int]:
    """Segments of a window of `frames`, and by how many frames the next one begins later.

    `ticks`: of each token, negative where it is text. A segment is `(first token, token behind it, start, end)`, seconds of the
    window. Two timestamps side by side end one and begin the next. What comes behind the last pair is heard again, unless the text
    ends in a single timestamp: then nobody speaks until the end of the window.
    """
    cuts = [at + 1 for at in range(len(ticks) - 1) if ticks[at] >= 0 and ticks[at + 1] >= 0]
    if not cuts:
        told = [tick for tick in ticks if tick >= 0]
        end = told[-1] * TICK_S if told and told[-1] else frames * FRAME_S
        return [(0, len(ticks), 0.0, end)] if ticks else [], frames
    alone = len(ticks) >= 2 and ticks[-2] < 0 <= ticks[-1]
    stops = [*cuts, len(ticks)] if alone else cuts
    spans = [(first, stop, max(ticks[first], 0) * TICK_S, max(ticks[stop - 1], 0) * TICK_S)
             for first, stop in zip([0, *stops], stops, strict=False)]
    moved = frames if alone else ticks[cuts[-1] - 1] * TICK_FRAMES
    return spans, moved if moved > 0 else frames


def is_mark(text: str) -> bool:
    """Whether there are no letters and digits in it."""
    return all(unicodedata.category(letter)[0] in "PSZ" for letter in text)
