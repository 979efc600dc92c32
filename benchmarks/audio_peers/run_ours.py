"""A job on Curator, packaged stages from files to files; and `bare` and `bare_model`, the same calls without it.

Each task answers with `audio_s`, the seconds of audio that were read, and with what a check looks at: `found`, some measures of
each file, or what was written.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path
from typing import Any

import common

RATE = 16_000
WINDOWS, TOKENS = 8, 64  # of Whisper: windows of 30 s at once, and tokens that it says of each


def run(job: common.Job, recipe: str | dict[str, Any], overrides: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a recipe, which writes to `out` in the job's place."""
    import yaml

    from curator.front import load

    if isinstance(recipe, dict):
        path = Path(job.place, "recipe.yaml")
        path.write_text(yaml.safe_dump({**recipe, "out": f"{job.place}/out"}, sort_keys=False), encoding="utf-8")
        recipe = str(path)
    began = time.monotonic()
    result = load(recipe, overrides).run(workers=job.workers)
    if not result.ok or result.records["failed"]:
        raise SystemExit(str(result.stats["message"]) or f"{result.records['failed']} failed")
    stages = result.stats["stages"]
    heard = next(stage["amounts"]["duration"]["out"]["out"] for stage in stages if stage["name"] == "decode")
    return {"audio_s": heard, "run_s": time.monotonic() - began, "written": result.records["written"],
            "busy_s": {stage["name"]: stage["busy_s"] for stage in stages},
            "told": {stage["name"]: stage["extra"] for stage in stages if stage.get("extra")}}


def rows(job: common.Job, columns: list[str]) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds

    return ds.dataset(f"{job.place}/out/data", format="parquet").to_table(columns=columns).to_pylist()


def measure(job: common.Job) -> dict[str, Any]:
    told = run(job, {"read": {"audio.files": {"path": job.sounds}},
                     "steps": [{"audio.decode": {"rate": RATE}}, "audio.signals", "audio.vad",
                               {"select": {"drop": ["bytes", "samples"]}}], "write": "parquet"})
    columns = ["source", "duration", "loudness", "snr_db", "bandwidth", "speech_seconds"]
    return told | {"found": {Path(row.pop("source")).name: row for row in rows(job, columns)}}


def bare(job: common.Job) -> dict[str, Any]:
    """A loop over libsndfile, FFmpeg, soxr, our own functions of numpy, and webrtcvad, in a pool of processes."""
    from multiprocessing import Pool

    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    with Pool(job.workers) as pool:
        found = dict(pool.imap_unordered(bare_measures, job.paths))
    Path(job.place, "found.json").write_text(json.dumps(found), encoding="utf-8")
    return {"audio_s": sum(one["duration"] for one in found.values()), "found": found}


def bare_measures(path: str) -> tuple[str, dict[str, Any]]:
    import av
    import numpy as np
    import soundfile
    import soxr
    import webrtcvad
    from curator_audio.measures.measured import measure as measured
    from curator_audio.measures.signals import COLUMNS

    if path.endswith(".mp3"):  # by libsndfile one without an index ends early
        with av.open(path) as file:
            stream = file.streams.audio[0]
            sound = np.concatenate([frame.to_ndarray() for frame in file.decode(stream)], axis=1)
            rate = stream.rate
    else:
        sound, rate = soundfile.read(path, dtype="float32", always_2d=True)
        sound = sound.T
    mono = sound[0] if len(sound) == 1 else sound.mean(axis=0)
    mono = mono if rate == RATE else soxr.resample(mono, rate, RATE, "HQ")
    values = measured(mono[None], RATE, COLUMNS)
    raw = np.clip(mono * 32767, -32768, 32767).astype("<i2").tobytes()
    vad, frame = webrtcvad.Vad(3), RATE // 100
    said = sum(vad.is_speech(raw[at:at + 2 * frame], RATE) for at in range(0, len(raw) - 2 * frame + 1, 2 * frame))
    return Path(path).name, {"duration": len(mono) / RATE, "speech_seconds": said / 100, **values}


