"""A job on cosmos-xenna, as its README does it: stages with `process_data`, worker counts left to its autoscaler."""

from __future__ import annotations

import os
import time
from importlib.metadata import version

import common
import numpy as np
from cosmos_xenna.pipelines import v1 as xenna


class Read(xenna.Stage):
    """Hands out a task now and then."""

    def __init__(self, job: common.Job) -> None:
        self.job = job

    @property
    def required_resources(self) -> xenna.Resources:
        return xenna.Resources(cpus=1.0)

    def process_data(self, tasks: list[dict]) -> list[dict]:
        for task in tasks:
            time.sleep(self.job.paced_s)
            task["born"] = time.time()
        return tasks


class Step(xenna.Stage):
    def __init__(self, job: common.Job, stage: int) -> None:
        self.job, self.stage = job, stage

    @property
    def required_resources(self) -> xenna.Resources:
        return xenna.Resources(cpus=1.0)

    def process_data(self, tasks: list[dict]) -> list[dict]:
        for task in tasks:
            task["born"] = common.act(self.job, self.stage, task["number"], task["born"])
            if self.job.made_bytes and self.stage == 0:
                task["data"] = np.full(self.job.made_bytes, task["number"] % 256, np.uint8)
            elif self.stage == 2:
                task.pop("data", None)
        return tasks


class First(Step):
    pass


class Second(Step):
    pass


class Third(Step):
    pass


def run(job: common.Job) -> dict:
    # Set by its own `ray.init`, which finds ours running; without them its monitor's queries fail.
    os.environ.update(RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES="1", RAY_MAX_LIMIT_FROM_API_SERVER="40000",
                      RAY_MAX_LIMIT_FROM_DATA_SOURCE="40000")
    common.start_ray(job, **({} if job.lose_after else {"include_dashboard": True}))
    stages = [First(job, 0), Second(job, 1), Third(job, 2)]
    if job.paced_s:
        stages.insert(0, xenna.StageSpec(Read(job), num_workers=1))
    streaming = xenna.StreamingSpecificSpec(**({"autoscale_interval_s": 5.0} if job.variant == "5s" else {}))
    # The headroom of 5% would take one of few CPUs away; the others get them all.
    config = xenna.PipelineConfig(return_last_stage_outputs=True, cpu_allocation_percentage=1.0, mode_specific=streaming,
                                  ignore_failures=job.variant == "skip")
    tasks = [{"number": i, "text": job.text, "born": 0.0} for i in range(job.tasks)]
    outputs = xenna.run_pipeline(xenna.PipelineSpec(input_data=tasks, stages=stages, config=config))
    return {"outputs": len({task["number"] for task in outputs or ()}), "rows": len(outputs or ()),
            "version": version("cosmos-xenna")}


if __name__ == "__main__":
    common.main(run)
