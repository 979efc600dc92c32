"""Which process of a worker this is."""

from __future__ import annotations

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a worker; an ordinary worker has one, a gang `size` of them.

    `gpus`: its devices, by their place in the node's list. `visible`: those that it sees: its own, and in a gang those of all
    ranks on its node, rank by rank, as with torchrun. `local_rank` and `local_size`: among the ranks of the same node.
    `address` and `port`: where rank 0 listens; its own port is 0, and it looks for one.
    """

    worker: int
    gpus: tuple[int, ...] = ()
    visible: tuple[int, ...] = ()
    gang: bool = False
    number: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    address: str = "127.0.0.1"
    port: int = 0

    def environment(self) -> dict[str, str]:
        """What torchrun sets, so that `torch.distributed.init_process_group()` needs no argument but the backend."""
        return {"RANK": str(self.number), "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(self.local_rank),
                "LOCAL_WORLD_SIZE": str(self.local_size), "MASTER_ADDR": self.address,
                "MASTER_PORT": str(self.port or _free_port())}


def _free_port() -> int:
    """A port that nobody on this machine listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.bind(("", 0))
        return one.getsockname()[1]
