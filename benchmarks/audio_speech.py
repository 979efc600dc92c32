"""Speech of which everything is known: synthesised with the times of its words, prompts with transcripts, sessions with known pauses.

Prompts and music are those that Debian packages (CC-BY-SA 3.0): see audio_truth.py.
"""

from __future__ import annotations

import ctypes
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

RATE = 16_000
SENTENCES = (  # the fable of the north wind; Stella; Harvard sentences
    "The north wind and the sun were disputing which was the stronger.",
    "A traveller came along, wrapped in a warm cloak.",
    "They agreed that the one who first succeeded should be considered stronger.",
    "Then the north wind blew as hard as he could.",
    "The more he blew, the more closely did the traveller fold his cloak around him.",
    "At last the north wind gave up the attempt.",
    "Then the sun shone out warmly, and immediately the traveller took off his cloak.",
    "Please call Stella, and ask her to bring these things.",
    "Six spoons of fresh snow peas, five thick slabs of blue cheese.",
    "We also need a small plastic snake for the kids.",
    "She can scoop these things into three red bags.",
    "We will go meet her on Wednesday at the train station.",
    "The birch canoe slid on the smooth planks.",
    "Glue the sheet to the dark blue background.",
    "It is easy to tell the depth of a well.",
    "These days a chicken leg is a rare dish.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The box was thrown beside the parked truck.",
    "Four hours of steady work faced us.",
)
VOICES = (("en-us", 160, 50), ("en-gb", 140, 35), ("en-us+f3", 175, 60), ("en-us+m4", 190, 40))
LEVEL_DB = -45.0  # of the loudest 5 ms: what is quieter at the ends of a clip is none of the speech


class _Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("identifier", ctypes.c_uint), ("text_position", ctypes.c_int), ("length", ctypes.c_int),
                ("audio_position", ctypes.c_int), ("sample", ctypes.c_int), ("user_data", ctypes.c_void_p), ("name", ctypes.c_char * 8)]


@dataclass(frozen=True)
class Said:
    """Speech at RATE, and its words with the times at which they begin; the last time is the end."""

    samples: np.ndarray
    text: str
    words: list[str]
    times: list[float]


class Espeak:
    """eSpeak NG as the package espeakng-loader has it."""

    WORD = 1

    def __init__(self) -> None:
        import espeakng_loader

        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        self._blocks: list[np.ndarray] = []
        self._starts: list[tuple[int, float]] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))
        self._callback = kind(self._take)
        self._rate = self._library.espeak_Initialize(2, 0, espeakng_loader.get_data_path().encode(), 0)
        self._library.espeak_SetSynthCallback(self._callback)

    def say(self, text: str, voice: str, speed: int, pitch: int) -> Said:
        import soxr

        self._blocks, self._starts = [], []
        self._library.espeak_SetVoiceByName(voice.encode())
        self._library.espeak_SetParameter(1, speed, 0)
        self._library.espeak_SetParameter(3, pitch, 0)
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, 0, 0, 1, None, None)
        self._library.espeak_Synchronize()
        samples = soxr.resample(np.concatenate(self._blocks).astype(np.float32) / 32768, self._rate, RATE, "HQ")
        first, stop = spoken(samples)
        told = {at: time for at, time in reversed(self._starts)}  # noqa: C416 - the first event of a place counts
        found = [(match[0], told.get(match.start() + 1)) for match in re.finditer(r"[\w']+", text)]
        known = [(word, time - first / RATE) for word, time in found if time is not None]
        return Said(samples[first:stop], text, [word for word, _ in known], [max(time, 0.0) for _, time in known] + [(stop - first) / RATE])

    def _take(self, samples: ctypes.Array, count: int, events: ctypes.Array) -> int:
        if samples and count > 0:
            self._blocks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        at = 0
        while events and events[at].type:
            if events[at].type == self.WORD:
                self._starts.append((events[at].text_position, events[at].audio_position / 1000))
            at += 1
        return 0


def synthesised() -> list[Said]:
    """Eighty utterances of four voices."""
    espeak = Espeak()
    return [espeak.say(text, *voice) for voice in VOICES for text in SENTENCES]


