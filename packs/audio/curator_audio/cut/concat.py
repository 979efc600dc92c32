"""Longer utterances of short ones that follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from curator import Batch, Context, Contract, Outputs, Reduce, setting
from curator.api.counts import Counts
from curator.api.findings import Finding, Line
from curator.api.tasks import AudioBatch
from curator_audio.cut.children import OF_FILE, OF_SPEECH, check_lists, type_moved
from curator_audio.cut.joining import ALONE, PARTS, Join, alone, groups_of, made_of

GROUPS = 8  # that are joined at once: 45 MB of 30 s at 48 kHz


@dataclass(kw_only=True)
class Concat(Reduce):
    """Join neighbouring pieces of a recording up to a length, so that short utterances become long ones.

    A joined record is made of its pieces, which are absorbed: its `id` is that of the first one, `+` and how many others there are
    (`talk.wav#3+2`). `samples`, `duration`, `start_s`, `end_s` are those of the whole. Adds `parts` (list of `id`, `start`, `end`,
    `start_s`, `end_s`: where a piece lies in the record and in the source file, seconds), so that each can be traced to its
    samples, which are unchanged. Other columns keep the value that all the pieces have, and are null where they differ, so measure
    again. A piece without a neighbour passes as it is, with itself as its only part. `bytes` are taken away: encode behind this.

    Pieces are neighbours where the next begins within `max_gap` after the end of the last, of the same recording and source, with the same
    rate, channels and values of `same`. They are taken in order, as many as fit. Those that overlap are never joined.

    `key`: the column that says of which recording a record is a piece; null is of none.
    `max`: seconds of a joined record.
    `max_gap`: seconds. Where a rule took a piece away, its place is a gap like any other.
    `pause`: seconds of silence between two pieces; null for as long as it is in the file. It is digital silence, not the sound of
    the room.
    `same`: columns that must be equal, such as `speaker`.
    `text`: columns of text that are joined in order, with a space where the script has spaces.
    `also`: lists of spans or words that are moved and joined; with `speech` also `speech_seconds` and `speech_ratio`.
    `shards`: into how many parts the recordings are divided; a worker holds one in memory.

    All pieces are read before any is joined: what is before this stage is done first, and spooled with its samples (230 MB an
    hour at 16 kHz).

    Source: OWSM (Peng et al. 2023, arXiv 2309.13876) joins utterances up to 30 s, which is what Whisper hears.
    """

    key: str = "parent"
    max: float = 30.0
    max_gap: float = 2.0
    pause: float | None = None
    same: Sequence[str] = field(default_factory=list)
    text: Sequence[str] = field(default_factory=list)
    also: Sequence[str] = field(default_factory=list)
    shards: int = setting(default=256)

    def __post_init__(self) -> None:
        if self.max <= 0:
            raise ValueError(f"max must be above 0, got {self.max}")
        for name in ("max_gap", "pause"):
            if (value := getattr(self, name)) is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        for name in ("same", "text", "also"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is a list of columns, got the text {getattr(self, name)!r}: write [{getattr(self, name)}]")
        if twice := set(self.text) & (set(self.also) | set(self.same)) | set(self.also) & set(self.same):
            raise ValueError(f"{', '.join(sorted(twice))} stands in more than one of text, also and same")
        self.at_least(1, "shards")

    def contract(self) -> Contract:
        needs: dict[str, pa.DataType | None] = dict.fromkeys(("samples", self.key, *self.same, *self.also))
        needs |= {"sample_rate": pa.int32(), "start_s": pa.float64(), "end_s": pa.float64()} | dict.fromkeys(self.text, pa.string())
        adds: dict[str, pa.DataType | None] = {"samples": None, "duration": pa.float64(), "start_s": pa.float64(), "end_s": pa.float64()}
        adds |= {"parts": PARTS} | dict.fromkeys(self.text, pa.string()) | dict.fromkeys(self.also)
        return Contract(needs=needs, adds=adds | (OF_SPEECH if "speech" in self.also else {}), removes={OF_FILE})

    def columns_after(self, columns: Mapping[str, pa.DataType | None]) -> dict[str, pa.DataType | None]:
        known = {name: columns[name] for name in self.also if columns.get(name) is not None}
        return super().columns_after(columns) | {name: type_moved(kind) for name, kind in known.items()}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        check_lists("audio.concat", list(self.also), {name: kind for name, kind in columns.items() if name != "parts"})

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        if made := counts.extra.get("joined", 0):
            yield Line(f"{counts.extra['joined_parts']:,} pieces joined into {made:,}")

    def setup(self, ctx: Context) -> None:
        self._join = Join(pause=self.pause, text=tuple(self.text), also=tuple(self.also))
        self.clear()

    def clear(self) -> None:
        self._seen: list[AudioBatch] = []
        self._absorbed: frozenset[tuple[str, float, float]] = frozenset()

    def absorb(self, batch: Batch) -> None:
        self._seen.append(batch.as_type(AudioBatch))

    def finish(self) -> Iterator[Outputs]:
        """Records made of the pieces of this shard that have neighbours."""
        if not self._seen:
            return
        whole, self._seen = AudioBatch.concat(self._seen), []
        samples = list(whole.samples or [None] * len(whole))
        whole = whole.without([OF_FILE]).with_payloads(encoded=None, samples=samples)
        places = list(zip(*(whole.column(name) for name in ALONE), strict=True))
        equal = (self.key, "sample_rate", "source", *self.same)
        groups = groups_of(whole, places, equal, max_s=self.max, gap_s=self.max_gap, pause=self.pause)
        self._absorbed = frozenset(places[row] for group in groups for row in group)
        for first, stop in pairwise([*range(0, len(groups), GROUPS), len(groups)]):
            some = groups[first:stop]
            yield Outputs(out=made_of(whole, some, self._join), counts={"joined": len(some), "joined_parts": sum(map(len, some))})
            for group in some:
                for row in group:
                    samples[row] = None  # joined: not to be held twice

    def process(self, batch: AudioBatch) -> Outputs:
        gone = np.array([place in self._absorbed for place in zip(*(batch.column(name) for name in ALONE), strict=True)], bool)
        left = alone(batch.filter(~gone).without([OF_FILE]).with_payloads(encoded=None), self._join)
        return Outputs(out=left, absorbed=batch.filter(gone).select(())) if gone.any() else Outputs(out=left)
