"""The usual layouts of conversations and instructions as one: a list of messages with role and content."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user", "prompter": "user",
    "assistant": "assistant", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant", "model": "assistant",
    "bot": "assistant", "ai": "assistant", "function_call": "assistant",
    "tool": "tool", "function": "tool", "observation": "tool", "function_response": "tool", "tool_response": "tool",
    "ipython": "tool"}
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Message:
    """`calls`: what an assistant wants of tools, a list as JSON, None where it wants nothing. `others`: parts of the
    content that are no text (pictures, sound)."""

    role: str
    content: str
    calls: str | None = None
    others: int = 0


def of_list(value: Any) -> list[Message]:
    """Of a list of messages, or of one as JSON: OpenAI's `role` and `content` or ShareGPT's `from` and `value`.

    Raises:
        ValueError: it is no such list.
    """
    if isinstance(value, str):
        value = _of_json(value)
    if not isinstance(value, list):
        raise ValueError(f"a list of messages is wanted, not {type(value).__name__}")
    return [_message(number, one) for number, one in enumerate(value)]


def _of_json(text: str) -> Any:
    try:
        value = json.loads(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    except ValueError as error:
        raise ValueError(f"a list of messages is wanted, and this text is no JSON: {error}") from error
    return value


def _message(number: int, one: Any) -> Message:
    if not isinstance(one, dict):
        raise ValueError(f"message {number} is {type(one).__name__} and no mapping")
    role = one.get("role") if one.get("role") is not None else one.get("from")
    if not isinstance(role, str):
        raise ValueError(f"message {number} has no role: {sorted(one)}")
    content = one.get("content") if one.get("content") is not None else one.get("value")
    text, others = _content(number, content)
    calls = one.get("tool_calls") or ([one["function_call"]] if one.get("function_call") else None)
    if calls is not None and not isinstance(calls, str):
        calls = json.dumps(calls, ensure_ascii=False, sort_keys=True)
    return Message(_ROLES.get(role.strip().lower(), role.strip().lower()), text, calls, others)


def _content(number: int, content: Any) -> tuple[str, int]:
    """The text of a content, its texts joined by line ends where it is of several parts; and its other parts."""
    if content is None:
        return "", 0
    if isinstance(content, str):
        return content, 0
    if not isinstance(content, list):
        raise ValueError(f"the content of message {number} is {type(content).__name__}, neither text nor a list")
    texts, others = [], 0
    for part in content:
        said = part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None
        if isinstance(said, str):
            texts.append(said)
        else:
            others += 1
    return "\n".join(texts), others


def of_alpaca(row: dict[str, Any]) -> list[Message] | None:
    """Of `instruction`, `input`, `output`, and where they are there `system` and `history` (pairs of question and
    answer)."""
    if row["instruction"] is None and row["output"] is None:
        return None
    asked = "\n\n".join(part for part in (_text(row, "instruction"), _text(row, "input")) if part)
    made = system_of(row)
    history = row.get("history") or []
    for pair in _of_json(history) if isinstance(history, str) else history:
        if not (isinstance(pair, (list, tuple)) and len(pair) == 2
                and all(isinstance(one, (str, type(None))) for one in pair)):
            raise ValueError(f"history is a list of pairs of question and answer, not of {pair!r}")
        made += [Message("user", pair[0] or ""), Message("assistant", pair[1] or "")]
    made.append(Message("user", asked))
    return made + ([Message("assistant", _text(row, "output"))] if row["output"] is not None else [])


def of_prompt(row: dict[str, Any]) -> list[Message] | None:
    """Of `prompt` and `response`, each a text or a list of messages, and where it is there `system`."""
    if row["prompt"] is None and row["response"] is None:
        return None
    made = system_of(row)
    for name, role in (("prompt", "user"), ("response", "assistant")):
        value = row[name]
        if value is not None:
            made += [Message(role, value)] if isinstance(value, str) else of_list(value)
    return made


def system_of(row: dict[str, Any]) -> list[Message]:
    """The system's message of a column `system`, where it says something."""
    return [Message("system", text)] if (text := _text(row, "system")) else []


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {type(value).__name__} and no text")
    return value or ""


def alternate(messages: list[Message]) -> bool:
    """Whether, behind the system's, a user's message comes first, and then always the other side's; what tools
    answer stands between two of the assistant."""
    before = "system"
    allowed = {"system": ("system", "user"), "user": ("assistant",), "assistant": ("user", "tool"),
               "tool": ("assistant", "tool")}
    for message in messages:
        if message.role not in allowed.get(before, ()):
            return False
        before = message.role
    return before != "system"
