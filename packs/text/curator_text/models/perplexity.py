"""How likely a language model finds a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from curator.api.resources import Resources
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator.models.loading import MODEL_RESOURCES, MODELS, fetch, need_models
from curator.models.vectors import present
from curator_text.models.ngram.reader import NgramReader, is_ngram_file

Ask = Callable[[list[str]], tuple[np.ndarray, np.ndarray]]  # see `NgramReader`


@dataclass(kw_only=True)
class Perplexity(Stage):
    """Ask a language model how likely a text is: one of n-grams, or a causal one of transformers.

    Adds `perplexity` (float64): one divided by the geometric mean of the probabilities of a text's tokens,
    each given those before it. Low for what the model knows by heart or finds easy, high for broken text.
    Null where there is no text, or nothing to ask about in it: no word for n-grams, none but a single token
    for a causal model.

    `model`: a file of n-grams, `.arpa` (or `.arpa.gz`) or one of KenLM's (`.bin`, `.binary`, `.klm`), as a
    path or `repository:file` on the hub (`edugp/kenlm:wikipedia/en.arpa.bin`); or a causal model, as hub id,
    `id@revision` or folder. `max_chars`: so many characters of a text are looked at; null: all.

    N-grams: `pieces` is the sentencepiece model that cuts texts into the words of the model
    (`edugp/kenlm:wikipedia/en.sp.model`); null: they are cut at spaces. `normalize: ccnet` writes texts in
    lower case, without accents, digits as 0, as CCNet and those who use its models do. `lines`: each line is
    a sentence with a beginning and an end; false: the text is one. The ends of sentences are counted as
    tokens, as in CCNet and KenLM; empty lines are not.

    Causal models: texts that are longer than the model takes are read in windows that overlap by `stride`
    tokens, so that no token lacks those before it; `max_tokens` makes the windows shorter. The text begins
    with the model's mark for that, or where it has none for the end of a text.

    Known difference: CCNet takes a text apart as a whole, so that its lines are glued together: `lines:
    false` does as it does. It rounds to one decimal. Of KenLM's files all types are read but probing with
    rest costs; with `pip install 'curator-text[kenlm]'` its library reads them, at twice the speed. Source:
    Heafield 2011 (KenLM); Wenzek et al. 2020, arXiv 1911.00359 (CCNet), section 4.3.
    """

    resources = MODEL_RESOURCES
    requires = MODELS
    batch_size = 64

    model: str
    column: str = "text"
    into: str = "perplexity"
    pieces: str | None = None
    normalize: Literal["ccnet"] | None = None
    lines: bool = True
    stride: int = 256
    max_tokens: int | None = 1024
    max_chars: int | None = None

    def __post_init__(self) -> None:
        self._ngrams = is_ngram_file(self.model)
        if self._ngrams:
            self.resources, self.requires = Resources(cpus=1), {}
            self.batch_size = 512
        elif self.pieces is not None or self.normalize is not None or not self.lines:
            raise ValueError(f"pieces, normalize and lines are for files of n-grams (.arpa, .bin), and "
                             f"{self.model!r} is none")
        if self.normalize not in (None, "ccnet"):
            raise ValueError(f"normalize must be ccnet or null, got {self.normalize!r}")
        self.at_least(1, "stride")
        self.at_least(2, "max_tokens")
        self.at_least(1, "max_chars")

    def contract(self) -> Contract:
        return Contract(needs={self.column: pa.string()}, adds={self.into: pa.float64()})

    def setup_node(self, ctx: Context) -> None:
        for file in (self.model, self.pieces) if self._ngrams else ():
            if file is not None:
                fetch(file)

    def setup(self, ctx: Context) -> None:
        if self._ngrams:
            self._ask: Ask = NgramReader(self.model, self.pieces, self.normalize == "ccnet", self.lines)
            return
        need_models()
        from curator_text.models.encoders import LanguageModelReader

        reader = LanguageModelReader(self.model, ctx, self.max_tokens)
        self._ask = lambda texts: reader(texts, self.stride)

    def process(self, batch: TextBatch) -> TextBatch:
        texts = batch.column(self.column)
        at = present(texts)
        told, absent = np.zeros(len(batch)), np.ones(len(batch), bool)
        if len(at):
            sums, counts = self._ask([texts[row][:self.max_chars] for row in at])
            there = counts > 0
            told[at[there]] = np.exp(-sums[there] / counts[there])
            absent[at[there]] = False
        return batch.with_columns({self.into: pa.array(told, pa.float64(), mask=absent)})
