"""What stages that cut recordings into records have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from curator import Context, Contract, Outputs, Stage
from curator.api.counts import Counts
from curator.api.findings import Finding, Line, Shown
from curator.api.format import duration
from curator.api.tasks import AudioBatch
from curator_audio.cut.children import MADE, OF_FILE, OF_SPEECH, account, check_lists, cut, type_moved, whole
from curator_audio.cut.spans import SPANS, as_lists
from curator_audio.sound.waves import mono_at

NONE = np.empty((0, 2), np.int64)
PREVIEW_RATE = 16_000  # Hz, at most
Found = tuple[np.ndarray, list]  # where to cut a recording, in samples [k, 2], and what is known of each piece


class Cutter(Stage):
    """Says for each recording where to cut it, in `pieces`; this makes records of them, or a list, and accounts for all of it.

    `mode`: `cut` or `list`. `shortest`: seconds; shorter pieces are dropped. `lists`: columns of spans that are moved into
    pieces. `reads`: which of them are read also where nothing is cut. `labels`: columns that `children` adds. `listed`: the column
    of `mode: list`. `without`: the reason for dropping a recording without a piece. `what`, `rest`: words for the funnel. `preview`:
    seconds of what is dropped that can be listened to.
    """

    listed: ClassVar[str]
    without: ClassVar[str]
    what: ClassVar[str]
    rest: ClassVar[str]
    version: ClassVar[int] = 2
    mode: str
    preview: float

    @property
    def shortest(self) -> float:
        raise NotImplementedError

    @property
    def lists(self) -> list[str]:
        raise NotImplementedError

    @property
    def reads(self) -> list[str]:
        raise NotImplementedError

    @property
    def labels(self) -> dict[str, pa.DataType | None]:
        return {}

    def pieces(self, batch: AudioBatch, payload: list, rates: list[int]) -> Iterator[Found]:
        """For each row; `payload`: samples or None, `rates`: 0 where there is none."""
        raise NotImplementedError

    def children(self, batch: AudioBatch, found: list[Found]) -> AudioBatch:
        """The pieces as records, with what is known of each; every row has one at least."""
        return cut(batch, [cuts for cuts, _ in found], self.lists)

    def contract(self) -> Contract:
        needs: dict[str, pa.DataType | None] = dict.fromkeys(("samples", *self.reads)) | {"sample_rate": pa.int32()}
        if self.mode == "list":
            return Contract(needs=needs, adds={self.listed: SPANS})
        adds = MADE | dict.fromkeys(self.lists) | (OF_SPEECH if "speech" in self.lists else {}) | self.labels
        return Contract(needs=needs | dict.fromkeys(self.lists) | {"start_s": pa.float64()}, adds=adds, removes={OF_FILE})

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        known = {name: columns[name] for name in self.lists if columns.get(name) is not None} if self.mode == "cut" else {}
        return super().columns_after(columns) | {name: type_moved(kind) for name, kind in known.items()}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        if self.mode == "cut":
            check_lists(f"audio.{self.name}", self.lists, columns)
        else:
            check_lists(f"audio.{self.name}", self.reads, {name: columns[name] for name in self.reads if name in columns})

    def reasons(self) -> tuple[str, ...]:
        return ("too_short", self.without) if self.mode == "cut" else ()

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        kept, short, left = (counts.extra.get(name, 0) / 1000 for name in ("kept_ms", "short_ms", "rest_ms"))
        if kept + short + left:
            yield Line(f"{duration(kept)} in {self.what}, {duration(left)} {self.rest}, {duration(short)} too short")

    def example_columns(self) -> Mapping[str, Shown]:
        return {"preview": "audio"} if self.mode == "cut" and self.preview else {}

    def setup(self, ctx: Context) -> None:
        from curator_audio.sound.encoders import encoded

        self._encoded = encoded

    def process(self, batch: AudioBatch) -> Iterator[Outputs]:
        rates = [rate or 0 for rate in batch.column("sample_rate")]
        payload = batch.samples or [None] * len(batch)
        totals = [(0 if samples is None else samples.shape[1], rate) for samples, rate in zip(payload, rates, strict=True)]
        found = list(self.pieces(batch, payload, rates))
        long = [cuts[:, 1] - cuts[:, 0] >= round(self.shortest * rate) for (cuts, _), rate in zip(found, rates, strict=True)]
        kept = [cuts[good] for (cuts, _), good in zip(found, long, strict=True)]
        counts = account(totals, kept, [cuts[~good] for (cuts, _), good in zip(found, long, strict=True)])
        if self.mode == "list":
            spans = [None if samples is None or not rate else cuts / rate
                     for samples, rate, cuts in zip(payload, rates, kept, strict=True)]
            yield Outputs(out=batch.with_columns({self.listed: as_lists(spans)}), counts=counts)
            return
        some = np.array([len(cuts) > 0 for cuts, _ in found], bool)
        if some.any():
            children = self.children(batch.filter(some), [one for one in found if len(one[0])])
            good = np.concatenate(long)
            ports = {"out": children.filter(good), "dropped": self._heard(children.filter(~good)).with_reason("too_short")}
            yield Outputs({port: rows for port, rows in ports.items() if len(rows)}, counts=counts)
        if not some.all():
            left = self._heard(self._whole(batch.filter(~some)))
            yield Outputs(dropped=left.with_reason(self.without), counts=None if some.any() else counts)

    def _heard(self, batch: AudioBatch) -> AudioBatch:
        """What is dropped, with the loudest seconds of each as a FLAC: no later stage encodes it."""
        if not self.preview:
            return batch
        rows = zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True)
        return batch.with_columns({"preview": pa.array([self._file(*row) for row in rows], pa.binary())})

    def _file(self, samples: np.ndarray | None, rate: int | None) -> bytes | None:
        if samples is None or not samples.shape[1] or not rate:
            return None
        wave = mono_at(loudest(samples, round(self.preview * rate), rate), rate, min(rate, PREVIEW_RATE))
        made = self._encoded(wave[None], min(rate, PREVIEW_RATE), "flac", 16, 0, 0.0)
        return made if isinstance(made, bytes) else None

    def _whole(self, batch: AudioBatch) -> AudioBatch:
        """Recordings without a piece, with the columns that pieces have."""
        made = whole(batch, self.lists)
        missing = {name: kind for name, kind in ({"parent": pa.string()} | self.labels).items() if name not in made.columns}
        return made.with_columns({name: pa.nulls(len(made), kind) for name, kind in missing.items()})


def loudest(samples: np.ndarray, length: int, rate: int) -> np.ndarray:
    """Of samples, [channels, n], those `length` that have most power, to a second; all where there are no more."""
    seconds = samples.shape[1] // rate
    if samples.shape[1] <= length or not seconds:
        return samples[:, :length]
    power = np.zeros(seconds + 1)
    for channel in samples[:, :seconds * rate]:
        power[1:] += np.square(channel.reshape(seconds, rate)).sum(axis=1, dtype=np.float64)
    total, width = np.cumsum(power), min(max(1, length // rate), seconds)
    start = int((total[width:] - total[:-width]).argmax()) * rate
    return samples[:, start:start + length]
