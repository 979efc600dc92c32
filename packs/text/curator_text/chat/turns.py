"""The messages of conversations as records."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.stage import Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.pieces.children import COLUMNS

_OF_A_TURN = {"text": pa.string(), "role": pa.string(), "calls_tools": pa.string()}


@dataclass(kw_only=True)
class ChatTurns(Stage):
    """Make a record of each message, so that any stage for texts works on it; `text.join: {messages: true}` makes
    conversations of them again.

    A message has all columns of its conversation but `messages`, and `role`, `text` (the content), `calls_tools`
    (what it wants of tools, as JSON, where `text.chat: {tools: true}` kept that, else null), `id` (`chat#3`),
    `parent`, `piece` (0, 1, …) and `pieces`; `start` and `end` are null, for it stands in no text. A conversation
    without messages is dropped, reason `no_turns`.
    """

    column: str = "messages"

    sparse = ("calls_tools", "start", "end")

    def contract(self) -> Contract:
        return Contract(needs={self.column: None}, adds={**_OF_A_TURN, **COLUMNS},
                        removes=(self.column,))

    def process(self, batch: TextBatch) -> Outputs:
        chats = [chat or [] for chat in batch.column(self.column)]
        some = [bool(chat) for chat in chats]
        told = [(message["content"], message["role"], message.get("tool_calls"), number, len(chat))
                for chat in chats for number, message in enumerate(chat)]
        out = batch.filter(some).without([self.column]).explode([len(chat) for chat in chats if chat])
        types = {**_OF_A_TURN, "piece": pa.int32(), "pieces": pa.int32()}
        out = out.with_columns({name: pa.array([one[at] for one in told], kind)
                                for at, (name, kind) in enumerate(types.items())}
                               | {name: pa.nulls(len(out), pa.int64()) for name in ("start", "end")})
        outputs = Outputs(out=out)
        if not all(some):
            outputs["dropped"] = batch.filter([not one for one in some]).with_reason("no_turns")
        return outputs
