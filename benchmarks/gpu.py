"""Models on a GPU fed by pipelines, beside the same models alone on tensors that lie on the device.

    python benchmarks/gpu.py [--only images,texts,speech,captions,vectors] [--share 1.0]

Makes its own input and models: the sizes of those that people use, with random weights. Results are printed, and written to
benchmarks/results/gpu.json. A machine with an NVIDIA GPU and 16 cores; some ten minutes. Without a GPU models are tiny, to try this script.

- `images`: JPEGs of 512 x 384 in tar shards, decoded, scaled, embedded by CLIP ViT-L/14, to Parquet.
- `texts`: JSON Lines, log-normal lengths (median 200 words), scored by an encoder of 109 million weights, 512 tokens at most.
- `speech`: recordings of 20 s (FLAC), heard by Whisper large-v3-turbo, 64 tokens each.
- `captions`: the same JPEGs, described by Qwen2.5-VL-3B in 64 tokens.
- `vectors`: dedup.semantic over vectors of 768 numbers, on all cores and with a GPU; that both keep the same records.

`bare` is the model's forward, or its generation, on inputs that are ready, in batches as large as the stage's or larger. `ours`
is a whole run (reading, decoding, the model, accounts, output): the records of the shards that it finished behind the first
quarter of them, by the time that these took, the rate at which a long run goes. `whole` is all records by the seconds of the
whole command, which loads the model several times. `busy` is the share of time in which the device worked in the middle half of
the run, and `memory` what all workers had of it at most.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers

sys.path.insert(0, str(peers.HERE.parent))
LARGE = Path("/dev/nvidia0").exists()
TOKENS = 64
SHARDS = 64


# -- input --------------------------------------------------------------------------------------------------------


def make_images(folder: Path, count: int) -> None:
    """Pictures of soft colours and noise, as large in bytes as photos; 500 different ones, each in several shards."""
    import numpy as np
    from PIL import Image

    random, made = np.random.default_rng(0), []
    for _ in range(min(count, 500)):
        soft = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8)).resize((512, 384), Image.Resampling.BICUBIC)
        noisy = np.clip(np.asarray(soft, np.int16) + random.normal(0, 6, (384, 512, 1)), 0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(noisy).save(stream, "JPEG", quality=85)
        made.append(stream.getvalue())
    shards(folder, count, "jpg", lambda number: made[number % len(made)])


def make_speech(folder: Path, count: int) -> None:
    import numpy as np
    import soundfile

    random, made = np.random.default_rng(0), []
    for _ in range(min(count, 50)):
        stream = io.BytesIO()
        soundfile.write(stream, random.normal(0, 0.05, 20 * 16_000).astype(np.float32), 16_000, format="FLAC")
        made.append(stream.getvalue())
    shards(folder, count, "flac", lambda number: made[number % len(made)])


def shards(folder: Path, count: int, ending: str, content: Callable[[int], bytes]) -> None:
    folder.mkdir(parents=True)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as tar:
            for number in range(shard * count // SHARDS, (shard + 1) * count // SHARDS):
                entry, data = tarfile.TarInfo(f"{number:07}.{ending}"), content(number)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))


def make_texts(folder: Path, count: int) -> None:
    import numpy as np

    folder.mkdir(parents=True)
    random, words = np.random.default_rng(0), np.array(vocabulary())
    lengths = np.clip(random.lognormal(np.log(200), 0.8, count), 5, 2000).astype(int)
    for shard in range(SHARDS):
        with open(folder / f"{shard:03}.jsonl", "w", encoding="utf-8") as file:
            for size in lengths[shard::SHARDS]:
                file.write(json.dumps({"text": " ".join(words[random.zipf(1.3, size) % len(words)])}) + "\n")


def vocabulary() -> list[str]:
    return [f"{first}{second}{third}" for first in "bcdfgklmnprst" for second in ("a", "e", "i", "o", "u", "ai", "ou", "ea")
            for third in (f"{x}{y}" for x in "bdgklmnprst" for y in "aeiou")]


def make_vectors(folder: Path, count: int) -> None:
    """Random directions around 2,000 subjects; a tenth of them again, turned a little."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    subjects = random.standard_normal((2000, 768), np.float32)
    vectors = subjects[random.integers(0, 2000, count)] + random.standard_normal((count, 768), np.float32)
    copies = random.integers(0, count, count // 10)
    vectors[random.integers(0, count, count // 10)] = vectors[copies] + 0.05 * random.standard_normal((len(copies), 768), np.float32)
    for shard, part in enumerate(np.array_split(vectors, SHARDS)):
        rows = pa.table({"id": [f"{shard}-{row}" for row in range(len(part))],
                         "embedding": pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), 768)})
        pq.write_table(rows, folder / f"{shard:03}.parquet")


# -- models -------------------------------------------------------------------------------------------------------


def on_device() -> tuple[Any, str, Any]:
    """Torch, where models are made and run, and in which numbers they run."""
    import torch

    torch.manual_seed(0)
    return (torch, "cuda", torch.float16) if LARGE else (torch, "cpu", torch.float32)


def image_model(folder: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    torch, device, _ = on_device()
    vision = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14}
    with torch.device(device):
        CLIPModel(CLIPConfig(vision_config=vision if LARGE else None, projection_dim=768)).save_pretrained(folder)
    CLIPImageProcessor().save_pretrained(folder)


def text_model(folder: Path) -> None:
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch, device, _ = on_device()
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *vocabulary()]
    (folder / "vocab.txt").write_text("\n".join(words), "utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt"), vocab_file=str(folder / "vocab.txt"), model_max_length=512).save_pretrained(folder)
    config = BertConfig(vocab_size=len(words) if not LARGE else 30_522, num_labels=1, problem_type="regression",
                        num_hidden_layers=12 if LARGE else 1)
    with torch.device(device):
        BertForSequenceClassification(config).save_pretrained(folder)


