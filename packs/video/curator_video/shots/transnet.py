"""Shots of films by a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from curator.api.counts import Counts
from curator.api.errors import ContractError
from curator.api.findings import Finding, Line, Summed
from curator.api.stage import Context, Contract, Outputs, Stage, setting
from curator.api.tasks import Batch
from curator.models.loading import MODEL_RESOURCES, MODELS, need_models, place_of
from curator_video.read.record import Films, Part, check_file, parts_of
from curator_video.shots.boundaries import BOUNDARIES, SHOTS, Boundary, joined, shots_of
from curator_video.shots.parts import WHOLE

FLOOR = 0.1  # boundaries with a lower probability are not kept
_GRADUAL = 3  # pictures in a row that are marked at a transition, and not at a cut


@dataclass(kw_only=True)
class Transnet(Stage):
    """Find where shots begin and end by TransNet V2, in place of `video.shots`: the network that NVIDIA and others split films by.

    Reads `bytes` (the file) or, where that is null or not there, `path`; of a record with `start_s` and `end_s` only that span.

    Adds `shots`, `shot_count` and `boundaries` as `video.shots` does, with cut and dissolve (any transition of 3 pictures and more)
    as kinds; `score` is the probability, down to 0.1. A cut lies behind the picture that the network marks.

    `model`: its weights, the state dict of the PyTorch version as `.safetensors` or `.pth`: a path, or `repository:file` on the
    Hugging Face hub. `threshold`: of the probability; NVIDIA's. With 0.5, which its authors took, some cuts are lost.

    It sees 48 x 27 pixels of every picture, at 50 pictures a second and core, 50 times slower than `video.shots`: for a GPU. Films that
    cannot be read leave on `failed`. `video.parts` is of no use before it.

    Known: dark films lose cuts; whip pans may be taken for cuts. Of a transition of hundreds of pictures only the middle is marked.

    Source: Soucek and Lokoc 2020, https://arxiv.org/abs/2008.04838; threshold: Cosmos (NVIDIA 2025, arXiv 2501.03575) and its code.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 1
    version = 3

    model: str
    threshold: float = 0.4
    storage_options: dict[str, Any] | None = setting(default=None)

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ValueError("model is empty; it names a file of weights: a path, or repository:file on the Hugging Face hub")
        if not FLOOR <= self.threshold < 1:
            raise ValueError(f"threshold is from {FLOOR} to below 1, got {self.threshold}")

    def contract(self) -> Contract:
        return Contract(adds={"shots": SHOTS, "boundaries": BOUNDARIES, "shot_count": pa.int32()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_file(columns)
        if not columns.keys().isdisjoint(WHOLE):
            raise ContractError("looks at whole films, or spans; leave video.parts out before video.transnet")

    def amounts(self) -> Mapping[str, Summed]:
        return {"duration": "seconds"}

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        if counts.extra.get("shots"):
            yield Line(f"{counts.extra['shots']:,} shots")

    def setup(self, ctx: Context) -> None:
        need_models()
        from curator_video.read.film import BadFilm
        from curator_video.shots import transnet_net

        self._bad, self._nets = BadFilm, transnet_net
        self._device = place_of(ctx).device
        self._net = transnet_net.loaded(self.model).to(self._device)
        self._windows = 1 if self._device.type == "cpu" else 16

    def process(self, batch: Batch) -> Outputs:
        found: list[tuple[list[Boundary], float, float]] = []
        wrong: list[str | None] = []
        with Films(self.storage_options) as films:
            for part in parts_of(batch):
                try:
                    found.append(self._found(films, part))
                    wrong.append(None)
                except self._bad as error:
                    wrong.append(str(error))
        good = [error is None for error in wrong]
        outputs = Outputs()
        if found or not len(batch):
            shots = [shots_of(boundaries, start, end, self.threshold) for boundaries, start, end in found]
            outputs["out"] = batch.filter(good).with_columns({
                "shots": pa.array(shots, SHOTS), "shot_count": pa.array([len(one) for one in shots], pa.int32()),
                "boundaries": pa.array([[vars(boundary) for boundary in one] for one, _, _ in found], BOUNDARIES)})
            outputs.counts = {"shots": sum(map(len, shots)), "boundaries": sum(len(joined(one, self.threshold)) for one, _, _ in found)}
        if not all(good):
            outputs["failed"] = batch.filter([not fine for fine in good]).with_error([error for error in wrong if error is not None])
        return outputs

    def _found(self, films: Films, part: Part) -> tuple[list[Boundary], float, float]:
        film = films.open(part)
        times: list[float] = []

        def pictures() -> Iterator[np.ndarray]:
            for time, frame in film.frames(part.begin, part.end):
                times.append(time + part.shift)
                yield film.upright(frame, (self._nets.WIDTH, self._nets.HEIGHT))

        pieces = list(self._nets.predicted(self._net, pictures(), self._device, self._windows))
        if not times:
            raise film.nothing(part.begin, part.end)
        end = times[-1] + (times[-1] - times[-2] if len(times) > 1 else 1 / float(film.rate))
        if part.end is not None:
            end = min(end, part.end + part.shift)
        return boundaries_of(np.concatenate(pieces), np.array([*times, end]), self.threshold), times[0], end


def boundaries_of(marked: np.ndarray, times: np.ndarray, threshold: float) -> list[Boundary]:
    """Boundaries by the probability of each picture [N]; `times` [N + 1] has the end, too.

    Runs above the threshold, and weaker ones that touch none of these.
    """
    made: list[Boundary] = []
    strong = _runs(marked > threshold)
    near = np.zeros(len(marked), bool)
    for first, stop in strong:
        near[max(0, first - 1):stop + 1] = True
    weak = [(first, stop) for first, stop in _runs(marked > FLOOR) if not near[first:stop].any()]
    for first, stop in sorted(strong + weak):
        if stop == len(marked) and stop - first < _GRADUAL:
            continue  # behind the last picture nothing is new
        score, end = float(marked[first:stop].max()), float(times[stop])
        if stop - first < _GRADUAL:
            made.append(Boundary(end, end, "cut", score))
        else:
            made.append(Boundary(float(times[first]), end, "dissolve", score))
    return made


def _runs(true: np.ndarray) -> list[tuple[int, int]]:
    """Where runs begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], true, [False]]).astype(np.int8)))
    return [(int(first), int(stop)) for first, stop in edges.reshape(-1, 2)]
