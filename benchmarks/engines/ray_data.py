"""A job on Ray Data, as its guide does it: `map` with callable classes in actor pools that it may let grow to all CPUs.

Variants: `blocks` leaves the number of rows a block to Ray Data (else a task is a block, as it is for large rows), `tasks`
uses plain functions instead of classes, `skip` tells it to try three times and then to leave a block out.
"""

from __future__ import annotations

import functools
import time
from importlib.metadata import version

import common
import numpy as np
import ray
from ray.data import ActorPoolStrategy


def read(row: dict, job: common.Job) -> dict:
    time.sleep(job.paced_s)
    return {**row, "born": time.time()}


def step(row: dict, job: common.Job, stage: int) -> dict:
    row = {**row, "born": common.act(job, stage, int(row["number"]), float(row["born"]))}
    if job.made_bytes and stage == 0:
        row["data"] = np.full(job.made_bytes, row["number"] % 256, np.uint8)
    elif stage == 2:
        row.pop("data", None)
    return row


class Step:
    def __init__(self, job: common.Job, stage: int) -> None:
        self.job, self.stage = job, stage

    def __call__(self, row: dict) -> dict:
        return step(row, self.job, self.stage)


class Read:
    def __init__(self, job: common.Job) -> None:
        self.job = job

    def __call__(self, row: dict) -> dict:
        return read(row, self.job)


def run(job: common.Job) -> dict:
    common.start_ray(job)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    options: dict = {"num_cpus": 1}
    if job.variant == "skip":
        context.max_errored_blocks = -1
        options |= {"max_task_retries": 3}
    rows = [{"number": i, "text": job.text, "born": 0.0} for i in range(job.tasks)]
    data = ray.data.from_items(rows, **({} if job.variant == "blocks" else {"override_num_blocks": job.tasks}))
    if job.paced_s:
        data = data.map(Read, fn_constructor_kwargs={"job": job}, compute=ActorPoolStrategy(size=1), num_cpus=1)
    for stage in range(3):
        if job.variant == "tasks":
            # Functions of equal needs would be fused into one stage.
            data = data.map(functools.partial(step, job=job, stage=stage), num_cpus=1 - stage / 1000)
        else:
            pool = ActorPoolStrategy(min_size=1, max_size=job.cpus)
            data = data.map(Step, fn_constructor_kwargs={"job": job, "stage": stage}, compute=pool, **options)
    numbers = [int(row["number"]) for row in data.iter_rows()]
    return {"outputs": len(set(numbers)), "rows": len(numbers),
            "version": version("ray")}


if __name__ == "__main__":
    common.main(run)
