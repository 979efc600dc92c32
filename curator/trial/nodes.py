"""Machines that are not here, in words: `8x(64cpu,8gpu)`."""

from __future__ import annotations

import re

from curator.api.errors import CuratorError
from curator.api.resources import Node
from curator.machine.detect import BUDGET_MAX

FORM = "write COUNTx(CORES cpu, DEVICES gpu, GIGABYTES gb), such as 8x(64cpu,8gpu,512gb), and + between kinds"
GB_PER_CORE = 4  # where nothing is said, as clouds have it


def parse_nodes(text: str) -> dict[int, Node]:
    """The nodes of a cluster by number: `8x(64cpu,8gpu)`, `16cpu`, `2x(32cpu,256gb)+1x(8cpu,1gpu)`.

    Raises:
        CuratorError: it is not written so.
    """
    nodes: list[Node] = []
    for kind in re.sub(r"\s", "", text.lower()).split("+"):
        found = re.fullmatch(r"(?:(\d+)x)?\(?((?:\d+(?:cpus?|gpus?|gb),?)+)\)?", kind)
        has = {unit.rstrip("s"): int(number) for number, unit in re.findall(r"(\d+)(cpus?|gpus?|gb)", kind)}
        if found is None or not has.get("cpu"):
            raise CuratorError(f"--nodes {text!r}: {kind!r} is no kind of node; {FORM}")
        memory = has.get("gb", GB_PER_CORE * has["cpu"]) << 30
        node = Node(cpus=float(has["cpu"]), gpus=has.get("gpu", 0), memory_bytes=memory,
                    budget_bytes=max(64 << 20, min(BUDGET_MAX, memory // 8)))
        nodes += [node] * int(found[1] or 1)
    if not nodes:
        raise CuratorError(f"--nodes {text!r}: there is no node in it; {FORM}")
    return dict(enumerate(nodes))
