"""Word and character error rates of one transcript against another."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Context, Contract, Stage
from curator_audio.words.normalize import Normalize, check_kind, normalizer

COLUMNS = {"wer": pa.float32(), "cer": pa.float32(), "wer_errors": pa.int32(), "wer_substitutions": pa.int32(),
           "wer_deletions": pa.int32(), "wer_insertions": pa.int32(), "word_match_rate": pa.float32(), "max_wrong_run": pa.int32(),
           "edge_cer_start": pa.float32(), "edge_cer_end": pa.float32(), "written_wer": pa.float32()}


@dataclass(kw_only=True)
class Wer(Stage):
    """Compare two transcripts of a recording, such as a given one with what a model heard.

    Adds `wer` (wrong words by the reference's words; may exceed 1), `cer` (characters, spaces included), `wer_errors` and its parts
    `wer_substitutions`, `wer_deletions`, `wer_insertions` (int32), `word_match_rate` (share of the reference's words that are there),
    `max_wrong_run` (most words wrong one after the other), `edge_cer_start`, `edge_cer_end` (character errors of the first and last
    `edge` characters: an utterance cut too early or too late), `written_wer` (words as they are written, with case and
    punctuation). Chinese, Japanese, Thai, Lao, Khmer and Burmese are compared by characters. Null where a text is missing; the rates
    where the reference is empty and the hypothesis is not (both empty: 0).

    `reference`, `hypothesis`: the columns with the texts. `normalize`: what is compared: `basic` (no case, no punctuation), `none`,
    or Whisper's normalisers `whisper` and `whisper_en` (of `curator-audio[models]`), which also know contractions and numbers.
    `fillers`: words that do not count (GigaSpeech leaves out `uh`, `um` and others).

    Known differences: numbers in digits and in words differ unless `whisper_en` makes them equal.

    Source: Levenshtein 1966; edges: NVIDIA's speech data processor. Thresholds in use: 0.10 (Distil-Whisper), 0.04 (GigaSpeech XL).
    """

    reference: str = "text"
    hypothesis: str = "pred_text"
    normalize: Normalize = "basic"
    edge: int = 12
    fillers: list[str] | None = None

    def __post_init__(self) -> None:
        check_kind(self.normalize)
        if self.edge < 1:
            raise ValueError(f"edge is the characters at each end, 1 or more, got {self.edge}")
        if self.reference == self.hypothesis:
            raise ValueError(f"reference and hypothesis are both {self.reference!r}: a transcript compared with itself has no errors")

    def contract(self) -> Contract:
        return Contract(needs={self.reference: pa.string(), self.hypothesis: pa.string()}, adds=COLUMNS)

    def setup(self, ctx: Context) -> None:
        from curator_audio.words.compare import compare

        self._compare = compare
        self._same = normalizer(self.normalize, self.fillers or ())

    def process(self, batch: Batch) -> Batch:
        pairs = zip(batch.column(self.reference), batch.column(self.hypothesis), strict=True)
        found = [self._row(reference, hypothesis) for reference, hypothesis in pairs]
        columns = zip(*found, strict=True) if found else [[]] * len(COLUMNS)
        return batch.with_columns({name: pa.array(values, kind)
                                   for (name, kind), values in zip(COLUMNS.items(), columns, strict=True)})

    def _row(self, reference: str | None, hypothesis: str | None) -> tuple:
        if reference is None or hypothesis is None:
            return (None,) * len(COLUMNS)
        e = self._compare(self._same(reference), self._same(hypothesis), self.edge)
        return (e.wer, e.cer, e.words_wrong, e.substitutions, e.deletions, e.insertions, e.match_rate, e.longest_run,
                e.edge_start, e.edge_end, self._compare(reference, hypothesis, self.edge).wer)
