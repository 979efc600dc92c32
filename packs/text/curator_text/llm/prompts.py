"""Prompts as files: those of the pack, and a user's own."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from curator.models.prompts import columns_of
from curator_text.llm.forms import CLEAN, FORMS, Case, Pairs, Unfit
from curator_text.llm.pieces import Pieces, tokens_of


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """`prompt`: the question, with columns as `{name}`. `system`: what the model is told before. `options`:
    fields of the request (`temperature`, `max_tokens`).

    `pieces`: the text of the first column of the prompt is cut into pieces of so many tokens (`most`,
    `least`, `least_whole`), and the model asked about each.

    What is taken of an answer: `form`: what it must look like (`curator_text.llm.forms`). `announced`: the
    words that an answer of the form `announced` begins with. `pairs`: how many are kept of the form `pairs`.
    `clean`: what goes, `markdown` or `quotes`. `nothing`: the words that say that there is nothing to say.
    `least`: tokens that must be left. `whole`: an answer that was cut off is none.
    """

    prompt: str
    description: str = ""
    source: str = ""
    system: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    pieces: Pieces | None = None
    form: str = "text"
    announced: str | None = None
    pairs: Pairs | None = None
    clean: Sequence[str] = ()
    nothing: str | None = None
    least: int = 0
    whole: bool = False

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"there is no form {self.form!r} of an answer; there are {', '.join(FORMS)}")
        if (self.form == "announced") != bool(self.announced):
            raise ValueError("the form announced wants `announced`: the words that an answer begins with")
        if self.pairs and self.form != "pairs":
            raise ValueError("`pairs` belongs to the form pairs")
        if unknown := [name for name in self.clean if name not in CLEAN]:
            raise ValueError(f"clean: there is no {unknown[0]!r}; there are {', '.join(CLEAN)}")
        if self.pieces and (self.form == "score" or not columns_of(self.prompt)):
            raise ValueError("pieces want a prompt with a column, and answers that can be joined, so no "
                             "score")
        columns_of(self.prompt)

    def taken(self, answer: str, *, about: str, cut_off: bool,
              chance: str) -> tuple[str | None, float | None]:
        """What is kept of an answer, None where it says that there is nothing, and its score.

        `about`: the text it is about. `chance`: what decides where chance does, such as the record's id.

        Raises:
            Unfit: it is not what was asked for.
        """
        if self.nothing and answer.strip().strip(".!\"'*").casefold() == self.nothing.casefold():
            return None, None
        if self.whole and cut_off:
            raise Unfit("the answer was cut off at max_tokens")
        case = Case(announced=self.announced, text=about, pairs=self.pairs, chance=random.Random(chance))
        kept, score = FORMS[self.form](answer, case)
        for name in self.clean:
            kept = CLEAN[name](kept)
        if tokens_of(kept) < self.least:
            raise Unfit(f"the answer has some {tokens_of(kept)} tokens, fewer than {self.least}: "
                        f"{kept[:80]!r}")
        return kept, score


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
    if not isinstance(found, dict) or "prompt" not in found:
        raise ValueError(f"{task}: a prompt is a mapping with `prompt` and maybe {_keys(Prompt)}")
    for key, kind in (("pieces", Pieces), ("pairs", Pairs)):
        if found.get(key) is not None:
            found[key] = _made(kind, found[key], f"{task}: {key}")
    return _made(Prompt, found, task)


def _made(kind: type, found: Any, where: str) -> Any:
    known = {f.name for f in fields(kind)}
    wanted = {f.name for f in fields(kind)
              if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    if not isinstance(found, dict) or set(found) - known or wanted - set(found):
        raise ValueError(f"{where} is a mapping with `{'`, `'.join(sorted(wanted))}` and maybe {_keys(kind)}")
    return kind(**found)


def _keys(kind: type) -> str:
    return ", ".join(sorted(f.name for f in fields(kind) if f.default is not dataclasses.MISSING
                            or f.default_factory is not dataclasses.MISSING))
