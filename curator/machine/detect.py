"""What this machine has for workers: cores, GPUs, memory; the limits of containers and batch systems
count."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from curator.api.resources import Node
from curator.machine.cgroups import limits
from curator.machine.folders import shared_memory_parent

BUDGET_MAX = 8 << 30  # bytes on their way between workers; more does not make a run faster


def this_machine(cpus: float | None = None) -> Node:
    """This machine, with `cpus` cores to use instead of all."""
    memory, devices = memory_bytes(), visible_devices()
    shared = shutil.disk_usage(shared_memory_parent()).free
    return Node(cpus=cpus or available_cpus(), gpus=len(devices), gpu_memory_gb=gpu_memory_gb(devices),
                memory_bytes=memory, budget_bytes=max(64 << 20, min(BUDGET_MAX, memory // 8, shared // 2)))


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


def gpu_memory_gb(devices: Sequence[str]) -> float:
    """Memory of the smallest of these devices, 1e9 bytes; 0 without one, or where the driver does not say."""
    if not devices:
        return 0.0
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0.0
    if nvml.nvmlInit_v2():
        return 0.0
    told = [_memory_of(nvml, device) for device in devices]
    nvml.nvmlShutdown()
    return min(told) / 1e9


def _memory_of(nvml: ctypes.CDLL, device: str) -> int:
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # the whole, free, in use
    if device.isdigit():
        failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(device)), ctypes.byref(handle))
    else:
        failed = nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle))
    return 0 if failed or nvml.nvmlDeviceGetMemoryInfo(handle, memory) else memory[0]


def free_port() -> int:
    """A port that nobody on this machine listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.bind(("", 0))
        return one.getsockname()[1]
