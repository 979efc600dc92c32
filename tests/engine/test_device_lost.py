"""A GPU that an error has broken for its process: the worker ends, another one goes on, and only the row that did it fails.

Where there is no GPU, what torch says of one is played.
"""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from curator import Stage
from curator.api.resources import Resources
from curator.engine.protocol import Call, Failed
from curator.machine.detect import visible_devices
from curator.worker.device import DeviceLost
from tests.engine.small_stages import kept_aside, lines, sink_in, write_lines, written
from tests.engine.test_worker import runner, texts


class Broken(RuntimeError):
    """As torch raises it, from then on at every call."""


class PlayedGPU:
    def __init__(self) -> None:
        self.broken = False

    def is_initialized(self) -> bool:
        return True

    def synchronize(self) -> None:
        if self.broken:
            raise Broken("CUDA error: device-side assert triggered")


@dataclass(kw_only=True)
class OnPlayedGPU(Stage):
    """A text with "hurt" breaks the device; after that nothing goes well."""

    def setup(self, ctx) -> None:
        sys.modules["torch"] = SimpleNamespace(cuda=PlayedGPU())

    def process(self, batch):
        gpu = sys.modules["torch"].cuda
        gpu.broken |= any("hurt" in text for text in batch.column("text"))
        gpu.synchronize()
        return batch


@dataclass(kw_only=True)
class OnGPU(Stage):
    """Looks each text's number up in a table on the device; "hurt" stands for a number that the table does not have."""

    resources = Resources(gpus=1)

    def setup(self, ctx) -> None:
        import torch

        self.torch, self.table = torch, torch.arange(1000, device="cuda")

    def process(self, batch):
        numbers = [10**6 if "hurt" in text else len(text) for text in batch.column("text")]
        found = self.table[self.torch.tensor(numbers, device="cuda")].cpu()
        return batch.with_columns({"found": found.tolist()})


@pytest.mark.parametrize("stage", [OnPlayedGPU, pytest.param(OnGPU, marks=pytest.mark.gpu)])
def test_the_row_that_breaks_a_device_fails_and_no_other(tmp_path, stage):
    if stage is OnGPU and not visible_devices():
        pytest.skip("there is no GPU")
    folder = write_lines(tmp_path / "in", a=[f"line {i}" for i in range(20)], b=["x", "hurt", "y"])
    made = (lines(folder) >> stage() >> sink_in(tmp_path)).named("x", max_failed=1)
    result = made.run(workers=2)
    assert (result.records["written"], result.records["failed"]) == (22, 1)
    assert {row["text"] for row in written(tmp_path / "out")} == {"x", "y", *(f"line {i}" for i in range(20))}
    (failed,) = kept_aside(tmp_path / "out", "failed")
    assert failed["text"] == "hurt"
    assert "device-side assert" in failed["error"]


def test_a_call_of_a_worker_whose_device_is_lost_has_no_answer(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    made = runner(OnPlayedGPU())
    with pytest.raises(DeviceLost, match="device-side assert"):
        list(made.run(Call(1, 0, "process", (texts("hurt"),), ((0, 0),))))


def test_an_error_that_leaves_the_device_whole_is_the_stages_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=PlayedGPU()))

    @dataclass(kw_only=True)
    class Raises(Stage):
        def process(self, batch):
            raise Broken("CUDA error: invalid argument")

    *_, last = runner(Raises()).run(Call(1, 0, "process", (texts("a", "b"),), ((0, 0),)))
    assert not isinstance(last, Failed)
    assert last.counts[0][0].failed == 2
