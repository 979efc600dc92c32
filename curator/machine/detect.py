"""What this machine has for workers: cores, GPUs, memory; the limits of containers and batch systems
count."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from curator.api.resources import Node
from curator.machine.cgroups import limits
from curator.machine.folders import shared_memory_parent

BUDGET_MAX = 8 << 30  # bytes on their way between workers; more does not make a run faster


def this_machine(cpus: float | None = None) -> Node:
    """This machine, with `cpus` cores to use instead of all."""
    memory = memory_bytes()
    shared = shutil.disk_usage(shared_memory_parent()).free
    return Node(cpus=cpus or available_cpus(), gpus=len(visible_devices()), memory_bytes=memory,
                   budget_bytes=max(64 << 20, min(BUDGET_MAX, memory // 8, shared // 2)))


def available_cpus() -> float:
    """Cores that this process may use: its affinity, or the least that a control group of it may use of them;
    at least one."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota = limits().cpus
    return cores if quota is None else max(1.0, min(cores, quota))


def memory_bytes() -> int:
    """Main memory, or the limit of a control group if that is less."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        total = 8 << 30
    limit = limits().memory_bytes
    return total if limit is None else min(total, limit)


def visible_devices() -> list[str]:
    """NVIDIA devices that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [d.strip() for d in visible.split(",") if d.strip() not in ("", "-1", "NoDevFiles")]
    return sorted((d for p in Path("/dev").glob("nvidia*") if (d := p.name.removeprefix("nvidia")).isdigit()),
                  key=int)


def free_port() -> int:
    """A port that nobody on this machine listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.bind(("", 0))
        return one.getsockname()[1]
