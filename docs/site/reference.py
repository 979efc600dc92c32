"""The reference: every stage of every pack, the commands, and what `curator` exports, from docstrings."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

import curator
from curator.cli.main import main
from curator.recipe.describe import doc_of, facts, meanings, prose
from curator.recipe.parameters import REQUIRED, parameters
from curator.registry import packs
from curator.registry.packs import Factory, Pack

TITLES = {"core": "Stages of the core", "text": "Stages of the text pack", "image": "Stages of the image pack",
          "audio": "Stages of the audio pack", "video": "Stages of the video pack", "dedup": "Stages for copies"}
TOGETHER = {"decontaminate": "dedup"}  # a pack that is told on the page of another
COLUMNS = ("needs", "adds", "removes", "ports")
KINDS = {"source": "Sources", "stage": "Stages", "sink": "Sinks"}


def pages() -> dict[str, str]:
    """The pages by their names."""
    told: dict[str, list[Pack]] = {}
    for pack in packs.installed():
        told.setdefault(TOGETHER.get(pack.name, pack.name), []).append(pack)
    found = {f"reference/{name}.md": of_packs(TITLES[name], several) for name, several in told.items() if name in TITLES}
    return {**found, "reference/commands.md": of_commands(), "reference/python.md": of_python()}


def of_packs(title: str, several: list[Pack]) -> str:
    """All stages, recipes and rule sets of packs."""
    stages = {name: factory for pack in several for name, factory in pack.stages().items()}
    parts = [f"# {title}", f"Of {', '.join(dict.fromkeys(pack.distribution for pack in several))}. "
             "`curator stages NAME` tells the same of one."]
    for kind, heading in KINDS.items():
        of_kind = {name: factory for name, factory in stages.items() if packs.kind_of(factory) == kind}
        if of_kind:
            parts.append(f"## {heading}")
        for name, factory in of_kind.items():
            parts += of_stage(name, factory)
    for kind, heading in (("recipes", "Recipes"), ("rules", "Rule sets")):
        found = [resource for resource in packs.resources(kind) if resource.pack in several]
        if found:
            parts += [f"## {heading}", table(("name", "what it does"), (
                (f"`{one.name}`", described(one.path.read_text(encoding="utf-8"))) for one in found))]
    return "\n\n".join(parts) + "\n"


def of_stage(name: str, factory: Factory) -> Iterator[str]:
    known, said = parameters(factory), meanings(factory)
    yield f"### {name}"
    yield safe(prose(doc_of(factory), {parameter.name for parameter in known}))
    if known:
        yield table(("parameter", "type", "default", ""), (
            (f"`{p.written}`", f"`{p.type_name.replace(' | ', ' or ')}`",
             "required" if p.default is REQUIRED else f"`{p.default!r}`", said.get(p.name, "")) for p in known))
    yield table(("", ""), ((what, code(value) if what in COLUMNS else value) for what, value in facts(name, factory)))


def code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", "))


def described(text: str) -> str:
    import yaml

    return str(yaml.safe_load(text).get("description", "")).strip().partition("\n")[0]


def of_commands() -> str:
    """Every command with its options, as `--help` shows them."""
    parts = ["# Commands", "What each says of itself: `curator COMMAND --help`."]
    for name, command in main.commands.items():
        inner = command.commands if isinstance(command, click.Group) else {}
        for words, one in {(name,): command, **{(name, sub): found for sub, found in inner.items()}}.items():
            context = click.Context(one, info_name=f"curator {' '.join(words)}", max_content_width=90, terminal_width=90)
            parts += [f"## curator {' '.join(words)}", f"```text\n{one.get_help(context)}\n```"]
    return "\n\n".join(parts) + "\n"


def of_python() -> str:
    """What `curator` exports: signature and docstring of each, and of the methods that are for users."""
    parts = ["# Python", "What `from curator import …` gives. How it is used: [Python](../python.md), [packs](../packs.md)."]
    for name in sorted(curator.__all__, key=lambda name: (name[0].isupper(), name)):
        parts += list(of_object(name, getattr(curator, name), "##"))
    return "\n\n".join(parts) + "\n"


def of_object(name: str, found: Any, level: str) -> Iterator[str]:
    yield f"{level} {name}"
    with contextlib.suppress(TypeError, ValueError):  # what has no signature is told by its words
        yield f"```python\n{name.rpartition('.')[2]}{inspect.signature(found)}\n```"
    own = vars(found).get("__doc__") if isinstance(found, type) else found.__doc__
    text = inspect.cleandoc(own or "")
    if text and not text.startswith(f"{name.rpartition('.')[2]}("):
        yield raises(safe(text))
    if isinstance(found, type) and level == "##" and not issubclass(found, Exception):
        for key, member in vars(found).items():
            method = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if inspect.isfunction(method) and not key.startswith("_") and method.__doc__:
                yield from of_object(f"{name}.{key}", method, "###")


def raises(text: str) -> str:
    """A docstring with `Raises:` as a list, and code indented by four as a block."""
    head, found, rest = text.partition("Raises:\n")
    if found:
        entries = re.findall(r"^ +(\w+): (.+(?:\n {6,}.+)*)", rest, re.MULTILINE)
        head += "Raises:\n\n" + "\n".join(f"- `{error}`: {' '.join(why.split())}" for error, why in entries)
    return head


def safe(text: str) -> str:
    """A docstring as Markdown: a tag in it is a word."""
    return "".join(part if number % 2 else part.replace("<", "&lt;").replace("*", "\\*")
                   for number, part in enumerate(re.split(r"(`[^`]*`)", text)))


def table(heads: tuple[str, ...], rows: Any) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in line) + " |" for line in lines)
