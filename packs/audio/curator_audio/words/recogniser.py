"""Speech recognition models of transformers: sequence to sequence (Whisper) and CTC (wav2vec2, HuBERT, WavLM, Parakeet-CTC). Imported in
workers only.

What a recording gets does not rest on the others of its batch: CTC models whose feature extractor gives no attention mask hear
padding, so recordings of different lengths go through these one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from curator.api.errors import CuratorError

RATE = 16_000  # Hz: all models of these families
WINDOW_S = 30.0  # what Whisper hears at once


@dataclass(frozen=True)
class Word:
    """A word with its span in seconds and the mean log-probability of its tokens."""

    text: str
    start: float
    end: float
    score: float


@dataclass(frozen=True)
class Heard:
    """What a model heard. `logprob`: mean of the tokens'. `no_speech`: probability that nobody speaks; None where
    the model does not say. `language`: ISO 639-1, None where the model has one only. `tokens`: how many it made. `segments`: what was said
    in one go."""

    text: str
    logprob: float | None
    tokens: int
    no_speech: float | None = None
    language: str | None = None
    words: list[Word] = field(default_factory=list)
    segments: list[Word] = field(default_factory=list)


@dataclass(frozen=True)
class Tokens:
    """What a model made of a window: tokens, their log-probabilities, and where each begins in seconds, if that was asked for."""

    ids: list[int]
    scores: np.ndarray
    times: np.ndarray | None = None


class Whisper:
    """Whisper and models of its kind, greedy, without timestamps."""

    window_s: float | None = WINDOW_S  # what is heard at once; None for all of a record

    def __init__(self, model: Any, processor: Any, task: str, max_new_tokens: int) -> None:
        self._model, self._processor = model, processor
        settings = model.generation_config
        self._languages = {token: name.strip("<|>") for name, token in (getattr(settings, "lang_to_id", None) or {}).items()}
        known = processor.tokenizer.get_vocab()
        self._silent = known.get("<|nospeech|>", known.get("<|nocaptions|>"))
        longest = getattr(settings, "max_length", None) or model.config.max_target_positions
        self._options: dict[str, Any] = {"max_new_tokens": min(max_new_tokens, longest - 8), "do_sample": False, "num_beams": 1}
        if self._languages:
            self._options["task"] = task

    def hear(self, waves: Sequence[np.ndarray], languages: Sequence[str | None]) -> list[Heard]:
        """What is said in recordings of up to 30 s, mono at 16 kHz. `languages`: None for what the model finds likeliest."""
        encoded = self._encoded(waves)
        found, _, silent = self._at_first(encoded)
        chosen = [language or best for language, best in zip(languages, found, strict=True)]
        made = self._generate(encoded, chosen)
        return [self._heard(one.ids, one.scores, language, quiet) for one, language, quiet in zip(made, chosen, silent, strict=True)]

    def languages(self, waves: Sequence[np.ndarray]) -> list[dict[str, float]]:
        """The probability of each language in recordings of up to 30 s.

        Raises:
            CuratorError: the model knows one language only.
        """
        if not self._languages:
            raise CuratorError("this model knows one language only: name a multilingual one, such as openai/whisper-tiny")
        return self._at_first(self._encoded(waves))[1]

    def _generate(self, encoded: Any, languages: Sequence[str | None], **options: Any) -> list[Tokens]:
        """The likeliest tokens of each window, to its end."""
        if self._languages:
            options["language"] = [f"<|{name}|>" for name in languages]
        with torch.inference_mode():
            made = self._model.generate(encoder_outputs=encoded, force_unique_generate_call=True, return_dict_in_generate=True,
                                        output_logits=True, **self._options, **options)
        steps = torch.stack(made["logits"], dim=1).float().log_softmax(-1)
        tokens = made["sequences"][:, -steps.shape[1]:]
        scores = steps.gather(-1, tokens[..., None])[..., 0].cpu().numpy()
        times = made.get("token_timestamps")
        end = self._model.generation_config.eos_token_id
        ends = set(end) if isinstance(end, Sequence) else {end}
        lengths = [next((at + 1 for at, token in enumerate(row) if token in ends), len(row)) for row in tokens.tolist()]
        found = times[:, -steps.shape[1]:].cpu().numpy() if times is not None else [None] * len(lengths)
        return [Tokens(row[:length], score[:length], None if when is None else when[:length])
                for row, score, when, length in zip(tokens.tolist(), scores, found, lengths, strict=True)]

    def _encoded(self, waves: Sequence[np.ndarray]) -> Any:
        return self._encode(self._processor.feature_extractor(list(waves), sampling_rate=RATE, return_tensors="pt").input_features)

    def _encode(self, features: Any) -> Any:
        with torch.inference_mode():
            return self._model.get_encoder()(features.to(self._model.device, self._model.dtype))

    def _at_first(self, encoded: Any) -> tuple[list[str | None], list[dict[str, float]], list[float | None]]:
        """What the model says before the first word: the likeliest language, all of them, and whether anybody speaks."""
        rows = encoded.last_hidden_state.shape[0]
        begin = torch.full((rows, 1), self._model.generation_config.decoder_start_token_id, device=self._model.device)
        with torch.inference_mode():
            logits = self._model(encoder_outputs=encoded, decoder_input_ids=begin).logits[:, -1].float()
        silent = [None] * rows if self._silent is None else logits.softmax(-1)[:, self._silent].tolist()
        if not self._languages:
            return [None] * rows, [{}] * rows, silent
        ids = list(self._languages)
        names = [self._languages[token] for token in ids]
        shares = logits[:, ids].softmax(-1).tolist()
        likely = [dict(zip(names, row, strict=True)) for row in shares]
        return [max(row, key=row.__getitem__) for row in likely], likely, silent

    def _heard(self, tokens: list[int], scores: np.ndarray, language: str | None, silent: float | None) -> Heard:
        text = self._processor.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        return Heard(text, float(scores.mean()) if tokens else None, len(tokens), silent, language)


class Ctc:
    """A model that says at each frame which token it hears, or none."""

    window_s: float | None = WINDOW_S

    def __init__(self, model: Any, extractor: Any, tokenizer: Any) -> None:
        self._model, self._extractor, self.tokenizer = model, extractor, tokenizer
        blank = tokenizer.pad_token_id if model.config.pad_token_id is None else model.config.pad_token_id
        self.blank = int(blank)
        self._together = bool(getattr(extractor, "return_attention_mask", False))
        self._name = extractor.model_input_names[0]

    def hear(self, waves: Sequence[np.ndarray], languages: Sequence[str | None]) -> list[Heard]:
        """What is said in recordings, mono at 16 kHz; words with their times. The languages are not asked: such a model has its own."""
        return [self._heard(scores, len(wave) / RATE) for scores, wave in zip(self.log_probs(waves), waves, strict=True)]

    def log_probs(self, waves: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Log-probabilities, frames x tokens, of each recording."""
        if self._together or len({len(wave) for wave in waves}) == 1:
            return self._forward(waves)
        return [scores for wave in waves for scores in self._forward([wave])]

    def _forward(self, waves: Sequence[np.ndarray]) -> list[np.ndarray]:
        inputs = self._extractor(list(waves), sampling_rate=RATE, padding=True, return_tensors="pt")
        inputs = {name: values.to(self._model.device, self._model.dtype if values.is_floating_point() else None)
                  for name, values in inputs.items()}
        with torch.inference_mode():
            scores = self._model(**inputs).logits.float().log_softmax(-1).cpu().numpy()
        longest = max(len(wave) for wave in waves)
        frames = [max(1, min(scores.shape[1], -(-scores.shape[1] * len(wave) // longest))) for wave in waves]
        return [row[:count] for row, count in zip(scores, frames, strict=True)]

    def _heard(self, scores: np.ndarray, seconds: float) -> Heard:
        best = scores.argmax(-1)
        starts = np.flatnonzero(np.diff(best, prepend=-1))
        stops = np.append(starts[1:], len(best))
        runs = [(int(best[a]), int(a), int(b)) for a, b in zip(starts, stops, strict=True) if best[a] != self.blank]
        said = np.concatenate([scores[a:b, token] for token, a, b in runs]) if runs else np.zeros(0)
        words = self.words(runs, scores, seconds / len(best)) if runs else []
        text, mean = " ".join(word.text for word in words), float(said.mean()) if runs else None
        whole = [Word(text, words[0].start, words[-1].end, mean or 0.0)] if words else []
        return Heard(text, mean, len(runs), words=words, segments=whole)

    def words(self, runs: Sequence[tuple[int, int, int]], scores: np.ndarray, frame_s: float) -> list[Word]:
        """Words of runs of tokens (token, first frame, frame after the last)."""
        groups: list[list[tuple[int, int, int]]] = [[]]
        delimiter = getattr(self.tokenizer, "word_delimiter_token", None)
        special = set(self.tokenizer.all_special_tokens) - {delimiter}
        for run in runs:
            token = self.tokenizer.convert_ids_to_tokens(run[0])
            if token in special:
                continue
            if token == delimiter or token.startswith("\u2581"):  # the mark of sentencepiece for a space before a piece
                groups.append([])
            if token != delimiter:
                groups[-1].append(run)
        return [self._word(group, scores, frame_s) for group in groups if group]

    def _word(self, runs: Sequence[tuple[int, int, int]], scores: np.ndarray, frame_s: float) -> Word:
        pieces = self.tokenizer.convert_ids_to_tokens([token for token, _, _ in runs])
        mean = np.concatenate([scores[a:b, token] for token, a, b in runs]).mean()
        return Word("".join(pieces).replace("\u2581", ""), runs[0][1] * frame_s, runs[-1][2] * frame_s, float(mean))