def spoken(samples: np.ndarray, rate: int = RATE) -> tuple[int, int]:
    """Where the speech of a clean clip begins and ends."""
    step = rate // 200
    power = np.square(samples[:len(samples) // step * step].reshape(-1, step)).mean(axis=1)
    on = np.flatnonzero(power > power.max() * 10 ** (LEVEL_DB / 10))
    return int(on[0]) * step, int(on[-1] + 1) * step


def prompts(folder: Path) -> list[tuple[np.ndarray, int, str]]:
    """Samples, rate and transcript of the prompts in a folder where the packages were unpacked; tones and silence left out."""
    import soundfile

    texts = {}
    for path in folder.rglob("core-sounds-en.txt.gz"):
        for line in gzip.decompress(path.read_bytes()).decode("utf-8", "replace").splitlines():
            name, _, text = line.partition(":")
            if text and not name.startswith(";") and not re.search(r"[\[(]", text):
                texts[name.strip()] = text.strip()
    found = []
    for path in sorted(folder.rglob("*.wav")):
        name = path.as_posix().partition("en_US_f_Allison/")[2].removesuffix(".wav")
        if name in texts:
            samples, rate = soundfile.read(path, dtype="float32")
            found.append((samples, rate, texts[name]))
    return found


def tunes(folder: Path) -> list[tuple[np.ndarray, int]]:
    """The pieces of music of a folder where the package was unpacked."""
    import soundfile

    return [soundfile.read(path, dtype="float32") for path in sorted(folder.rglob("moh/*.wav"))]


@dataclass(frozen=True)
class Session:
    """Utterances with silence between them: samples, and where each is, in seconds, [k, 2]."""

    samples: np.ndarray
    rate: int
    truth: np.ndarray


def sessions(clips: list[np.ndarray], rate: int, size: int, seed: int, pauses: tuple[float, float] = (0.3, 2.5)) -> Iterator[Session]:
    """Each of so many clips, cut to what is spoken, at one level."""
    chance = np.random.default_rng(seed)
    for first in range(0, len(clips) - size + 1, size):
        parts, truth, at = [], [], 0
        for clip in clips[first:first + size]:
            begin, stop = spoken(clip, rate)
            voice = clip[begin:stop] * np.float32(0.1 / np.sqrt(np.mean(np.square(clip[begin:stop]))))
            pause = round(chance.uniform(*pauses) * rate)
            parts += [np.zeros(pause, np.float32), voice]
            truth.append(((at + pause) / rate, (at + pause + len(voice)) / rate))
            at += pause + len(voice)
        yield Session(np.concatenate([*parts, np.zeros(rate, np.float32)]), rate, np.array(truth))


def mixed(session: Session, noise: np.ndarray, snr_db: float) -> np.ndarray:
    """With noise below the speech, pauses not counted, by so many dB."""
    inside = np.zeros(len(session.samples), bool)
    for begin, end in session.truth:
        inside[round(begin * session.rate):round(end * session.rate)] = True
    power = np.mean(np.square(session.samples[inside]))
    noise = np.resize(noise, len(session.samples))
    return (session.samples + noise * np.sqrt(power / 10 ** (snr_db / 10) / np.mean(np.square(noise)))).astype(np.float32)


def white(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def pink(count: int, seed: int) -> np.ndarray:
    """Noise whose power falls by 3 dB an octave."""
    spectrum = np.fft.rfft(white(count, seed))
    return np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), count).astype(np.float32)


# -- what a CTC model would answer ----------------------------------------------------------------------------------


class Letters:
    """A tokenizer of letters, as wav2vec2 has."""

    all_special_tokens, word_delimiter_token = ("<pad>",), "|"

    def get_vocab(self) -> dict[str, int]:
        return {token: at for at, token in enumerate(("<pad>", "|", *"abcdefghijklmnopqrstuvwxyz'"))}


def heard_by_letters(one: Said, spelling: Any, wrong: float, noise: float, chance: np.random.Generator) -> np.ndarray:
    """What a CTC model would answer, as the truth has it, but for noise: log-probabilities of frames of 20 ms."""
    frames = max(1, round(one.times[-1] / 0.02))
    best = np.zeros(frames, np.int64)
    for spelt, (begin, end) in zip(spelling.words(" ".join(one.words)), pairwise(one.times), strict=True):
        places = begin + (end - begin) * np.arange(len(spelt.tokens)) / max(1, len(spelt.tokens))
        at = np.minimum((places / 0.02).astype(int) + chance.integers(0, 3, len(places)), frames - 1)
        best[at] = np.where(chance.random(len(at)) < wrong, chance.integers(2, 29, len(at)), spelt.tokens)
    logits = 6.0 * (np.arange(29) == best[:, None]) + noise * chance.standard_normal((frames, 29))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
