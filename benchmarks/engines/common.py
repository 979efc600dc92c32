"""What every engine's script shares: the job, what a stage does to a task, and how the script is called. Standard library only.

A task is a number, a text and the moment at which it was born: when its first stage took it, or when it was read. Each
last stage writes a line a task into one log, so that all engines are timed at the same place.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Job:
    """Three stages of one CPU, each in workers of its own, over `tasks` tasks of `text_bytes`.

    `seconds`: what each stage takes a task. `made_bytes`: a payload that the first stage gives each task and the last one
    takes away. `paced_s`: a single reader before the stages hands out a task in each such time. `cpus`: what the engine may
    use. `kills`: the second stage ends its process at the first sight of every so many tasks. `poison`: the task that
    ends its process each time, -1 for none. `lose_after`: outputs after which the second of two nodes goes, 0 for one node.
    `variant`: of the engine's settings. `place`: a folder for the log and for what the engine writes.
    """

    tasks: int
    place: str
    text_bytes: int = 1000
    seconds: tuple[float, ...] = (0.0, 0.0, 0.0)
    made_bytes: int = 0
    paced_s: float = 0.0
    cpus: int = 4
    kills: int = 0
    poison: int = -1
    lose_after: int = 0
    variant: str = ""

    @property
    def log(self) -> str:
        return f"{self.place}/log"

    @property
    def text(self) -> str:
        return "x" * self.text_bytes


_logs: dict[str, int] = {}


def act(job: Job, stage: int, number: int, born: float) -> float:
    """What stage 0, 1 or 2 does to a task, beside its payload; gives when the task was born."""
    if stage == 0 and not job.paced_s:
        born = time.time()
    if stage == 1:
        _die(job, number)
    if job.seconds[stage]:
        time.sleep(job.seconds[stage])
    if stage == 2:
        if job.log not in _logs:
            _logs[job.log] = os.open(job.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(_logs[job.log], f"{number} {born} {time.time()}\n".encode())
    return born


def _die(job: Job, number: int) -> None:
    if number == job.poison:
        os._exit(1)
    if job.kills and number % job.kills == job.kills // 2:
        try:
            os.close(os.open(f"{job.place}/killed-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(1)


def outputs_so_far(job: Job) -> int:
    try:
        return Path(job.log).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def lose_node(job: Job, remove: Callable[[], None]) -> None:
    """Remove a node, in a thread of its own, when there are `lose_after` outputs."""
    def watch() -> None:
        while outputs_so_far(job) < job.lose_after:
            time.sleep(0.05)
        remove()

    threading.Thread(target=watch, daemon=True).start()


def ray_options(job: Job) -> dict:
    return {"_temp_dir": f"{job.place}/ray", "log_to_driver": False}


def start_ray(job: Job, **options: object) -> None:
    """A Ray of this job's own, on one node; with `lose_after` on two, of which the second will go."""
    import ray

    if not job.lose_after:
        ray.init(address="local", num_cpus=job.cpus, **ray_options(job), **options)
        return
    address, remove = two_nodes(job)
    ray.init(address=address, log_to_driver=False)
    lose_node(job, remove)


def two_nodes(job: Job) -> tuple[str, Callable[[], None]]:
    """A cluster of two nodes on this machine that share the CPUs: its address, and what takes the second one away."""
    from ray.cluster_utils import Cluster

    first, second = job.cpus - job.cpus // 2, job.cpus // 2
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": first, "temp_dir": f"{job.place}/ray"})
    node = cluster.add_node(num_cpus=second)
    cluster.wait_for_nodes()
    return cluster.address, lambda: cluster.remove_node(node, allow_graceful=False)


def main(run: Callable[[Job], dict]) -> None:
    """Run the job that the command line names; its result goes into `result` in the job's folder."""
    told = json.loads(sys.argv[1])
    job = Job(**{**told, "seconds": tuple(told["seconds"])})
    try:
        result = run(job)
    except BaseException as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        result = {"error": f"{type(error).__name__}: {text[:300]}"}
    Path(job.place, "result").write_text(json.dumps(result))
