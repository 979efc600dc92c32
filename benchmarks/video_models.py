"""Models of clips fed by a pipeline, beside the same models alone.

    python benchmarks/video_models.py [--only clip,caption] [--clips 24] [--size 640x360]

Makes films of 10 s of one shot. Results are printed, and written to benchmarks/results/video_models.json. Linux; some ten minutes on
two cores.

- `clip`: CLIP ViT-B/32 with random weights through `each`, two frames a second, the mean of them to the clip. `bare` is the image tower
  alone on tensors in memory.
- `caption`: a vision-language model of the architecture of Qwen2.5-VL with random weights (12 layers of 768 for pictures, 8 of 512
  for words) says 48 tokens of the 16 frames of each film. `bare` is the same model on inputs that are ready.

`bare` has all cores, and for the figure by processor time one, as each worker has: threads that wait for each other burn what they
wait. `ours` reads, decodes, scales and runs the engine with ledger, accounts and output, two workers; two runs each, of a
quarter of the films and of all: `more/s` is what the second run had more by what it took longer, the rate at which a long run goes,
`more/CPU-s` the same by processor time of all processes. `share` is ours of bare. Clips are counted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import peers
from engine import REAP, sweep

ROWS = ("clip", "caption")
SECONDS, RATE, FPS, TOKENS, AT_ONCE = 10, 25, 2, 48, 2
LIMIT_S = 1800
WORKERS = 2


def films(folder: Path, count: int, size: tuple[int, int]) -> Path:
    """So many films of a texture that moves."""
    import av
    import numpy as np

    folder.mkdir(parents=True)
    width, height = size
    for number in range(count):
        random = np.random.default_rng(number)
        wide = random.integers(0, 256, (height // 8, width // 8 + SECONDS * RATE // 4 + 1, 3), np.uint8).repeat(8, 0).repeat(8, 1)
        with av.open(str(folder / f"{number:04d}.mp4"), "w") as out:
            stream: Any = out.add_stream("libx264", rate=RATE, options={"crf": "23", "preset": "veryfast"})
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            for k in range(SECONDS * RATE):
                picture = np.ascontiguousarray(wide[:height, 2 * k:2 * k + width])
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            out.mux(stream.encode())
    return folder


# -- the models ---------------------------------------------------------------------------------------------------


def clip_model(place: Path) -> str:
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    folder = place / "clip-vit-b-32"
    if not folder.exists():
        torch.manual_seed(0)
        CLIPModel(CLIPConfig()).save_pretrained(folder)
        CLIPImageProcessor().save_pretrained(folder)
    return str(folder)


def caption_model(place: Path) -> str:
    """It never says that it has come to an end."""
    import torch
    import transformers

    from packs.image.tests.tiny_captioners import qwen

    folder = place / "captioner"
    if not folder.exists():
        folder.mkdir(parents=True)
        qwen(folder)
        config = transformers.AutoConfig.from_pretrained(folder)
        text, vision = config.text_config, config.vision_config
        text.update({"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 8,
                     "num_key_value_heads": 2, "layer_types": ["full_attention"] * 8, "max_window_layers": 8,
                     "rope_parameters": {**text.rope_parameters, "mrope_section": [8, 12, 12]}})
        vision.update({"depth": 12, "hidden_size": 768, "intermediate_size": 3072, "out_hidden_size": 512, "num_heads": 12,
                       "fullatt_block_indexes": [3, 7, 11]})
        torch.manual_seed(0)
        made = transformers.Qwen2_5_VLForConditionalGeneration(config)
        made.generation_config.update(bos_token_id=1, eos_token_id=2, pad_token_id=0, suppress_tokens=[2])
        made.save_pretrained(folder)
    return str(folder)


# -- the tasks, each in a process of its own ----------------------------------------------------------------------


def bare_clip(job: dict[str, Any]) -> dict[str, Any]:
    import torch
    from transformers import CLIPModel

    loaded = CLIPModel.from_pretrained(clip_model(Path(job["models"]))).eval()
    frames = torch.randn(SECONDS * FPS * AT_ONCE, 3, 224, 224)

    def forward() -> None:
        loaded.get_image_features(pixel_values=frames)

    return timed(forward, job["clips"])


def bare_caption(job: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    from curator.api.stage import Context
    from curator.models.captioner import Captioner, Question, load_captioner

    made = load_captioner(caption_model(Path(job["models"])), Context(cpus=WORKERS))
    captioner = Captioner(*made, max_new_tokens=TOKENS)
    width, height = job["seen"]
    picture = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    ready = captioner.inputs([Question(job["prompt"], [picture] * 16)] * AT_ONCE)
    captioner.inputs = lambda questions: ready  # type: ignore[method-assign]
    return timed(lambda: captioner.answers([]), job["clips"])


def timed(forward: Any, clips: int) -> dict[str, Any]:
    """Calls of a model on `AT_ONCE` clips each, after one that does not count: with all cores by the clock, with one by processor time."""
    import torch

    calls = max(1, clips // AT_ONCE // 2)
    with torch.inference_mode():
        forward()
        began = time.monotonic()
        for _ in range(calls):
            forward()
        model_s = time.monotonic() - began
        torch.set_num_threads(1)
        used = time.process_time()
        for _ in range(calls):
            forward()
    return {"clips": calls * AT_ONCE, "model_s": model_s, "model_cpu_s": time.process_time() - used}


def ours(job: dict[str, Any]) -> dict[str, Any]:
    import yaml

    from curator.front import load

    models = Path(job["models"])
    if job["row"] == "clip":
        steps: list[Any] = [{"each": {"payload": "frames", "as": "pixels", "steps": [{"image.embed": {"model": clip_model(models)}}],
                                      "gather": {"embedding": "mean", "id": {"count": "frames_used"}}}}]
    else:
        steps = [{"video.caption": {"model": caption_model(models), "prompt": job["prompt"], "max_new_tokens": TOKENS},
                  "with": {"batch_size": AT_ONCE}}]
    decode = {"fps": FPS, "size": job["size"], "thumbs": False}
    recipe = {"read": {"video.files": {"path": job["films"]}}, "steps": [{"video.decode": decode}, *steps], "write": "parquet",
              "out": f"{job['place']}/out"}
    path = Path(job["place"], "recipe.yaml")
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    result = load(path).run(workers=WORKERS)
    if not result.ok or result.records["failed"]:
        raise SystemExit(str(result.stats["message"]))
    check(job, Path(job["place"], "out/data"))
    return {"clips": result.records["written"], "busy_s": {stage["name"]: stage["busy_s"] for stage in result.stats["stages"]}}


def check(job: dict[str, Any], data: Path) -> None:
    """That the model did for each clip what the bare one does."""
    import pyarrow.parquet as pq

    for path in data.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            if job["row"] == "clip":
                assert row["frames_used"] == SECONDS * FPS, row["frames_used"]
                assert len(row["embedding"]) == 512
            else:
                assert row["caption_tokens"] == TOKENS, row["caption_tokens"]


TASKS = {"bare_clip": bare_clip, "bare_caption": bare_caption, "ours": ours}


# -- the driver ---------------------------------------------------------------------------------------------------


def call(task: str, job: dict[str, Any]) -> dict[str, Any]:
    """Have a task done: its answer, and what it took."""
    with tempfile.TemporaryDirectory(prefix="video") as folder:
        answer, output = Path(folder, "answer.json"), Path(folder, "output")
        command = [sys.executable, __file__, "--task", task, "--job", json.dumps(job | {"place": folder, "answer": str(answer)})]
        before, began = peers.cpu_seconds(), time.monotonic()
        with output.open("wb") as told:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.STDOUT,
                                       env=peers.environment_of("ours"), start_new_session=True, cwd=folder)
            try:
                process.wait(LIMIT_S)
            finally:
                seconds = time.monotonic() - began
                sweep()
        if not answer.exists():
            raise SystemExit(f"{task}: {output.read_text(errors='replace')[-2000:]}")
        return json.loads(answer.read_text(encoding="utf-8")) | {"seconds": seconds, "cpu_s": peers.cpu_seconds() - before}


def row(name: str, job: dict[str, Any], quarter: Path, whole: Path, clips: int) -> dict[str, dict[str, Any]]:
    """The bare model, and ours beside it."""
    alone = call(f"bare_{name}", job | {"clips": clips})
    alone |= {"more_per_s": alone["clips"] / alone["model_s"], "more_per_cpu_s": alone["clips"] / alone["model_cpu_s"]}
    small, large = (call("ours", job | {"row": name, "films": str(folder)}) for folder in (quarter, whole))
    more = large["clips"] - small["clips"]
    large |= {"more_per_s": more / max(1e-9, large["seconds"] - small["seconds"]),
              "more_per_cpu_s": more / max(1e-9, large["cpu_s"] - small["cpu_s"])}
    large |= {"share": large["more_per_s"] / alone["more_per_s"], "share_cpu": large["more_per_cpu_s"] / alone["more_per_cpu_s"]}
    heads = "".join(f"{head:>11}" for head in ("clips", "seconds", "CPU-s", "more/s", "more/CPU-s"))
    print(f"{name}, {clips} films of {SECONDS} s\n{'':8}{heads}", flush=True)
    for who, told in (("bare", alone), ("ours", large)):
        figures = "".join(f"{told[key]:11,.3f}" for key in ("clips", "seconds", "cpu_s", "more_per_s", "more_per_cpu_s"))
        print(f"  {who:6}{figures}", flush=True)
    print(f"  share {large['share']:.2f}, by processor time {large['share_cpu']:.2f}", flush=True)
    return {"bare": alone, "ours": large}


def rows(told: argparse.Namespace, place: Path) -> Any:
    """(row, size, who), figures."""
    width, height = (int(side) for side in told.size.split("x"))
    quarter, whole = (films(place / str(n), n, (width, height)) for n in (max(AT_ONCE, told.clips // 4), told.clips))
    for name in told.only.split(","):
        size = 384 if name == "clip" else 224
        job = {"models": str(place / "models"), "size": size, "seen": [size, round(size * height / width / 2) * 2],
               "prompt": "Describe the clip of 10 seconds."}
        for who, figures in row(name, job, quarter, whole, told.clips).items():
            yield (name, told.size, who), figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows")
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--size", default="640x360")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.task:
        Path(told.job["answer"]).write_text(json.dumps(TASKS[told.task](told.job)), encoding="utf-8")
        return
    ctypes.CDLL(None).prctl(REAP, 1, 0, 0, 0)
    place = Path(tempfile.mkdtemp(prefix="video"))
    try:
        peers.keep("video_models", rows(told, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