def speech_model(folder: Path) -> None:
    import transformers

    from packs.audio.tests.tiny_recognisers import whisper

    torch, device, _ = on_device()
    whisper(folder)
    generation = transformers.GenerationConfig.from_pretrained(folder)
    end = generation.eos_token_id
    generation.update(max_length=448, suppress_tokens=[*(generation.suppress_tokens or ()), end], alignment_heads=None)
    config = transformers.WhisperConfig.from_pretrained(folder)
    if LARGE:
        config.update({"num_mel_bins": 128, "d_model": 1280, "encoder_layers": 32, "decoder_layers": 4, "encoder_attention_heads": 20,
                       "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "init_std": 0.02})
    config.update({"max_target_positions": 448})
    with torch.device(device):
        made = transformers.WhisperForConditionalGeneration(config)
    made.generation_config = generation
    made.save_pretrained(folder)
    processor = transformers.WhisperProcessor.from_pretrained(folder)
    transformers.WhisperProcessor(transformers.WhisperFeatureExtractor(feature_size=config.num_mel_bins),
                                  processor.tokenizer).save_pretrained(folder)


def caption_model(folder: Path) -> None:
    """It never says that it has come to an end."""
    import transformers

    from packs.image.tests.tiny_captioners import qwen

    torch, device, _ = on_device()
    folder.mkdir()
    qwen(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    text, vision = config.text_config, config.vision_config
    if LARGE:
        text.update({"hidden_size": 2048, "intermediate_size": 11_008, "num_hidden_layers": 36, "num_attention_heads": 16,
                     "num_key_value_heads": 2, "layer_types": ["full_attention"] * 36, "max_window_layers": 36,
                     "rope_parameters": {**text.rope_parameters, "mrope_section": [16, 24, 24]}})
        vision.update({"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 2048, "num_heads": 16,
                       "fullatt_block_indexes": [7, 15, 23, 31]})
    with torch.device(device):
        made = transformers.Qwen2_5_VLForConditionalGeneration(config)
    made.generation_config.update(bos_token_id=1, eos_token_id=2, pad_token_id=0, suppress_tokens=[2])
    made.to(torch.bfloat16).save_pretrained(folder)
    # the tiny model's processor sees 64 patches at most; the real one's default is more than these pictures have
    transformers.Qwen2VLImageProcessorPil(min_pixels=3136, max_pixels=1_003_520 if LARGE else 64 * 784).save_pretrained(folder)


# -- the models alone ---------------------------------------------------------------------------------------------


def rate_of(forward: Callable[[], int], seconds: float = 6.0) -> float:
    """Records a second of a call that gives how many it has worked on, after two that do not count."""
    torch, device, _ = on_device()
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    with torch.inference_mode():
        forward(), forward(), wait()
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            done += forward()
            wait()
    return done / (time.perf_counter() - began)


def bare_images(model: Path, data: Path) -> float:
    from transformers import CLIPModel

    torch, device, kind = on_device()
    loaded = CLIPModel.from_pretrained(model, dtype=kind).to(device).eval()
    batches = {size: torch.randn(size, 3, 224, 224, dtype=kind, device=device) for size in ((64, 256) if LARGE else (8,))}
    return max(rate_of(lambda batch=batch: len(loaded.get_image_features(pixel_values=batch).pooler_output), 4)
               for batch in batches.values())


def bare_texts(model: Path, data: Path) -> float:
    """Texts of one shard, as tokens sorted by length; a pass over all of them."""
    import numpy as np
    from curator_text.models.encoders import batches_of
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch, device, kind = on_device()
    texts = [json.loads(line)["text"] for line in (data / "000.jsonl").read_text("utf-8").splitlines()[:2000]]
    tokens = AutoTokenizer.from_pretrained(model)(texts, truncation=True, max_length=512)["input_ids"]
    loaded = AutoModelForSequenceClassification.from_pretrained(model, dtype=kind).to(device).eval()
    batches = []
    for rows in batches_of(np.array([len(one) for one in tokens]), 16_384, 2048):
        ids = np.zeros((len(rows), max(len(tokens[row]) for row in rows)), np.int64)
        for at, row in enumerate(rows):
            ids[at, :len(tokens[row])] = tokens[row]
        batches.append({"input_ids": torch.from_numpy(ids).to(device), "attention_mask": torch.from_numpy(ids != 0).long().to(device)})

    def all_texts() -> int:
        for batch in batches:
            loaded(**batch)
        return len(texts)

    return rate_of(all_texts)


def bare_speech(model: Path, data: Path) -> float:
    from transformers import WhisperForConditionalGeneration

    torch, device, kind = on_device()
    loaded = WhisperForConditionalGeneration.from_pretrained(model, dtype=kind).to(device).eval()
    count = 32 if LARGE else 2
    features = torch.randn(count, loaded.config.num_mel_bins, 3000, dtype=kind, device=device)
    return rate_of(lambda: len(loaded.generate(features, language="en", task="transcribe", max_new_tokens=TOKENS if LARGE else 8)))


def bare_captions(model: Path, data: Path) -> float:
    import numpy as np

    from curator.api.stage import Context
    from curator.models.captioner import Captioner, Question, load_captioner

    made = load_captioner(str(model), Context(cpus=4, gpus=(0,) if LARGE else ()))
    captioner = Captioner(*made, max_new_tokens=TOKENS if LARGE else 8)
    picture = np.random.default_rng(0).integers(0, 256, (384, 512, 3), np.uint8)
    ready = captioner.inputs([Question("Describe this image.", [picture])] * 32)
    captioner.inputs = lambda questions: ready  # type: ignore[method-assign]
    return rate_of(lambda: len(captioner.answers([])))


# -- what is run --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    unit: str
    count: int  # of records on a GPU
    make: Callable[[Path, int], None]
    model: Callable[[Path], None]
    bare: Callable[[Path, Path], float]
    recipe: Callable[[str, str], dict[str, Any]]  # of the input and the model


def images_recipe(data: str, model: str) -> dict[str, Any]:
    return {"read": {"webdataset": {"path": data}}, "steps": [
        {"image.decode": {"size": 256}}, {"image.resize": {"size": 224, "crop": "center", "resample": "bicubic"}},
        {"image.embed": {"model": model}}, {"select": {"drop": ["bytes"]}}]}


def texts_recipe(data: str, model: str) -> dict[str, Any]:
    return {"read": {"jsonl": {"path": data}}, "steps": [{"text.classify": {"model": model, "regression": True}}]}


def speech_recipe(data: str, model: str) -> dict[str, Any]:
    heard = {"model": model, "language": "en", "max_new_tokens": TOKENS if LARGE else 8}
    return {"read": {"webdataset": {"path": data}},
            "steps": ["audio.decode", {"audio.transcribe": heard}, {"select": {"drop": ["bytes", "samples"]}}]}


def captions_recipe(data: str, model: str) -> dict[str, Any]:
    asked = {"model": model, "prompt": "Describe this image.", "max_new_tokens": TOKENS if LARGE else 8}
    return {"read": {"webdataset": {"path": data}}, "steps": [
        "image.decode", {"image.caption": asked, "with": {"batch_size": 32}}, {"select": {"drop": ["bytes"]}}]}


ROWS = {
    "images": Row("images", 60_000, make_images, image_model, bare_images, images_recipe),
    "texts": Row("texts", 150_000, make_texts, text_model, bare_texts, texts_recipe),
    "speech": Row("recordings", 3_000, make_speech, speech_model, bare_speech, speech_recipe),
    "captions": Row("images", 1_600, make_images, caption_model, bare_captions, captions_recipe),
}
TRIED = {"images": 64, "texts": 320, "speech": 32, "captions": 32}  # without a GPU


class Load:
    """How busy the device is and what of its memory is taken, five times a second."""

    def __enter__(self) -> Load:
        self.seen: list[tuple[float, float]] = []
        self.process: subprocess.Popen[str] | None = None
        if LARGE:
            asked = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "200"]
            self.process = subprocess.Popen(asked, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._listen, daemon=True).start()
        return self

    def _listen(self) -> None:
        for line in self.process.stdout:  # type: ignore[union-attr]
            busy, memory = line.split(",")
            self.seen.append((float(busy), float(memory)))

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.process.terminate()

    @property
    def busy(self) -> float:
        at = [number for number, (busy, _) in enumerate(self.seen) if busy]
        middle = self.seen[at[len(at) // 4]:at[3 * len(at) // 4] + 1] if at else []
        return statistics.fmean(busy for busy, _ in middle) if middle else 0.0

    @property
    def memory_gb(self) -> float:
        return max((memory for _, memory in self.seen), default=0.0) / 1000


def run(place: Path, recipe: dict[str, Any], name: str) -> tuple[float, Path]:
    """Seconds of a whole run, by the command line, and where it wrote."""
    import yaml

    out, path = place / f"out-{name}", place / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**recipe, "write": "parquet", "out": str(out)}, sort_keys=False), "utf-8")
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "curator", "run", str(path), "--quiet"], capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    records = json.loads((out / "_run/stats.json").read_text("utf-8"))["records"] if out.exists() else {}
    if done.returncode or records.get("failed"):
        raise SystemExit(f"{name}: {records}\n{done.stdout}{done.stderr}")
    return seconds, out


