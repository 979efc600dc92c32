"""YAML as a tree that remembers its lines, and the list of what is wrong with it.

Plain values are read by YAML 1.2's core rules (`no` is a text, `1e-3` a number; `007` is a text here), and
every scalar keeps the text it was written as, so that a parameter that wants text gets what the user typed.
Anchors, aliases and tags are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from curator.api.errors import RecipeError

DEPTH_MAX = 40  # deeper than any recipe; keeps a hostile file from exhausting the stack
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the second where PyYAML was built without libyaml
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,99}|[1-9][0-9]{0,2}(_[0-9]{3})+)\Z")
_FLOAT = re.compile(r"(?=.*[.eE])[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False,
          ".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}


@dataclass
class Item:
    """A piece of YAML: `value` is a dict or list of items, or a text, number, bool or None.

    `text`: a scalar as it was written. `line` is that of the key where there is one; 0 means that `file` says
    it all.
    """

    value: Any
    file: str = "recipe"
    line: int = 0
    text: str = ""
    quoted: bool = False

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    def plain(self) -> Any:
        """The values alone."""
        if self.is_map:
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if self.is_list else self.value

    def beside(self, value: Any) -> Item:
        """Another value at the same place."""
        return Item(value, self.file, self.line)


@dataclass
class Problems:
    """What is wrong with a recipe, collected so that the user sees all of it at once."""

    found: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, item: Item, path: str, message: str) -> None:
        """Note a problem; `path` leads to it in the recipe, `steps[2].drop.rules`."""
        self.found.append((item.file, item.line, f"{item.place}: {path}: {message}" if path else
                           f"{item.place}: {message}"))

    def check(self) -> None:
        """Raise everything that was found, in the order of the lines, as one RecipeError."""
        if self.found:
            raise RecipeError("\n".join(dict.fromkeys(text for _, _, text in sorted(self.found))))


def parse(text: str, file: str, problems: Problems, numbered: bool = True) -> Item:
    """The tree of a YAML document; keys that come twice are noted. Without `numbered`, `file` alone is the
    place of all of it.

    Raises:
        RecipeError: it is not YAML, it is empty, or it has anchors, tags or several documents.
    """
    try:
        events = yaml.parse(text, Loader=_LOADER)
        next(events)  # the start of the stream
        if isinstance(next(events), yaml.StreamEndEvent):
            raise RecipeError(f"{file}: the recipe is empty; it needs at least read and write")
        root = _Tree(events, file, problems, numbered).item(next(events), 0)
        next(events)  # the end of the document
        if not isinstance(next(events), yaml.StreamEndEvent):
            raise RecipeError(f"{file}: there is a second document after ---; write one recipe a file")
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        context = f" ({error.context})" if error.context else ""
        raise RecipeError(f"{file}{line}: this is not YAML: {error.problem}{context}; look at the "
                          "indentation, and put texts with : or # or quotes into quotes") from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        reason = " ".join(str(error).split())
        raise RecipeError(f"{file}: this is not YAML: {reason}; save it as UTF-8 text") from None
    return root


def from_text(text: str, file: str) -> Item:
    """The value of `--set key=value`: a scalar, or YAML in brackets, braces or quotes; if that is not YAML, a
    text."""
    text = text.strip()
    if text[:1] not in ("[", "{", '"', "'"):
        return Item(scalar(text), file, text=text)
    problems = Problems()
    try:
        item = parse(text, file, problems, numbered=False)
        problems.check()
    except RecipeError:
        return Item(text, file, text=text, quoted=True)
    if item.is_map or item.is_list:
        item.text = text  # where the parameter is a text after all
    return item


def scalar(text: str) -> Any:
    """The value of a plain scalar."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.match(text) and len(text) < 150:
        return int(text)
    number = float(text) if _FLOAT.match(text) else None
    return text if number is None or math.isinf(number) else number


@dataclass
class _Tree:
    """Makes items of the events of a document."""

    events: Iterator[yaml.Event]
    file: str
    problems: Problems
    numbered: bool

    def item(self, event: yaml.Event, depth: int) -> Item:
        line = event.start_mark.line + 1
        place = f"{self.file}:{line}"
        if getattr(event, "anchor", None):
            raise RecipeError(f"{place}: recipes have no anchors and aliases (& and *); put texts that begin "
                              "with * or & into quotes, and write repeated parts out")
        if getattr(event, "tag", None):
            raise RecipeError(f"{place}: recipes have no tags; put texts that begin with ! into quotes")
        if depth > DEPTH_MAX:
            raise RecipeError(f"{place}: more than {DEPTH_MAX} levels of nesting")
        made = Item(None, self.file, line if self.numbered else 0)
        if isinstance(event, yaml.ScalarEvent):
            made.text, made.quoted = event.value, event.style in ("'", '"', "|", ">")
            made.value = event.value if made.quoted else scalar(event.value)
        elif isinstance(event, yaml.SequenceStartEvent):
            made.value = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                made.value.append(self.item(event, depth + 1))
        else:
            made.value = self._mapping(depth + 1)
        return made

    def _mapping(self, depth: int) -> dict[str, Item]:
        mapping: dict[str, Item] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            key, item = self.item(event, depth), self.item(next(self.events), depth)
            if key.is_map or key.is_list:
                raise RecipeError(f"{key.place}: a name is expected before the colon, not a list or mapping; "
                                  "put texts with { or [ into quotes")
            if key.text in mapping:
                self.problems.add(key, "",
                                  f"{key.text!r} is given twice here, first on line {mapping[key.text].line}")
            else:
                item.line = key.line
                mapping[key.text] = item
        return mapping
