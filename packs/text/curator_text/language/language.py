"""The language of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator.api.stage import Context, Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.language.language_codes import VARIETIES, check_codes

SLICES = 4
_LATIN = "A-Za-zªµºÀ-ÖØ-öø-\u036fḀ-ỿ"
_LATIN_WORD = re.compile(f"[{_LATIN}]+")
# also vowel signs, which are no letters
_OTHER = re.compile("[\u0370-\u1dff\u1f00-\u1fff\u2071-\U0010ffff]+")
_OTHER_WORD = re.compile(rf"[^\W\d_{_LATIN}]+")
# kana, hangul: they say as much as two letters
_DENSE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u31f0-\u31ff\uac00-\ud7a3]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")  # as three


@dataclass(kw_only=True)
class Language(Stage):
    """Tell the language of a text, one of 132, with a model that needs no download.

    Adds `language` (ISO 639-1 code in lower case; 639-3 for a language that has none; `zxx` for what is no
    language, `und` where there is nothing to go by: an empty text, a number) and `language_score` (its
    probability, 0 to 1). Where Latin and other letters are mixed, each kind is told for itself and counts by
    its share of the text, so the score of a page that is half in English and half in Russian is about a half.
    Languages of one script are not told apart so: such a text mostly has the one that most of it is in, and
    often a high score all the same.

    `column`: the text. `keep`: rows in other languages leave on `dropped`, reason `language`; None keeps all.
    `score_min`: rows with a lower score leave on `dropped`, reason `language_uncertain`. `varieties`: tell
    Moroccan from Standard Arabic, Cantonese from Mandarin and so on (139 in all, often confused); otherwise
    they share a code. `max_chars`: characters looked at, from four places of the text; 1,000 take half the
    time of the default.

    Source: py3langid (Lui and Baldwin 2012, https://aclanthology.org/P12-3005/).
    Known difference: the library takes a text as one, and there a third of Cyrillic or Arabic outweighs the
    rest in English, as these letters are bytes that no English n-gram has.
    """

    version = 2
    keep: list[str] | None = None
    score_min: float = 0.0
    column: str = "text"
    varieties: bool = False
    max_chars: int = 4000

    def __post_init__(self) -> None:
        if self.keep == []:
            raise ValueError("keep names no language, so that nothing would be kept; leave it out to keep "
                             "all")
        check_codes(self.keep or [], "keep", varieties=self.varieties)
        if not 0 <= self.score_min <= 1:
            raise ValueError(f"score_min is a probability, 0 to 1, got {self.score_min}")
        if self.max_chars < SLICES:
            raise ValueError(f"max_chars must be {SLICES} or more, got {self.max_chars}")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()},
                        adds={"language": pa.string(), "language_score": pa.float32()})

    def setup(self, ctx: Context) -> None:
        from curator_text.language.language_model import LanguageModel

        self._model = LanguageModel(merge=None if self.varieties else VARIETIES)

    def process(self, batch: TextBatch) -> Outputs:
        codes, scores = self._told([by_script(sample(text or "", self.max_chars))
                                    for text in batch.column(self.column)])
        batch = batch.with_columns({"language": pa.array(codes, pa.string()),
                                    "language_score": pa.array(scores, pa.float32())})
        reasons = np.full(len(batch), "", object)
        reasons[scores < self.score_min] = "language_uncertain"
        if self.keep is not None:
            reasons[[code not in self.keep for code in codes]] = "language"
        outputs = Outputs(out=batch.filter(reasons == ""))
        dropped = reasons != ""
        if dropped.any():
            outputs["dropped"] = batch.filter(dropped).with_reason(list(reasons[dropped]))
        return outputs

    def _told(self, texts: Sequence[list[tuple[str, float]]]) -> tuple[list[str], np.ndarray]:
        """The language with the most weight in the parts of each text, and that weight."""
        found = zip(*self._model.identify([part for parts in texts for part, _ in parts]), strict=True)
        codes, scores = [], np.zeros(len(texts), np.float32)
        for at, parts in enumerate(texts):
            weights: dict[str, float] = {}
            for (_, share), (code, probability) in zip(parts, found, strict=False):
                weights[code] = weights.get(code, 0.0) + share * float(probability)
            codes.append(max(weights, key=weights.__getitem__))
            scores[at] = weights[codes[-1]]
        return codes, scores


def weight(text: str) -> int:
    """How much a text says, in letters: one of a script that says more with each counts as two or three."""
    return len(text) + len(_DENSE.findall(text)) + 2 * len(_HAN.findall(text))


def by_script(text: str) -> list[tuple[str, float]]:
    """The text without its Latin and without its other letters, each with its share of the text; the text if
    it has one kind."""
    if text.isascii():
        return [(text, 1.0)]
    others = "".join(_OTHER_WORD.findall(text))
    latin = sum(map(len, _LATIN_WORD.findall(text))) if others else 0
    if not latin:
        return [(text, 1.0)]
    other = weight(others)
    share = other / (other + latin)
    return [(_LATIN_WORD.sub(" ", text), share), (_OTHER.sub(" ", text), 1 - share)]


def sample(text: str, max_chars: int) -> str:
    """Four slices from the beginning to the end of a text; all of it if it is short."""
    if len(text) <= max_chars:
        return text
    size = max_chars // SLICES
    step = (len(text) - size) / (SLICES - 1)
    starts = [round(i * step) for i in range(SLICES)]
    return " ".join(text[start:start + size] for start in starts)