def measure(name: str, place: Path, share: float) -> dict[str, Any]:
    row = ROWS[name]
    count = int((row.count if LARGE else TRIED[name]) * share)
    place.mkdir()
    row.make(place / "in", count)
    asked = [sys.executable, __file__, "--bare", name, "--place", str(place)]  # makes the model too
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    if told.returncode:
        raise SystemExit(f"{name} alone: {told.stderr}")
    bare = json.loads(told.stdout.splitlines()[-1])
    with Load() as load:
        seconds, out = run(place, row.recipe(f"{place}/in/*", f"{place}/model"), "all")
    events = map(json.loads, (out / "_run/events.jsonl").read_text("utf-8").splitlines())
    finished = [event["t"] for event in events if event["event"] == "unit_commit"]
    first = len(finished) // 4
    took = finished[-1] - finished[first - 1]
    rate = (1 - first / len(finished)) * count / took if took > seconds / 10 else None  # else they all ended at once
    return {"unit": row.unit, "count": count, "bare": bare, "ours": rate, "share": rate and rate / bare, "whole": count / seconds,
            "seconds": seconds, "busy": load.busy, "memory_gb": load.memory_gb}


def vectors(place: Path, share: float) -> dict[str, Any]:
    import pyarrow.dataset as ds

    count = int((600_000 if LARGE else 3_000) * share)
    make_vectors(place / "in", count)
    read, kept, took = {"read": {"parquet": {"path": f"{place}/in/*.parquet"}}}, {}, {}
    for how in ("cores", "gpu") if LARGE else ("cores",):
        step: dict[str, Any] = {"dedup.semantic": {"threshold": 0.95}}
        if how == "gpu":
            step["with"] = {"resources": {"cpus": 2, "gpus": 1}}
        took[how], out = run(place, {**read, "steps": [step, {"select": {"keep": ["id"]}}]}, how)
        kept[how] = sorted(ds.dataset(out / "data", format="parquet").to_table(columns=["id"])["id"].to_pylist())
    same = len(set(map(tuple, kept.values()))) == 1
    return {"count": count, "kept": len(kept["cores"]), "same": same, **{f"{how}_s": seconds for how, seconds in took.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join([*ROWS, "vectors"]))
    parser.add_argument("--share", type=float, default=1.0, help="of the records")
    parser.add_argument("--bare", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([peers.environment_of("ours")["PYTHONPATH"], os.environ.get("PYTHONPATH", "")])
    sys.path += [str(path) for path in (peers.HERE.parent / "packs").iterdir()]
    if args.bare:
        ROWS[args.bare].model(Path(args.place, "model"))
        print(json.dumps(ROWS[args.bare].bare(Path(args.place, "model"), Path(args.place, "in"))))
        return
    results = peers.HERE / "results" / "gpu.json"
    results.parent.mkdir(exist_ok=True)
    found = json.loads(results.read_text("utf-8")) if results.exists() else {}
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory(prefix="gpu") as folder:
            place = Path(folder, name)
            found[name] = vectors(place, args.share) if name == "vectors" else measure(name, place, args.share)
        told = ", ".join(f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in found[name].items())
        print(f"{name}: {told}", flush=True)
        results.write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
