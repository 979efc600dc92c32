"""Conversations of the usual layouts in one column, and what is wrong with them in others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from curator.api.stage import Contract, Outputs, Stage
from curator.api.tasks import TextBatch
from curator_text.chat.messages import ROLES, Message, alternate, of_alpaca, of_list, of_prompt, system_of

_NEEDED = {"openai": ("messages",), "sharegpt": ("conversations",), "alpaca": ("instruction", "output"),
           "prompt_response": ("prompt", "response")}
_WHERE_THERE = {"openai": (), "sharegpt": ("system",), "alpaca": ("input", "system", "history"),
                "prompt_response": ("system",)}
MEASURES = {"turns": pa.int32(), "chat_chars": pa.int64(), "answer_chars": pa.int64(), "empty_turns": pa.int32(),
            "unknown_roles": pa.int32(), "tool_calls": pa.int32(), "other_parts": pa.int32(),
            "first_role": pa.string(), "roles_alternate": pa.bool_(), "answered": pa.bool_()}


def messages_type(tools: bool) -> pa.DataType:
    names = ("role", "content", "tool_calls") if tools else ("role", "content")
    return pa.list_(pa.struct([(name, pa.string()) for name in names]))


@dataclass(kw_only=True)
class Chat(Stage):
    """Bring conversations and instructions into one layout, `messages`, and say what is wrong with them.

    Adds `messages` (list of `role`, `content`; roles `system`, `user`, `assistant`, `tool`, others in lower case
    as they are), and of each conversation `turns` (messages but the system's), `chat_chars` (characters of all),
    `answer_chars` (of the last message, 0 if it is not the assistant's), `empty_turns` (blank ones that call no
    tool), `unknown_roles`, `tool_calls` (messages that call tools), `other_parts` (pictures and the like, which
    are left out), `first_role` (behind the system's), `roles_alternate` (user and assistant in turn, the user
    first; a tool's answers before the assistant's) and `answered` (the last message is the assistant's, and says
    or calls something). All null where there is no conversation. What cannot be read leaves on `failed`. The rule
    set `chat` drops by these columns.

    `layout`: `openai`: a column `messages`; `sharegpt`: `conversations`, and `system`; `alpaca`: `instruction`,
    `input`, `output`, and `system`, `history`; `prompt_response`: `prompt` and `response`, texts or messages, and
    `system`. Lists may be JSON, and their messages have `role` and `content` or `from` and `value`. `columns`:
    other names for these columns (`{prompt: question, response: answer}`). `tools`: give messages a third field,
    `tool_calls` (JSON, null where there are none).

    Source: platform.openai.com/docs/api-reference/chat; ShareGPT and Alpaca as LLaMA-Factory reads them
    (data/README.md); TRL, docs/source/dataset_formats.md.
    """

    layout: Literal["openai", "sharegpt", "alpaca", "prompt_response"] = "openai"
    columns: dict[str, str] = field(default_factory=dict)
    tools: bool = False

    sparse = ("empty_turns", "unknown_roles", "tool_calls", "other_parts")

    def __post_init__(self) -> None:
        if self.layout not in _NEEDED:
            raise ValueError(f"layout must be one of {', '.join(_NEEDED)}, got {self.layout!r}")
        known = _NEEDED[self.layout] + _WHERE_THERE[self.layout]
        if unknown := sorted(set(self.columns) - set(known)):
            raise ValueError(f"columns: {unknown[0]!r} is none of the columns of {self.layout}, which are "
                             f"{', '.join(known)}")

    def contract(self) -> Contract:
        return Contract(needs={self.columns.get(name, name): None for name in _NEEDED[self.layout]},
                        adds={"messages": messages_type(self.tools), **MEASURES})

    def process(self, batch: TextBatch) -> Outputs:
        names = {name: self.columns.get(name, name) for name in _NEEDED[self.layout] + _WHERE_THERE[self.layout]}
        values = {name: batch.column(column) if column in batch.columns else [None] * len(batch)
                  for name, column in names.items()}
        found = [self._messages({name: column[at] for name, column in values.items()}) for at in range(len(batch))]
        failed = [isinstance(one, str) for one in found]
        good = [one for one in found if not isinstance(one, str)]
        rows = [dict.fromkeys(MEASURES) if one is None else measures(one) for one in good]
        out = batch.filter([not one for one in failed]).with_columns({
            "messages": pa.array([self._fields(one) for one in good], messages_type(self.tools)),
            **{name: pa.array([row[name] for row in rows], kind) for name, kind in MEASURES.items()}})
        outputs = Outputs(out=out)
        if any(failed):
            outputs["failed"] = batch.filter(failed).with_error([one for one in found if isinstance(one, str)])
        return outputs

    def _messages(self, row: dict[str, Any]) -> list[Message] | str | None:
        """The conversation of a row, None where it has none, what is wrong with it where it cannot be read."""
        try:
            if self.layout == "alpaca":
                return of_alpaca(row)
            if self.layout == "prompt_response":
                return of_prompt(row)
            value = row[_NEEDED[self.layout][0]]
            if value is None:
                return None
            return system_of(row) + of_list(value)
        except ValueError as error:
            return f"ValueError: {error}"

    def _fields(self, messages: list[Message] | None) -> list[dict[str, str | None]] | None:
        if messages is None:
            return None
        return [{"role": one.role, "content": one.content, **({"tool_calls": one.calls} if self.tools else {})}
                for one in messages]


def measures(messages: list[Message]) -> dict[str, Any]:
    """The columns of one conversation."""
    turns = [one for one in messages if one.role != "system"]
    last = messages[-1] if messages and messages[-1].role == "assistant" else None
    return {"turns": len(turns), "chat_chars": sum(len(one.content) for one in messages),
            "answer_chars": len(last.content) if last else 0,
            "empty_turns": sum(not one.content.strip() and one.calls is None and not one.others for one in turns),
            "unknown_roles": sum(one.role not in ROLES for one in messages),
            "tool_calls": sum(one.calls is not None for one in messages),
            "other_parts": sum(one.others for one in messages),
            "first_role": turns[0].role if turns else None, "roles_alternate": alternate(messages),
            "answered": last is not None and bool(last.content.strip() or last.calls)}
