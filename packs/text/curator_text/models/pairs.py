"""Models that read a text and a sentence about it. Imported in workers only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from curator.api.errors import CuratorError
from curator.api.stage import Context
from curator.models.vectors import finite
from curator_text.models.encoders import Reader


class Entailment(Reader):
    """A classifier of transformers that was trained to tell whether a sentence follows from a text."""

    def __init__(self, model: str, ctx: Context, max_tokens: int | None) -> None:
        super().__init__("AutoModelForSequenceClassification", model, ctx, max_tokens)
        names = [self.model.config.id2label[k].lower() for k in range(self.model.config.num_labels)]
        follows = [k for k, name in enumerate(names) if name.startswith("entail")]
        if len(follows) != 1 or len(names) < 2:
            raise CuratorError(f"{model!r} does not tell whether a sentence follows from a text: its classes "
                               f"are {', '.join(names[:10])}, and one should be called entailment")
        self._follows = follows[0]
        others = [k for k, name in enumerate(names) if k != self._follows and not name.startswith("neutral")]
        self._not = others[0] if others else 1 - self._follows
        self._others = set(self.tokenizer.model_input_names) - {"input_ids", "attention_mask"}

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], sentences: Sequence[str]) -> np.ndarray:
        """float32 [texts, sentences, 2]: the logits of each sentence not to follow, and to follow."""
        firsts = [text for text in texts for _ in sentences]
        try:
            found = self.tokenizer(firsts, [*sentences] * len(texts), truncation="only_first",
                                   max_length=self.length, verbose=False)
        except Exception as error:  # the library raises nothing narrower where a sentence alone is too long
            raise CuratorError(f"labels and template do not fit into the {self.length} tokens that "
                               f"{self.name!r} takes: {error}") from error
        if max(map(len, found["input_ids"])) > self.length:
            raise CuratorError(f"labels and template do not fit into the {self.length} tokens that "
                               f"{self.name!r} takes")
        told = np.zeros((len(firsts), 2), np.float32)
        others = {name: found[name] for name in self._others}
        for rows, inputs in self.batches(found["input_ids"], **others):
            told[rows] = finite(self.model(**inputs).logits[:, [self._not, self._follows]], self.name)
        return told.reshape(len(texts), len(sentences), 2)
