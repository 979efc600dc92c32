"""Prompts as files: those of the pack, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from curator.models.prompts import columns_of
from curator_text.llm.forms import FORMS


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """`prompt`: the question, with columns as `{name}`. `system`: what the model is told before. `form`: what
    an answer must look like (`curator_text.llm.forms`). `announced`: the words that an answer of the form
    `announced` begins with. `options`: fields of the request (`temperature`, `max_tokens`)."""

    prompt: str
    name: str = ""
    description: str = ""
    source: str = ""
    system: str | None = None
    form: str = "text"
    announced: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"there is no form {self.form!r} of an answer; there are {', '.join(FORMS)}")
        if (self.form == "announced") != bool(self.announced):
            raise ValueError("the form announced wants `announced`: the words that an answer begins with")
        columns_of(self.prompt)


def packaged() -> list[str]:
    """The names of the prompts that the pack has."""
    names = [file.name for file in files("curator_text").joinpath("prompts").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def read_prompt(task: str) -> Prompt:
    """By the name of one that the pack has, or the path of a YAML file.

    Raises:
        ValueError: there is none, or it has other keys; says which there are.
    """
    import yaml

    if task.endswith((".yaml", ".yml")):
        path = Path(task)
        if not path.is_file():
            raise ValueError(f"there is no file {task!r} (from {Path.cwd()})")
        text = path.read_text("utf-8")
    elif task in packaged():
        text = files("curator_text").joinpath("prompts", f"{task}.yaml").read_text("utf-8")
    else:
        raise ValueError(f"there is no task {task!r}; there are {', '.join(packaged())}, or name a YAML file")
    found = yaml.safe_load(text)
    known = {f.name for f in fields(Prompt)}
    if not isinstance(found, dict) or "prompt" not in found or set(found) - known:
        raise ValueError(f"{task}: a prompt is a mapping with `prompt` and maybe "
                         f"{', '.join(sorted(known - {'prompt'}))}")
    return Prompt(**found)
