"""Signs that a recogniser wrote what nobody said."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Context, Contract, Stage
from curator_audio.words.normalize import basic, is_spaced, words_of

REASONS = ("phrase", "filler_phrase", "repeated_ngram", "few_unique_words", "long_word", "compressible", "too_fast", "no_speech",
           "low_probability")
COMPOUNDS = 40  # characters: German, Finnish and Hungarian write compounds as one word


@dataclass(kw_only=True)
class Hallucination(Stage):
    """Look for the signs that a transcript was made up.

    Adds `hallucination` (list of string: which signs there are, empty where there is none; null without a text) and
    `compression_ratio` (bytes as UTF-8 by bytes after zlib). The signs:

    | sign | when |
    | --- | --- |
    | phrase | the whole text is a phrase that recognisers make of silence ("Thanks for watching"), never a part of it |
    | filler_phrase | it is one that people say, too ("Thank you"), and the sound has hardly any speech, or under 1 letter a second |
    | repeated_ngram | the same 1 to 4 words `repeats` times in a row (5 times for a single one) |
    | few_unique_words | at most `unique_ratio` of 6 or more words differ |
    | long_word | a word of 40 letters or more, or of 25 that is 3 times as long as the next; not where a script has no spaces |
    | compressible | `compression_ratio` above `compression`, of texts of at least 48 bytes |
    | too_fast | over `char_rate` letters and digits a second |
    | no_speech | there are words, and `speech_ratio` is under 0.1 |
    | low_probability | `avg_logprob` is under `logprob` |

    `text`: the column. `duration`: that of the seconds. `speech_ratio`: that of `audio.vad`; None does not ask how much speech there
    is. `avg_logprob`: that of `audio.transcribe`; None does not ask how sure the model was. `phrases`: a file with phrases of your own,
    a line each, in place of the packaged ones in some 30 languages. It has two parts, headed `[always]` and `[unless spoken]`.

    Source: compression ratio and log-probability: Radford et al. 2022 (arXiv:2212.04356), 4.5; unique words and long words:
    Granary (arXiv:2505.13404). Phrases are compared whole: a prefix would also find "Thank you very much for coming".
    """

    text: str = "pred_text"
    duration: str | None = "duration"
    speech_ratio: str | None = None
    avg_logprob: str | None = None
    phrases: str | None = None
    repeats: int = 3
    unique_ratio: float = 0.4
    compression: float = 2.4
    char_rate: float = 25.0
    logprob: float = -1.0

    def __post_init__(self) -> None:
        if self.repeats < 2:
            raise ValueError(f"repeats is 2 or more, got {self.repeats}")
        if not 0 <= self.unique_ratio <= 1:
            raise ValueError(f"unique_ratio is a share, 0 to 1, got {self.unique_ratio}")

    def contract(self) -> Contract:
        return Contract(needs={self.text: pa.string(), **{name: None for name in self._asked() if name}},
                        adds={"hallucination": pa.list_(pa.string()), "compression_ratio": pa.float32()})

    def setup(self, ctx: Context) -> None:
        self._always, self._unless_spoken = read_phrases(self.phrases)

    def process(self, batch: Batch) -> Batch:
        texts = batch.column(self.text)
        about = [batch.column(name) if name else [None] * len(batch) for name in self._asked()]
        found = [None if text is None else list(self._signs(text, *known)) for text, *known in zip(texts, *about, strict=True)]
        ratios = [None if text is None else compression_ratio(text) for text in texts]
        return batch.with_columns({"hallucination": pa.array(found, pa.list_(pa.string())),
                                   "compression_ratio": pa.array(ratios, pa.float32())})

    def _asked(self) -> tuple[str | None, ...]:
        return self.duration, self.speech_ratio, self.avg_logprob

    def _signs(self, text: str, seconds: float | None, speech: float | None, logprob: float | None) -> Iterator[str]:
        plain = basic(text)
        words = words_of(plain)
        letters = sum(c.isalnum() for c in plain)
        rate = letters / seconds if seconds else None
        silent = speech is not None and speech < 0.1
        if plain in self._always:
            yield "phrase"
        elif plain in self._unless_spoken and (silent or (rate is not None and rate < 1)):
            yield "filler_phrase"
        if repeats(words, self.repeats):
            yield "repeated_ngram"
        if len(words) >= 6 and len(set(words)) <= self.unique_ratio * len(words):
            yield "few_unique_words"
        if is_spaced(plain) and has_long_word(words):
            yield "long_word"
        if len(text.encode()) >= 48 and compression_ratio(text) > self.compression:
            yield "compressible"
        if rate is not None and rate > self.char_rate:
            yield "too_fast"
        if silent and words:
            yield "no_speech"
        if logprob is not None and logprob < self.logprob:
            yield "low_probability"


def compression_ratio(text: str) -> float:
    """Bytes of the text as UTF-8 by those that zlib makes of it: 1 and less for short texts, above 2.4 for loops."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def repeats(words: Sequence[str], times: int) -> bool:
    """Whether 1 to 4 words stand there `times` times in a row; a single one 5 times at least, since people do say "no, no, no"."""
    for size in range(1, 5):
        wanted = (max(times, 5) if size == 1 else times) - 1  # comparisons of a word with the one `size` before it
        run = 0
        for before, word in zip(words, words[size:], strict=False):
            run = run + 1 if before == word else 0
            if run >= wanted * size:
                return True
    return False


def has_long_word(words: Sequence[str]) -> bool:
    """Whether a word is longer than any language has them, or far longer than the others."""
    lengths = sorted((len(word) for word in words), reverse=True)
    return bool(lengths) and (lengths[0] >= COMPOUNDS or (lengths[0] >= 25 and len(lengths) > 1 and lengths[0] >= 3 * lengths[1]))


@cache
def read_phrases(path: str | None) -> tuple[frozenset[str], frozenset[str]]:
    """The phrases of a file (None: ours) that always count, and those that count where nobody speaks; normalised by `basic`.

    Raises:
        InputError: the file cannot be read, or a line stands before the first heading.
    """
    try:
        text = (files("curator_audio.words") / "phrases.txt" if path is None else Path(path)).read_text("utf-8")
    except OSError as error:
        raise InputError(f"phrases: {path} cannot be read: {error}") from error
    parts: dict[str, set[str]] = {"[always]": set(), "[unless spoken]": set()}
    part: set[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line in parts:
            part = parts[line]
        elif part is None:
            raise InputError(f"phrases: {path}, line {number}: a phrase before the first heading, [always] or [unless spoken]")
        else:
            part.add(basic(line))
    return frozenset(parts["[always]"]), frozenset(parts["[unless spoken]"])
