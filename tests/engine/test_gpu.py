"""What only a machine with a GPU can show: `pytest -m gpu`. Left out where there is none."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from curator import Stage
from curator.api.resources import Resources
from curator.machine.detect import this_machine, visible_devices
from tests.engine.small_stages import lines, sink_in, write_lines, written

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not visible_devices(), reason="there is no GPU")]


@dataclass(kw_only=True)
class Fills(Stage):
    """Takes `gb` of its device's memory for each row while it works on them."""

    gb: float

    def process(self, batch):
        import torch

        taken = torch.zeros(int(len(batch) * self.gb * 1e9), dtype=torch.uint8, device="cuda")
        return batch.with_columns({"found": [int(taken[-1])] * len(batch)})


@dataclass(kw_only=True)
class Signs(Stage):
    """Leaves a file named after its process once it has worked on its device; slow enough that others are worth it."""

    resources = Resources(gpus=0.25)
    told: str

    def setup(self, ctx) -> None:
        import torch

        assert ctx.gpus == (0,)
        self.number = torch.ones(1, device="cuda")

    def process(self, batch):
        time.sleep(0.1)
        Path(self.told, f"{os.getpid()}-{int(self.number.item())}").touch()
        return batch


def test_the_machine_knows_its_devices_and_their_memory():
    import torch

    machine = this_machine()
    assert machine.gpus == torch.cuda.device_count()
    smallest = min(torch.cuda.get_device_properties(n).total_memory for n in range(machine.gpus)) / 1e9
    assert machine.gpu_memory_gb == pytest.approx(smallest, rel=0.05)


def test_a_batch_that_does_not_fit_on_the_device_is_halved_and_nothing_is_lost(tmp_path):
    folder = write_lines(tmp_path / "in", a=[f"line {i}" for i in range(64)])
    stage = Fills(gb=this_machine().gpu_memory_gb / 10).with_(resources=Resources(gpus=1), batch_size=64)
    result = (lines(folder) >> stage >> sink_in(tmp_path)).run(workers=2)
    assert result.records["written"] == 64
    memory = next(s for s in result.stats["stages"] if s["name"] == "fills")["memory"]
    assert memory["rows_max"] in (4, 8)


def test_four_workers_share_a_device(tmp_path):
    folder = write_lines(tmp_path / "in", **{f"f{n}": [f"{n} {i}" for i in range(80)] for n in range(16)})
    told = tmp_path / "told"
    told.mkdir()
    result = (lines(folder) >> Signs(told=str(told)).with_(batch_size=2) >> sink_in(tmp_path)).run()
    assert result.ok
    assert len(written(tmp_path / "out")) == 1280
    assert len(list(told.iterdir())) == 4