def speech(job: common.Job) -> dict[str, Any]:
    told = run(job, "audio/speech", {"read.path": job.sounds, "out": f"{job.place}/out"})
    wrong = 0
    written_s = 0.0
    seconds = {row["id"]: row["duration"] for row in rows_beside(job)}
    for path in sorted(Path(job.place, "out", "data").rglob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".flac"):
                    held = flac_s(tar.extractfile(member).read())  # type: ignore[union-attr]
                    written_s += held
                    wrong += not any(abs(held - s) < 1e-3 for s in seconds.values())
    return told | {"written_s": written_s, "wrong": wrong, "told_s": sum(seconds.values())}


def scored(job: common.Job, steps: list) -> dict[str, Any]:
    """Decode, some steps, and a table."""
    return run(job, {"read": {"audio.files": {"path": job.sounds}}, "write": "parquet",
                     "steps": ["audio.decode", *steps, {"select": {"drop": ["bytes", "samples"]}}]})


def rows_beside(job: common.Job) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(path, columns=["id", "duration"]) for path in sorted(Path(job.place, "out", "data").rglob("*.parquet"))]
    return pa.concat_tables(tables).to_pylist()


def flac_s(data: bytes) -> float:
    """Seconds of a FLAC file of one channel at 16 kHz, by decoding it."""
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    return len(samples) / rate if rate == RATE and samples.ndim == 1 else -1.0


def model(job: common.Job) -> str:
    """A Whisper of the size of `tiny` with random weights, beside the sounds, made once. It never says that it has come to an end."""
    from packs.audio.tests.tiny_recognisers import whisper

    folder = Path(job.sounds).parent / "whisper"
    if not folder.exists():
        import torch
        import transformers

        whisper(folder)
        small = transformers.WhisperConfig.from_pretrained(folder)
        torch.manual_seed(0)
        large = transformers.WhisperConfig(
            vocab_size=small.vocab_size, num_mel_bins=80, decoder_start_token_id=small.decoder_start_token_id,
            bos_token_id=small.bos_token_id, eos_token_id=small.eos_token_id, pad_token_id=small.pad_token_id)
        made = transformers.WhisperForConditionalGeneration(large)
        settings = transformers.GenerationConfig.from_pretrained(folder)
        settings.suppress_tokens = [*(settings.suppress_tokens or []), small.eos_token_id]
        settings.max_length = 448
        made.generation_config = settings
        made.save_pretrained(folder)
        processor = transformers.AutoProcessor.from_pretrained(folder)
        transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(feature_size=80), processor.tokenizer).save_pretrained(folder)
    return str(folder)


def bare_model(job: common.Job) -> dict[str, Any]:
    """The model alone, on features that are there: seconds of windows."""
    import torch
    import transformers

    loaded = transformers.WhisperForConditionalGeneration.from_pretrained(model(job)).eval()
    features = torch.randn(WINDOWS, 80, 3000)
    windows = max(WINDOWS, len(job.paths) // WINDOWS * WINDOWS)
    options = {"max_new_tokens": TOKENS, "do_sample": False, "num_beams": 1, "language": "en", "task": "transcribe"}
    with torch.inference_mode():
        loaded.generate(features, **options)
        began, used = time.monotonic(), time.process_time()
        tokens = 0
        for _ in range(windows // WINDOWS):
            tokens += loaded.generate(features, **options)[:, -TOKENS:].numel()
    return {"audio_s": windows * 30.0, "windows": windows, "tokens": tokens, "model_s": time.monotonic() - began,
            "model_cpu_s": time.process_time() - used, "threads": torch.get_num_threads()}


def whisper_fed(job: common.Job) -> dict[str, Any]:
    told = run(job, {"read": {"audio.files": {"path": job.sounds}},
                     "steps": [{"audio.decode": {"rate": RATE}},
                               {"audio.transcribe": {"model": model(job), "language": "en", "max_new_tokens": TOKENS}},
                               {"select": {"drop": ["bytes", "samples"]}}], "write": "parquet"})
    return told | {"windows": told["written"], "tokens": told["told"]["transcribe"]["tokens"]}


if __name__ == "__main__":
    common.main({"measure": measure, "bare": bare, "speech": speech, "whisper": whisper_fed, "bare_model": bare_model,
                 "snr": lambda job: scored(job, [{"audio.signals": {"only": ["snr_db"]}}]),
                 "vad": lambda job: scored(job, [{"audio.vad": {"engine": "silero"}}, {"audio.signals": {"only": ["bandwidth"]}}])})
