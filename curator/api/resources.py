"""What one worker of a stage occupies while it works, and what a node has for workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The share of a machine that one worker needs.

    `cpus` may be a fraction for stages that wait (downloads) and 0 for none. `gpus` below 1 shares a
    device; above 1 it is one worker on several devices of one node, or, with `gang`, one rank a device
    over several nodes. `gpu_memory_gb` and `memory_gb` are gigabytes (1e9 bytes) of device and main memory.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    gpu_memory_gb: float = 0.0
    memory_gb: float = 0.0
    gang: bool = False

    def __post_init__(self) -> None:
        for name in ("cpus", "gpus", "gpu_memory_gb", "memory_gb"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise ValueError(f"Resources.{name} must be a number of 0 or more, got {value!r}")
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"Resources.gpus above 1 must be whole, got {self.gpus}")
        if self.gang and self.gpus < 1 and self.cpus < 1:
            raise ValueError("a gang needs at least one GPU or CPU")

    @property
    def ranks(self) -> int:
        """Processes of one worker: in a gang one a device, or one a core where it needs no device; else 1."""
        return int(self.gpus or self.cpus) if self.gang else 1


@dataclass(frozen=True, kw_only=True)
class Node:
    """What workers may use of one machine.

    `cpus`: cores, lent to workers call by call. `gpus`: devices, numbered from 0. `gpu_memory_gb`: of each
    device, 0 if not known. `memory_bytes`: main memory. `budget_bytes`: of batches that may lie here on their
    way between workers.
    """

    name: str = ""
    cpus: float = 1.0
    gpus: int = 0
    gpu_memory_gb: float = 0.0
    memory_bytes: int = 8 << 30
    budget_bytes: int = 1 << 30


class Place(NamedTuple):
    """Where a worker, or one rank of a gang, lives: the node's number in the run, and its devices there."""

    node: int = 0
    gpus: tuple[int, ...] = ()
