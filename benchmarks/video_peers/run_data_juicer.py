"""A job on data-juicer: films cut where PySceneDetect finds scenes, and how much the clips move by Farneback's flow.

It cuts by the ffmpeg program; that of the package imageio-ffmpeg is put on the path. The thresholds let everything through.
Films are named in a JSON Lines file.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import common

STEPS = [{"video_split_by_scene_mapper": {"detector": "ContentDetector", "save_dir": "clips"}},
         {"video_motion_score_filter": {"min_score": 0, "sampling_fps": 2}}]


def split(job: common.Job) -> dict:
    import imageio_ffmpeg
    import yaml
    from data_juicer.config import init_configs
    from data_juicer.core import DefaultExecutor

    place = Path(job.place)
    (place / "bin").mkdir()
    (place / "bin" / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    os.environ["PATH"] = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    names = "".join(json.dumps({"text": "<__dj__video>", "videos": [path]}) + "\n" for path in job.paths)
    place.joinpath("films.jsonl").write_text(names, encoding="utf-8")
    STEPS[0]["video_split_by_scene_mapper"]["save_dir"] = str(place / "clips")
    recipe = {"project_name": "benchmark", "dataset_path": str(place / "films.jsonl"), "export_path": str(place / "out.jsonl"),
              "np": job.workers, "use_cache": False, "open_tracer": False, "process": STEPS, "work_dir": str(place),
              "skip_op_error": False, "keep_stats_in_res_ds": True}
    path = place / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    DefaultExecutor(init_configs(["--config", str(path)])).run()
    rows = [json.loads(line) for line in (place / "out.jsonl").open(encoding="utf-8")]
    return {"version": version("py-data-juicer"), "clips": sum(len(row["videos"]) for row in rows)}


if __name__ == "__main__":
    common.main({"split": split})
