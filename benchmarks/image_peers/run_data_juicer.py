"""A job on data-juicer: its image operators that need no model, and its deduplicator, which hashes by imagededup.

Images are named in a JSON Lines file, as it wants them. The thresholds let everything through.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import common

ALL = {"hash": [{"image_deduplicator": {"method": "phash"}}],
       "scores": [{"image_shape_filter": {"min_width": 1, "min_height": 1}}, {"image_aspect_ratio_filter": {"min_ratio": 0.001}},
                  {"image_size_filter": {"min_size": "1"}}, {"image_deduplicator": {"method": "phash"}}]}


def run(job: common.Job, task: str) -> dict:
    import yaml
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    place = Path(job.place)
    names = "".join(json.dumps({"text": "<__dj__image>", "images": [path]}) + "\n" for path in job.paths)
    place.joinpath("images.jsonl").write_text(names, encoding="utf-8")
    recipe = {"project_name": "benchmark", "dataset_path": str(place / "images.jsonl"), "export_path": str(place / "out.jsonl"),
              "np": job.workers, "use_cache": False, "open_tracer": False, "op_fusion": True, "process": ALL[task],
              "work_dir": str(place), "skip_op_error": False}
    path = place / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    DefaultExecutor(init_configs(["--config", str(path)])).run()
    kept = sum(1 for _ in (place / "out.jsonl").open(encoding="utf-8"))
    return {"version": version("py-data-juicer"), "images": len(job.paths), "kept": kept}


if __name__ == "__main__":
    common.main({task: lambda job, task=task: run(job, task) for task in ALL})
