"""Captions written anew by a language model."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Contract, Outputs
from curator.models.chat import Reply
from curator.models.prompts import columns_of, filled
from curator.models.server import ServerStage
from curator_video.models.captions import judged, prompt_of


@dataclass(kw_only=True)
class Enhance(ServerStage):
    """Make one good text of the captions of a clip's windows, by a language model behind an OpenAI-compatible server.

    Adds `caption_enhanced` (string) and `caption_enhanced_finish_reason` (`stop`, `length`, `empty` or `loop`, as of
    `video.caption`). Both are null where the first column that the prompt names is. Nothing of the clip itself is read.

    `prompt`: one of the pack's (`enhance`), a file that ends in `.txt`, or the text. In it `{name}` stands for the column of that
    name, `{{` for a brace. `system`: a system message before it. `into`: the name of the column, and how the other's begins.
    The rest, and what becomes of questions without an answer: as of `video.caption_server`.
    """

    prompt: str = "enhance"
    system: str | None = None
    into: str = "caption_enhanced"
    max_tokens: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        self.want_texts("prompt", "into")
        self.prompt = prompt_of(self.prompt)
        if not columns_of(self.prompt):
            raise ValueError("prompt names no column, so that it would be the same for all: write {caption} in it")

    def contract(self) -> Contract:
        return Contract(needs=dict.fromkeys(columns_of(self.prompt)),
                        adds={self.into: pa.string(), f"{self.into}_finish_reason": pa.string()})

    def process(self, batch: Batch) -> Outputs:
        columns = {name: batch.column(name) for name in columns_of(self.prompt)}
        replies = self.each(self._write, zip(*columns.values(), strict=True))
        good = [row for row, reply in enumerate(replies) if not isinstance(reply, str)]
        bad = [row for row, reply in enumerate(replies) if isinstance(reply, str)]
        said = [replies[row] and judged(replies[row]) for row in good]
        outputs = Outputs(out=batch.take(good).with_columns({
            self.into: pa.array([one and (one.text or None) for one in said], pa.string()),
            f"{self.into}_finish_reason": pa.array([one and one.finish_reason for one in said], pa.string())}))
        if bad:
            outputs["failed"] = batch.take(bad).with_error([replies[row] for row in bad])
        return outputs

    def _write(self, *values: object) -> Reply | str | None:
        """The answer for a row, or why there is none. Called in a thread of the pool."""
        if values[0] is None:
            return None
        return self.ask(filled(self.prompt, dict(zip(columns_of(self.prompt), values, strict=True))), self.system)
