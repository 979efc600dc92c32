"""How right the measures of sound are: on speech, noise and music of which the truth is known.

    apt-get download asterisk-core-sounds-en asterisk-core-sounds-en-wav asterisk-moh-opsound-wav    # Debian, CC-BY-SA 3.0
    for package in *.deb; do dpkg -x $package asterisk; done
    python benchmarks/audio_truth.py asterisk [--only vad,music,snr,bandwidth,loudness,copies,wer,align]

Wants curator-audio[models], espeakng-loader, jiwer and pyloudnorm. Prints a table; some five minutes of one core. Speech: 80
sentences of eSpeak in four voices, which tells when each word begins, and 554 recorded prompts of 8 kHz with transcripts. Music:
five tunes.

- `vad`: sessions of eight utterances with known pauses: F1 of frames of 10 ms, and the median error of starts and ends.
- `music`: the same of prompts over music, and what becomes of their speech by the rules of `audio/speech`, and of those for speech
  over music: the share that is kept, and what takes the rest. And of the music alone.
- `snr`, `bandwidth`, `loudness`: what is measured against what was mixed, filtered, or is said by pyloudnorm.
- `copies`: prompts of 2 s and more in other quality, of which `dedup.near` would find the pairs above 0.3.
- `wer`: error counts against jiwer's, of prompts with planted errors and of random words.
- `align`: no acoustic model is at hand, so a CTC model's answers are made from the truth: each letter in one frame of 20 ms, up to
  two frames late, blanks between, letters heard wrongly, and noise on all logits. So it measures the aligner, not a model.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import soxr
from audio_speech import RATE, Letters, Session, heard_by_letters, mixed, pink, prompts, sessions, synthesised, tunes, white
from curator_audio import Align, Decode, Encode, Fingerprint, Segment, Signals, Vad
from curator_audio.measures.measured import measure
from curator_audio.words.align import Spelling
from curator_audio.words.compare import compare

from curator.api.stage import Context
from curator.api.tasks import AudioBatch
from curator.stages import Drop

Row = tuple[str, str]  # what was measured, and what came out
Data = SimpleNamespace  # said: list of Said; prompts: (samples, rate, text); music: (samples, rate)
ENGINES = {"WebRTC": {}, "Silero": {"engine": "silero"}, "energy": {"engine": "energy"}}
CHANGES = ("level", "8 kHz", "mp3 64", "mp3 24", "opus 24", "noise 20 dB", "noise 10 dB", "0.1 s off")
SIMILAR = 0.3


def batch_of(samples: list[np.ndarray], rate: int, **columns: pa.Array) -> AudioBatch:
    ids = pa.array([str(number) for number in range(len(samples))])
    seconds = pa.array([len(one) / rate for one in samples])
    rates, starts = pa.array([rate] * len(samples), pa.int32()), pa.array([0.0] * len(samples))
    rows = pa.table({"id": ids, "source": ids, "sample_rate": rates, "duration": seconds, "start_s": starts, "end_s": seconds, **columns})
    return AudioBatch(rows=rows, samples=[np.atleast_2d(one) for one in samples])


def ready(stage: Any) -> Any:
    stage.setup(Context())
    return stage


# -- voice activity -------------------------------------------------------------------------------------------------


def detected(engine: Vad, talks: list[tuple[np.ndarray, Session]]) -> str:
    """F1, and the median error of starts and ends in ms."""
    hit = false = missed = 0
    starts, ends = [], []
    for samples, session in talks:
        spans = engine.process(batch_of([samples], session.rate)).column("speech")[0]
        found = np.array([(span["start"], span["end"]) for span in spans]).reshape(-1, 2)
        ours, truth = (flags(one, len(samples) / session.rate) for one in (found, session.truth))
        hit, false, missed = hit + (ours & truth).sum(), false + (ours & ~truth).sum(), missed + (truth & ~ours).sum()
        if len(found):
            starts += [np.abs(found[:, 0] - begin).min() for begin in session.truth[:, 0]]
            ends += [np.abs(found[:, 1] - end).min() for end in session.truth[:, 1]]
    begun, ended = (1000 * np.median(errors or [np.nan]) for errors in (starts, ends))
    return f"{2 * hit / max(1, 2 * hit + false + missed):.3f}, {begun:.0f}, {ended:.0f}"


def flags(spans: np.ndarray, seconds: float) -> np.ndarray:
    made = np.zeros(int(seconds * 100), bool)
    for begin, end in spans:
        made[round(begin * 100):round(end * 100)] = True
    return made


def vad(data: Data) -> Iterator[Row]:
    real = list(sessions(long_prompts(data, 1.0), 8000, 8, 1))
    for name, talks in (("synthesised", list(sessions([one.samples for one in data.said], RATE, 8, 0))), ("prompts", real)):
        noises: dict[str, Callable[[Session], np.ndarray]] = {
            "clean": lambda one: one.samples, "white noise at 20 dB": lambda one: mixed(one, white(len(one.samples), 1), 20),
            "white noise at 5 dB": lambda one: mixed(one, white(len(one.samples), 2), 5),
            "pink noise at 10 dB": lambda one: mixed(one, pink(len(one.samples), 3), 10)}
        for kind, made in noises.items():
            heard = [(made(one), one) for one in talks]
            told = "; ".join(f"{engine} {detected(ready(Vad(**how)), heard)}" for engine, how in ENGINES.items())
            yield f"{name}, {kind}: F1, start and end in ms", told


def music(data: Data) -> Iterator[Row]:
    """Of prompts over music: what the detectors find, and what the rules keep. And of the music alone."""
    talks = list(sessions(long_prompts(data, 2.0), 8000, 8, 4, pauses=(0.5, 3.0)))
    tunes = [soxr.resample(wave, rate, 8000, "HQ") for wave, rate in data.music]
    levels: list[int | None] = [20, 15, 10, 5, 0, None]
    for snr_db in levels:
        if snr_db is None:
            heard = [(wave, Session(wave, 8000, np.array([[0.0, len(wave) / 8000]]))) for wave in tunes]
        else:
            heard = [(mixed(one, tunes[at % len(tunes)][8000 * 20:], snr_db), one) for at, one in enumerate(talks)]
        for engine in ("WebRTC", "Silero"):
            found = ready(Vad(**ENGINES[engine]))
            name = f"prompts {snr_db} dB above music, {engine}"
            if snr_db is None:
                name = f"music alone, {engine}: seconds of {sum(len(wave) for wave in tunes) / 8000:.0f} that are kept"
            else:
                yield f"{name}: F1, start and end in ms", detected(found, heard)
            for rules, told in kept(found, heard, ("audio/speech", "audio/speech-over-music")):
                yield f"{name}, {rules}", told


def kept(engine: Vad, talks: list[tuple[np.ndarray, Session]], sets: Sequence[str]) -> Iterator[Row]:
    """The share of the spoken seconds that passes each set of rules, and what takes the others."""
    cutter, signals = ready(Segment(min=2, max=30, merge_gap=2)), ready(Signals())
    total = sum((session.truth[:, 1] - session.truth[:, 0]).sum() for _, session in talks)
    short, pieces = 0.0, []
    for samples, session in talks:
        for outputs in cutter.process(engine.process(batch_of([samples], session.rate))):
            short += sum(inside(row, session) for row in (outputs["dropped"].rows.to_pylist() if "dropped" in outputs else ()))
            if "out" in outputs:
                pieces.append((signals.process(outputs["out"]), session))
    for rules in sets:
        drop, seconds = ready(Drop(rules=rules)), {"kept": 0.0}
        for measured, session in pieces:
            for port, rows in drop.process(measured).items():
                for row in rows.rows.to_pylist():
                    reason = row["reason"] if port == "dropped" else "kept"
                    seconds[reason] = seconds.get(reason, 0.0) + inside(row, session)
        shares = {**dict(sorted(seconds.items(), key=lambda one: (one[0] != "kept", -one[1]))), "too short or none": short}
        yield rules, ", ".join(f"{reason} {100 * share / total:.0f} %" for reason, share in shares.items())


def inside(row: dict, session: Session) -> float:
    """How many seconds of speech a piece holds."""
    return float((np.minimum(session.truth[:, 1], row["end_s"]) - np.maximum(session.truth[:, 0], row["start_s"])).clip(0).sum())


def long_prompts(data: Data, seconds: float) -> list[np.ndarray]:
    return [samples for samples, rate, _ in data.prompts if len(samples) >= seconds * rate]


# -- measures -------------------------------------------------------------------------------------------------------


def snr(data: Data) -> Iterator[Row]:
    for name, clips, rate in (("synthesised", [one.samples for one in data.said], RATE), ("prompts", long_prompts(data, 2.0), 8000)):
        told = []
        for true in (0, 10, 20, 30, 40):
            found = [measure(noisy(one, true, at)[None], rate, ["snr_db"])["snr_db"] for at, one in enumerate(clips)]
            error = np.array([one for one in found if one is not None]) - true
            told.append(f"{true} dB: {np.median(error):+.1f}, {np.mean(np.abs(error)):.1f}")
        yield f"snr_db of {name} with white noise: median and mean absolute error in dB", "; ".join(told)


def noisy(samples: np.ndarray, snr_db: float, seed: int) -> np.ndarray:
    return (samples + white(len(samples), seed) * np.sqrt(np.mean(np.square(samples)) / 10 ** (snr_db / 10))).astype(np.float32)


def bandwidth(data: Data) -> Iterator[Row]:
    told = []
    for edge in (2000, 3400, 4000, 6000, 7000):
        found = []
        for at, one in enumerate(data.said[::4]):
            spectrum = np.fft.rfft(noisy(one.samples, 30, at))  # speech alone does not reach to each edge
            spectrum[np.fft.rfftfreq(len(one.samples), 1 / RATE) > edge] = 0
            wave = soxr.resample(np.fft.irfft(spectrum, len(one.samples)).astype(np.float32), RATE, 48_000, "HQ")
            found.append(measure(wave[None], 48_000, ["bandwidth"])["bandwidth"] - edge)
        told.append(f"{edge}: {np.median(found):+.0f}, {np.abs(found).max():.0f}")
    yield "bandwidth of noisy speech cut off at so many Hz, at 48 kHz: median and largest error in Hz", "; ".join(told)


def loudness(data: Data) -> Iterator[Row]:
    import pyloudnorm

    clips = long_prompts(data, 2.0)
    ours = [measure(one[None], 8000, ["loudness"])["loudness"] for one in clips]
    found = [a - pyloudnorm.Meter(8000).integrated_loudness(one.astype(float)) for a, one in zip(ours, clips, strict=True) if a is not None]
    yield "loudness of prompts less pyloudnorm's: median, smallest, largest in LU", (
        f"{np.median(found):+.3f}, {min(found):+.3f}, {max(found):+.3f}")


# -- copies ---------------------------------------------------------------------------------------------------------


def copies(data: Data) -> Iterator[Row]:
    clips = [soxr.resample(one, 8000, RATE, "HQ") for one in long_prompts(data, 2.0)]
    originals, there = signatures(clips, RATE)
    alike = (originals[:, None] == originals[None]).mean(axis=2)[np.triu_indices(len(clips), 1)]
    both = np.outer(there, there)[np.triu_indices(len(clips), 1)]
    yield f"fingerprints of {there.sum()} of {len(clips)} prompts; {both.sum():,} pairs of different ones: most alike; above {SIMILAR}", (
        f"{alike[both].max():.3f}; {(alike[both] >= SIMILAR).sum()}")
    for change in CHANGES:
        changed, rate = changed_by(change, clips)
        found, known = signatures(changed, rate)
        every = (originals[:, None] == found[None]).mean(axis=2) * np.outer(there, known)
        own, others = np.diagonal(every), every - np.diag(np.diagonal(every))
        hits = int((own >= SIMILAR).sum())
        wrong = int((others >= SIMILAR).sum())
        yield f"copies by {change}: recall, precision", f"{hits / len(clips):.3f}, {hits / max(1, hits + wrong):.3f}"


def signatures(clips: list[np.ndarray], rate: int) -> tuple[np.ndarray, np.ndarray]:
    rows = ready(Fingerprint()).process(batch_of(clips, rate)).column("minhash")
    there = np.array([row is not None for row in rows])
    return np.array([row if row is not None else [0] * 112 for row in rows], np.uint32), there


def changed_by(change: str, clips: list[np.ndarray]) -> tuple[list[np.ndarray], int]:
    kind, _, amount = change.partition(" ")
    if kind in ("mp3", "opus"):
        files = ready(Encode(format=kind, kbps=int(amount))).process(batch_of(clips, RATE))["out"]
        batch = AudioBatch(rows=files.rows.select(["id", "source", "bytes"]))
        made = {row: wave[0] for outputs in ready(Decode(rate=RATE)).process(batch)
                for row, wave in zip(outputs["out"].column("source"), outputs["out"].samples, strict=True)}
        return [made[str(at)] for at in range(len(clips))], RATE
    if kind == "noise":
        return [noisy(one, int(amount.split()[0]), at) for at, one in enumerate(clips)], RATE
    if kind == "level":
        return [one * np.float32(0.2) for one in clips], RATE
    return ([one[RATE // 10:] for one in clips], RATE) if kind == "0.1" else ([soxr.resample(one, RATE, 8000, "HQ") for one in clips], 8000)


# -- words ----------------------------------------------------------------------------------------------------------


def wer(data: Data) -> Iterator[Row]:
    import jiwer

    chance = np.random.default_rng(0)
    texts = [text for _, _, text in data.prompts]
    vocabulary = [word for text in texts for word in text.split()]
    planted = [(text, " ".join(altered(text.split(), vocabulary, chance))) for text in texts]
    few = [[" ".join(chance.choice(["a", "b", "cc", "d"], chance.integers(1, 12))) for _ in range(2)] for _ in range(5000)]
    for name, pairs in (("prompts with planted errors", planted), ("random words", few)):
        unequal = 0
        for reference, hypothesis in pairs:
            ours, theirs = compare(reference, hypothesis), jiwer.process_words(reference, hypothesis)
            letters = jiwer.process_characters(reference, hypothesis)
            unequal += (ours.words_wrong != theirs.substitutions + theirs.deletions + theirs.insertions
                        or abs(ours.wer - theirs.wer) > 1e-12 or abs(ours.cer - letters.cer) > 1e-12)
        yield f"word and character error rates of {len(pairs):,} pairs of {name} that differ from jiwer's", str(unequal)


def altered(words: list[str], vocabulary: list[str], chance: np.random.Generator) -> Iterator[str]:
    for word in words:
        what = chance.random()
        if what < 0.1:
            yield str(chance.choice(vocabulary))
        elif what >= 0.2:
            yield word
        if what > 0.9:
            yield str(chance.choice(vocabulary))


def align(data: Data) -> Iterator[Row]:
    stage = Align(model="-")
    stage._spelling, stage._recogniser = Spelling(Letters()), SimpleNamespace(blank=0)
    chance = np.random.default_rng(0)
    for wrong, noise in ((0.0, 0.0), (0.0, 2.0), (0.1, 1.0), (0.3, 2.0), (0.5, 2.0)):
        starts, lost = [], 0
        for one in data.said:
            words, _, _ = stage._aligned(heard_by_letters(one, stage._spelling, wrong, noise, chance), " ".join(one.words), one.times[-1])
            if words is None:
                lost += 1
                continue
            starts += [abs(word["start"] - time) for word, time in zip(words, one.times, strict=False)]
        yield f"starts of {len(starts)} words, {wrong:.0%} of letters wrong, noise {noise} on logits: median, 95th percentile in ms", (
            f"{1000 * np.median(starts):.0f}, {1000 * np.percentile(starts, 95):.0f}; without an answer {lost}")


ROWS = {"vad": vad, "music": music, "snr": snr, "bandwidth": bandwidth, "loudness": loudness, "copies": copies, "wer": wer, "align": align}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(ROWS))
    told = parser.parse_args()
    data = Data(said=synthesised(), prompts=prompts(told.folder), music=tunes(told.folder))
    if not data.prompts or not data.music:
        parser.error(f"no prompts with transcripts, or no music, in {told.folder}: unpack the packages there that are named above")
    print(f"{len(data.said)} synthesised utterances, {len(data.prompts)} prompts, {len(data.music)} tunes\n\n| | |\n| --- | --- |")
    for name in told.only.split(","):
        for row in ROWS[name](data):
            print(f"| {row[0]} | {row[1]} |", flush=True)


if __name__ == "__main__":
    main()
