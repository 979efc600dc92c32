"""A stage in words: what `curator stages NAME` prints."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from curator.api.stage import FunctionStage
from curator.recipe.parameters import REQUIRED, UNIONS, Parameter, parameters
from curator.registry import packs

if TYPE_CHECKING:
    from rich.table import Table

    from curator.api.stage import Stage
    from curator.registry.packs import Factory

TABLE_WIDTH = 76  # of all columns of a table in a docstring
NAMES = r"`\w+`(?:,\s`\w+`)*:\s"  # what an entry of a docstring on parameters begins with


def about(name: str, factory: Factory) -> Iterator[Any]:
    """All about a stage, as texts and tables."""
    yield f"{name} ({packs.kind_of(factory)}, version {factory.version}, {packs.described(factory)})"
    yield ""
    known, docs = parameters(factory), meanings(factory)
    yield prose(doc_of(factory), {p.name for p in known}) or "It has no description."
    yield from _parameters(known, docs)
    yield ""
    made = table("", "")
    for what, value in facts(name, factory):
        made.add_row(what, value)
    yield made
    module = inspect.getmodule(factory.function if isinstance(factory, FunctionStage) else factory)
    if module is not None and f"`{module.__name__}`" in doc_of(factory):
        yield from _tables(module)


def _parameters(known: Iterable[Parameter], docs: Mapping[str, str]) -> Iterator[Any]:
    """A line for each parameter, and below it what it means: beside each other they would not fit 80
    columns."""
    from rich.padding import Padding
    from rich.text import Text

    for number, p in enumerate(known):
        if not number:
            yield ""
            yield Text("parameters", style="bold")
        default = " (required)" if p.default is REQUIRED else f" = {p.default!r}"
        yield Padding(Text(f"{p.written}: {p.type_name}{default}"), (0, 0, 0, 2))
        if said := docs.get(p.name):
            yield Padding(Text(said), (0, 0, 0, 6))


def _tables(module: ModuleType) -> Iterator[Any]:
    """The tables of a module's docstring, which that of a stage refers to by the module's name."""
    for lines in re.findall(r"^\|.+\n\| ---.*\n(?:\|.*\n?)+", module.__doc__ or "", re.MULTILINE):
        heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")]
                           for line in lines.splitlines())
        made = table(*heads)
        for column in made.columns:  # the first one too: a row may be about many columns
            column.no_wrap, column.max_width = False, TABLE_WIDTH // len(heads)
        for row in rows:
            made.add_row(*row)
        yield ""
        yield module.__name__
        yield made


def facts(name: str, factory: Factory) -> Iterator[tuple[str, str]]:
    """What the engine knows of a stage with its usual parameters."""
    made = _example(factory)
    if isinstance(made, Exception):
        yield "columns", "depend on the parameters"
    else:
        contract = made.contract()
        needs = contract.needs if isinstance(contract.needs, Mapping) else dict.fromkeys(contract.needs)
        for what, columns in (("needs", needs), ("adds", contract.adds),
                              ("removes", dict.fromkeys(contract.removes))):
            if columns:
                yield what, ", ".join(f"{n} ({kind})" if kind is not None else n
                                      for n, kind in sorted(columns.items()))
    if packs.kind_of(factory) == "sink":
        yield "in recipes", f"write: {{{name.replace('to_', '', 1)}: {{…}}}}"
    ports = (factory if isinstance(made, Exception) else made).ports
    if ports != ("out",):
        yield "ports", ", ".join(ports) or "none"
    needed = {key: value for key, value in vars(factory.resources).items() if value}
    yield "resources", ", ".join(f"{key} {value:g}" for key, value in needed.items()) or "none"
    for key in ("batch_size", "timeout_s"):
        if getattr(factory, key) is not None:
            yield key, str(getattr(factory, key))


def _example(factory: Factory) -> Stage | Exception:
    """The stage with its defaults, and its required parameters by their names; or what it says against
    these."""
    def stand_in(p: Parameter) -> Any:
        hint = typing.get_args(p.hint)[0] if typing.get_origin(p.hint) in UNIONS else p.hint
        shown = f"<{p.name}>"
        by_type = {str: shown, list: [shown], tuple: (shown,), dict: {shown: "true"}, int: 1, float: 1.0}
        return by_type.get(typing.get_origin(hint) or hint)

    try:
        made = factory(**{p.name: stand_in(p) for p in parameters(factory) if p.default is REQUIRED})
        made.contract()
    except Exception as error:
        return error
    return made


def doc_of(factory: Factory) -> str:
    """Its own docstring; a dataclass without one has its signature there, which says nothing more."""
    doc = inspect.cleandoc(vars(factory).get("__doc__") or "")
    return "" if isinstance(factory, type) and doc.startswith(f"{factory.__name__}(") else doc


def prose(doc: str, names: set[str]) -> str:
    """The docstring to be wrapped anew, without the paragraphs on parameters, which stand in a table of their
    own."""
    kept = [p for p in doc.split("\n\n")
            if not ((named := re.match(NAMES, p)) and names.issuperset(_words(named[0])))]
    return "\n\n".join(p if "\n " in p or p.startswith(" ") else " ".join(p.split()) for p in kept)


def meanings(factory: Factory) -> dict[str, str]:
    """What the source says of each field: the comment on its line or above it, or its entry in the docstring:
    `name`: …, `one`, `two`: …

    A class without a word on a field of its base says what the base says.
    """
    found: dict[str, str] = {}
    for base in reversed(factory.__mro__[1:] if isinstance(factory, type) else ()):
        if "__dataclass_fields__" in vars(base):
            found |= meanings(base)
    for entry in re.finditer(rf"({NAMES})(.+?)(?=\n\s*\n|[.;,]?\s+{NAMES}|\Z)", doc_of(factory), re.DOTALL):
        found |= dict.fromkeys(_words(entry[1]), " ".join(entry[2].split()).rstrip(".;,"))
    try:
        source = inspect.getsource(factory) if isinstance(factory, type) else ""
        above: list[str] = []
        for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline):
            field = re.match(r"\s*(\w+)\s*:", token.line)
            if token.type == tokenize.COMMENT and field:
                found[field[1]] = token.string.lstrip("# ")
            elif token.type == tokenize.COMMENT:
                above.append(token.string.lstrip("# "))
            elif token.type != tokenize.NL:
                if field and above:
                    found[field[1]] = " ".join(above)
                above = []
    except (OSError, tokenize.TokenError, SyntaxError):  # no source at hand: the docstring has to do
        pass
    return found


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def table(*headers: str) -> Table:
    """A table without lines, whose first column is not wrapped; without a header if all its titles are
    empty."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(headers),
                 header_style="bold")
    for index, header in enumerate(headers):
        made.add_column(header, overflow="fold", no_wrap=index == 0)
    return made
