"""A job on PySceneDetect: its detectors, as they come, on films opened by OpenCV."""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import common


def detect(job: common.Job) -> dict[str, Any]:
    from scenedetect import AdaptiveDetector, ContentDetector, SceneManager, open_video

    found: dict[str, Any] = {}
    for name, detector in (("content", ContentDetector), ("adaptive", AdaptiveDetector)):
        frames, cuts, began = 0, {}, time.process_time()
        for path in job.paths:
            video, manager = open_video(path), SceneManager()
            manager.add_detector(detector())
            frames += manager.detect_scenes(video)
            cuts[Path(path).name] = [start.frame_num for start, _ in manager.get_scene_list()[1:]]
        found[name] = {"frames": frames, "cpu_s": time.process_time() - began, "cuts": cuts, "version": version("scenedetect")}
    return found


if __name__ == "__main__":
    common.main({"detect": detect})
