"""Utterances out of long recordings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.tasks import AudioBatch
from curator_audio.cut.children import times_of
from curator_audio.cut.cutter import NONE, Cutter, Found
from curator_audio.cut.pieces import Limits, pieces
from curator_audio.sound.waves import quietest_in

BY = ("speech", "turns", "words", "windows")


@dataclass(kw_only=True)
class Segment(Cutter):
    """Cut recordings into utterances at pauses; every second of them is in one, too short to be one, or silence.

    With `mode: cut` each utterance is a record, `id` of the recording and `#k`, with its own `samples`, `duration`, `start_s`,
    `end_s` (seconds in the source file, to the sample) and `parent`; other columns are those of the recording, so measure again.
    What is shorter than `min` leaves on `dropped` with the reason `too_short`, with its samples; a recording without a span
    with `no_speech`. `bytes`, those of the file, are taken away. With `mode: list` recordings stay whole and get the column
    `segments` (list of `start` and `end`, seconds from their first sample).

    Spans with pauses of up to `merge_gap` between them are one piece. One that is longer than `max` is cut at the longest of
    its pauses that leave no part below `min`, else at the longest of all; where there is no pause, at the quietest place.

    `by`: the column of spans. `speech` of `audio.vad`; `turns`, where a piece has one `speaker` (a column that is added); `words`,
    which are never cut through; or `windows`, which are cut as they are.
    `min`, `max`: seconds of a piece.
    `merge_gap`: seconds.
    `pad`: seconds of what is around that a piece gets at both ends, no further than half of the pause. So pieces overlap only
    where turns or windows do.
    `mode`: `cut` or `list`.
    `also`: other lists of spans, of which each piece gets its part.
    `preview`: seconds, the loudest, of what is dropped that are kept as FLAC in the column `preview`, to be listened to in the
    report; 0 for none.
    `text`: a column that gets the words of each piece with spaces between them, in place of the text of the whole recording. For
    `by: words`.

    Known: a pause is what the spans leave free; where WebRTC hears speech through music there is none, and the quietest place
    may lie in a word. A word cut by the part limit of `audio.decode` stays cut.

    Source: Emilia (He et al. 2024, arXiv 2407.05361): `max` and `merge_gap`; it takes pieces of 3 s or more.
    """

    by: Literal["speech", "turns", "words", "windows"] = "speech"
    min: float = 2.0
    max: float = 30.0
    merge_gap: float = 2.0
    pad: float = 0.1
    mode: Literal["cut", "list"] = "cut"
    also: Sequence[str] = field(default_factory=list)
    preview: float = 10.0
    text: str | None = None

    listed, without, what, rest = "segments", "no_speech", "segments", "without speech"

    def __post_init__(self) -> None:
        if self.by not in BY:
            raise ValueError(f"by is one of {', '.join(BY)}, got {self.by!r}")
        if self.mode not in ("cut", "list"):
            raise ValueError(f"mode is cut or list, got {self.mode!r}")
        self.at_least(0, "preview", "min", "merge_gap", "pad")
        if self.max < 2 * self.min or self.max <= 0:
            raise ValueError(f"max must be above 0 and at least twice min, so that what is too long can be cut into pieces that are "
                             f"not too short; got {self.max} and min {self.min}")
        if self.text and (self.by != "words" or self.mode != "cut"):
            raise ValueError(f"text joins the words of each piece: it needs by: words and mode: cut, got {self.by} and {self.mode}")

    @property
    def shortest(self) -> float:
        return self.min

    @property
    def reads(self) -> list[str]:
        return [self.by]

    @property
    def lists(self) -> list[str]:
        return list(dict.fromkeys([self.by, *self.also]))

    @property
    def labels(self) -> dict[str, pa.DataType | None]:
        return {"speaker": pa.string()} if self.by == "turns" else {self.text: pa.string()} if self.text else {}

    def pieces(self, batch: AudioBatch, payload: list, rates: list[int]) -> Iterator[Found]:
        column = batch.rows.column(self.by)
        for row, (samples, rate) in enumerate(zip(payload, rates, strict=True)):
            spans = column[row].values if samples is not None and rate and column[row].is_valid else None
            if spans is None:
                yield NONE, []
                continue
            cuts, who, names = spans_of(spans, rate, samples.shape[1])
            if self.by != "windows":
                limits = Limits(*(round(seconds * rate) for seconds in (self.min, self.max, self.merge_gap, self.pad)))
                cuts, who = pieces(cuts, who, limits, samples.shape[1], quietest_in(samples, rate))
            yield cuts, [names[one] for one in who]

    def children(self, batch: AudioBatch, found: list[Found]) -> AudioBatch:
        made = super().children(batch, found)
        if self.by == "turns":
            return made.with_columns({"speaker": pa.array([who for _, names in found for who in names], pa.string())})
        if self.text:
            texts = [None if words is None else " ".join(word["word"] for word in words if word["word"])
                     for words in made.column("words")]
            return made.with_columns({self.text: pa.array(texts, pa.string())})
        return made


def spans_of(spans: pa.StructArray, rate: int, total: int) -> tuple[np.ndarray, np.ndarray, list[str | None]]:
    """Spans in samples, int [k, 2], in order of their beginnings, for each the number of its speaker, and the speakers' names."""
    samples = np.rint(np.column_stack(times_of(spans)) * rate).clip(0, total).astype(np.int64)
    order = np.lexsort((samples[:, 1], samples[:, 0]))
    order = order[samples[order, 0] < samples[order, 1]]
    if spans.type.get_field_index("speaker") < 0:
        return samples[order], np.zeros(len(order), np.int64), [None]
    coded = spans.field("speaker").take(pa.array(order)).dictionary_encode(null_encoding="encode")
    return samples[order], coded.indices.to_numpy(), coded.dictionary.to_pylist()
