"""A job on Curator: packaged image stages from files to Parquet. `clip` compares a bare model with the same fed by a pipeline."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path

import common

FIVE = ["brightness", "contrast", "colourfulness", "entropy", "sharpness"]
STEPS = {"hash": [{"image.decode": {"size": 64}}, "image.hash"],
         "scores": [{"image.decode": {"size": 384}}, "image.signals", "image.hash"],
         "scores:five": [{"image.decode": {"size": 384}}, {"image.signals": {"only": FIVE}}, "image.hash"]}


def run(job: common.Job, steps: list) -> dict:
    import yaml

    from curator.front import load

    recipe = {"read": {"image.files": {"path": job.images}}, "steps": [*steps, {"select": {"drop": ["bytes"]}}],
              "write": "parquet", "out": f"{job.place}/out"}
    path = Path(job.place, "recipe.yaml")
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    began = time.monotonic()
    result = load(path).run(workers=job.workers)
    if not result.ok or result.records["failed"]:
        raise SystemExit(str(result.stats["message"]))
    stages = {stage["name"]: stage["busy_s"] for stage in result.stats["stages"]}
    return {"version": version("curator-core"), "images": result.records["written"], "run_s": time.monotonic() - began,
            "busy_s": stages}


def model(job: common.Job) -> Path:
    """CLIP ViT-B/32 with random weights, beside the images, made once."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    folder = Path(job.images).parent / "clip-vit-b-32"
    if not folder.exists():
        torch.manual_seed(0)
        CLIPModel(CLIPConfig()).save_pretrained(folder)
        CLIPImageProcessor().save_pretrained(folder)
    return folder


def bare(job: common.Job) -> dict:
    """The image tower alone on tensors that are there: the best of all ways to use the cores, images a second."""
    import torch
    from transformers import CLIPModel

    folder = model(job)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    images = len(job.paths)
    loaded = CLIPModel.from_pretrained(folder, dtype=kind).to(device).eval()
    batch = torch.randn(64, 3, 224, 224, dtype=kind, device=device)
    with torch.inference_mode():
        loaded.get_image_features(pixel_values=batch)
        began = time.monotonic()
        for _ in range(max(1, images // 64)):
            found = loaded.get_image_features(pixel_values=batch)
        found.pooler_output.float().cpu()
    return {"images": max(1, images // 64) * 64, "model_s": time.monotonic() - began}


def clip(job: common.Job) -> dict:
    steps = [{"image.decode": {"size": 256}}, {"image.resize": {"size": 224, "crop": "center", "resample": "bicubic"}},
             {"image.embed": {"model": str(model(job))}}]
    return run(job, steps)


if __name__ == "__main__":
    common.main({"hash": lambda job: run(job, STEPS["hash"]),
                 "scores": lambda job: run(job, STEPS[f"scores:{job.variant}".removesuffix(":")]),
                 "bare": bare, "clip": clip})
