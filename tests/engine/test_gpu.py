"""What only a machine with a GPU can show: `pytest -m gpu`. Left out where there is none."""

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
class Meets(Stage):
    """Answers when `workers` processes are set up on a device, which they share."""

    resources = Resources(gpus=0.25)
    told: str
    workers: int

    def setup(self, ctx) -> None:
        import os
        import time

        import torch

        assert ctx.gpus == (0,)
        torch.zeros(1, device="cuda")
        Path(self.told, str(os.getpid())).touch()
        while len(list(Path(self.told).iterdir())) < self.workers:
            time.sleep(0.05)

    def process(self, batch):
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
    folder = write_lines(tmp_path / "in", **{f"f{n}": [f"{n} {i}" for i in range(50)] for n in range(8)})
    told = tmp_path / "told"
    told.mkdir()
    result = (lines(folder) >> Meets(told=str(told), workers=4).with_(batch_size=1) >> sink_in(tmp_path)).run(workers=4)
    assert result.ok
    assert len(written(tmp_path / "out")) == 400
    assert len(list(told.iterdir())) == 4
