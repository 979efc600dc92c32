"""Chat templates in Jinja, rendered in its sandbox as transformers does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from curator.api.errors import CuratorError
from curator.models.loading import fetch

EXTRA = "pip install 'curator-text[chat]'"
_NAMES = ("chat_template.jinja", "tokenizer_config.json")


def compiled(source: str, where: str, date: str | None) -> Any:
    """A template. `date`: what it is told of today, as `2024-02-03`.

    Raises:
        CuratorError: it is none, or Jinja is missing.
    """
    try:
        import jinja2
        from jinja2 import ext, nodes
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise CuratorError(f"jinja2 is wanted and cannot be imported ({error}): {EXTRA}") from error

    class Generation(ext.Extension):
        """`{% generation %}` marks what the assistant says; here it stands for what is inside."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[Generation, ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _clock(date)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise CuratorError(f"the chat template of {where} cannot be read: {error}") from error


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)


def _clock(date: str | None) -> Callable[[str], str]:
    from datetime import datetime

    def now(form: str) -> str:
        if date is None:
            _raise("the template asks for the date of today, and a text must be the same each time it is made: "
                   "say one by `date`")
        return datetime.fromisoformat(date).strftime(form)

    return now


def of_tokenizer(name: str, variant: str) -> tuple[str, dict[str, str]]:
    """The template of a tokenizer (a folder, a `tokenizer_config.json`, `organisation/name` on the hub), and its
    special tokens. `variant`: which template, where there are several by name.

    Raises:
        CuratorError: it has none.
    """
    path = Path(name)
    if path.is_file():
        files = {path.name: path}
    elif path.is_dir():
        files = {one: path / one for one in _NAMES if (path / one).is_file()}
    elif name.startswith((".", "/", "~")) or name.partition("@")[0].count("/") != 1:
        raise CuratorError(f"there is no tokenizer {name!r}: neither a file nor a folder (from {Path.cwd()}); one "
                           "on the Hugging Face hub is written organisation/name")
    else:
        files = {"tokenizer_config.json": Path(fetch(f"{name}:tokenizer_config.json"))}
    config: dict[str, Any] = {}
    if (file := files.get("tokenizer_config.json") or (path if path.suffix == ".json" else None)) is not None:
        try:
            config = json.loads(Path(file).read_text(encoding="utf-8"))
        except ValueError as error:
            raise CuratorError(f"{str(file)!r} is no tokenizer_config.json that can be read: {error}") from error
    beside = files.get("chat_template.jinja")
    template = beside.read_text(encoding="utf-8") if beside is not None else config.get("chat_template")
    if isinstance(template, list):
        template = {one["name"]: one["template"] for one in template}.get(variant)
    if template is None and not path.exists():  # newer repositories have it in a file of its own
        template = Path(fetch(f"{name}:chat_template.jinja")).read_text(encoding="utf-8")
    if not isinstance(template, str):
        raise CuratorError(f"the tokenizer {name!r} has no chat template {variant!r}: give one by `template`")
    return template, {key: _token(value) for key, value in config.items() if key.endswith("_token") and value}


def _token(value: Any) -> str:
    return value["content"] if isinstance(value, dict) else str(value)
