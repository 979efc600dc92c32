"""Speech for a benchmark: given recordings, or made ones, one after the other with pauses, as files of some minutes."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import soundfile
import soxr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from packs.audio.tests.speech_like import speech_like

SUFFIXES = {".wav", ".flac", ".mp3", ".ogg", ".opus"}
FORMATS = (("wav", 16_000), ("flac", 44_100), ("mp3", 44_100), ("opus", 48_000))  # in turn
FLOOR = 10 ** (-65 / 20)      # of noise below all


def make(folder: Path, seconds: float, recordings: Path | None = None, minutes: float = 5.0, seed: int = 1,
         formats: tuple[tuple[str, int], ...] = FORMATS) -> Path:
    """Files of so many minutes, in all `seconds` long, in a folder, unless it is there."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    said = utterances(recordings, random)
    left, number = seconds, 0
    while left > 0:
        suffix, rate = formats[number % len(formats)]
        sound = talk(said, min(left, 60 * minutes), rate, random)
        (folder / f"{number:04d}.{suffix}").write_bytes(encoded(sound, rate, suffix))
        left -= len(sound) / rate
        number += 1
    return folder


def make_long(path: Path, hours: float, recordings: Path | None = None, rate: int = 16_000, seed: int = 2) -> Path:
    """One WAV file of so many hours, unless it is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng(seed)
        said = utterances(recordings, random)
        with soundfile.SoundFile(path, "w", rate, 1, "PCM_16") as file:
            while file.tell() < hours * 3600 * rate:
                file.write(talk(said, 60.0, rate, random))
    return path


def utterances(recordings: Path | None, random: np.random.Generator) -> Iterator[tuple[np.ndarray, int]]:
    """Without end: sound and its rate. Given recordings come in another order each time, and then faster or slower than before."""
    paths = sorted(p for p in recordings.rglob("*") if p.suffix.lower() in SUFFIXES) if recordings else []
    if recordings and not paths:
        raise SystemExit(f"there is no recording in {recordings}")
    given = [soundfile.read(path, dtype="float32", always_2d=True) for path in paths]
    again = 0
    while True:
        for number in random.permutation(len(given)) if given else range(100):
            if given:
                sound, rate = given[number]
                yield sound[:, 0], round(rate * (1 + 0.07 * (again % 2 * 2 - 1) * ((again + 1) // 2)))
            else:
                yield speech_like(float(random.uniform(2, 12)), 16_000, seed=100 * again + number), 16_000
        again += 1


def talk(said: Iterator[tuple[np.ndarray, int]], seconds: float, rate: int, random: np.random.Generator) -> np.ndarray:
    """Float32 [n]: utterances with pauses, of which each fifth is long, over some noise."""
    total = round(seconds * rate)
    sound = (FLOOR * random.standard_normal(total)).astype(np.float32)
    at = 0
    while at < total:
        words, from_rate = next(said)
        words = soxr.resample(words, from_rate, rate)[:total - at]
        sound[at:at + len(words)] += words * np.float32(random.uniform(0.4, 1.0))
        pause = random.uniform(2.2, 4.0) if random.random() < 0.2 else random.uniform(0.2, 1.2)
        at += len(words) + round(pause * rate)
    return np.clip(sound, -1, 1)


def encoded(sound: np.ndarray, rate: int, suffix: str) -> bytes:
    """The file of a mono recording."""
    file = io.BytesIO()
    if suffix == "opus":
        with av.open(file, "w", format="ogg") as output:
            stream = output.add_stream("libopus", rate=rate, layout="mono")
            frame = av.AudioFrame.from_ndarray(sound[None], "flt", "mono")
            frame.sample_rate = rate
            output.mux(stream.encode(frame))
            output.mux(stream.encode(None))
    else:
        with soundfile.SoundFile(file, "w", rate, 1, format=suffix.upper()) as output:
            for start in range(0, len(sound), 10 * rate):
                output.write(sound[start:start + 10 * rate])
    return file.getvalue()
