"""A job on NeMo Curator: its stages one after the other in a pool of processes, without Ray, whose start would cost more.

MonoConversion, VADSegmentation by silero (as lists of segments) and BandwidthEstimation, which decodes the file once more.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from typing import Any

import common


@cache
def stages() -> list[Any]:
    import torch
    from nemo_curator.stages.audio.metrics.bandwidth import BandwidthEstimationStage
    from nemo_curator.stages.audio.preprocessing import MonoConversionStage
    from nemo_curator.stages.audio.segmentation.vad_segmentation import VADSegmentationStage

    torch.set_num_threads(1)
    made = [MonoConversionStage(strict_sample_rate=False), VADSegmentationStage(nested=True), BandwidthEstimationStage()]
    made[1].resources.gpus = 0.0
    for stage in made:
        stage.setup(None)
    return made


def one(path: str) -> float:
    from nemo_curator.tasks import AudioTask

    task = AudioTask(task_id=path, data={"audio_filepath": path})
    for stage in stages():
        task = stage.process(task)
        task = task[0] if isinstance(task, list) else task
    return float(task.data["duration"])


def vad(job: common.Job) -> dict:
    with get_context("spawn").Pool(job.workers) as pool:
        return {"version": version("nemo-curator"), "audio_s": sum(pool.imap_unordered(one, job.paths))}


if __name__ == "__main__":
    common.main({"vad": vad})
