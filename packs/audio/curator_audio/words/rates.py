"""How much is said a second, by a transcript and a duration: before anything is decoded."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.stage import Contract, Stage

COLUMNS = {"char_count": pa.int32(), "word_count": pa.int32(), "char_rate": pa.float32(), "word_rate": pa.float32(),
           "seconds_per_char": pa.float32()}


@dataclass(kw_only=True)
class Rates(Stage):
    """Count what a transcript says and how fast.

    Adds `char_count` (letters and digits of any script), `word_count` (pieces between white space that have one of them: of
    little use where a script has no spaces), `char_rate` and `word_rate` (a second), `seconds_per_char`. Null without a text; rates
    also without a duration above 0, and `seconds_per_char` without a character.

    Ordinary speech has 10 to 20 characters a second in alphabets, 3 to 8 in Chinese and Japanese. A transcript that is too fast has
    words that were not spoken, one that is too slow lacks some.

    `text`: the column with the transcript. `duration`: the column with the seconds, a manifest's or `audio.decode`'s.

    Source of the rules: Granary (arXiv:2505.13404) and NeMo's speech data processor, which drop by characters a second; Emilia
    (arXiv:2407.05361), which drops by seconds a character.
    """

    text: str = "text"
    duration: str = "duration"

    def contract(self) -> Contract:
        return Contract(needs={self.text: pa.string(), self.duration: None}, adds=COLUMNS)

    def process(self, batch: Batch) -> Batch:
        text = batch.rows.column(self.text).cast(pa.string())  # a reader that saw no text has no type for it
        seconds = batch.rows.column(self.duration).cast(pa.float64())
        seconds = pc.if_else(pc.greater(seconds, 0), seconds, None)
        characters = pc.utf8_length(pc.replace_substring_regex(text, r"[^\p{L}\p{N}]", ""))
        words = pc.count_substring_regex(text, r"\S*[\p{L}\p{N}]\S*")
        some = pc.if_else(pc.greater(characters, 0), characters, None)
        return batch.with_columns({
            "char_count": characters.cast(pa.int32()), "word_count": words.cast(pa.int32()),
            "char_rate": _ratio(characters, seconds), "word_rate": _ratio(words, seconds), "seconds_per_char": _ratio(seconds, some)})


def _ratio(top: pa.ChunkedArray, bottom: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(top.cast(pa.float64()), bottom.cast(pa.float64())).cast(pa.float32())
