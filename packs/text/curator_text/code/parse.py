"""Source code parsed: what cannot be, how many functions there are, and how many say what they do."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from curator.api.counts import Counts
from curator.api.errors import CuratorError
from curator.api.findings import Alarm, Finding
from curator.api.format import listing
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import TextBatch
from curator_text.code.languages import load_languages, table_digest

EXTRA = "pip install 'curator-text[code]'"
# What grammars call a definition of a function that has a name; abstract ones count.
FUNCTIONS = frozenset((
    "function_definition", "function_declaration", "function_item", "function_signature_item",
    "function_signature", "generator_function_declaration", "method_declaration", "method_definition",
    "abstract_method_signature",
    "constructor_declaration", "compact_constructor_declaration", "secondary_constructor",
    "local_function_statement", "method", "singleton_method", "function", "subroutine_declaration_statement"))
# What stands around a definition, and before it: a comment above them is the definition's.
_AROUND = frozenset((
    "export_statement", "decorated_definition", "template_declaration", "ambient_declaration"))
_BETWEEN = frozenset(("attribute_item", "annotation", "attribute_list", "decorator"))


class Parsed(NamedTuple):
    """`error_bytes`: of the text, in nodes that are errors; `errors`: those, and tokens that are missing."""

    error_bytes: int
    errors: int
    functions: int
    documented: int


class Grammar:
    """A tree-sitter grammar that is installed."""

    def __init__(self, language: Any) -> None:
        import tree_sitter

        self._parser = tree_sitter.Parser(language)
        kinds = {language.node_kind_for_id(number) for number in range(language.node_kind_count)
                 if language.node_kind_is_named(number)}
        names = " ".join(f"({kind}) @function" for kind in sorted(FUNCTIONS & kinds))
        self._query = tree_sitter.Query(language, f"(ERROR) @error (MISSING) @missing {names}")
        self._cursor = tree_sitter.QueryCursor

    def parse(self, text: str) -> Parsed:
        tree = self._parser.parse(text.encode())
        found = self._cursor(self._query).captures(tree.root_node)
        errors, reached = 0, 0
        for begin, end in sorted((node.start_byte, node.end_byte) for node in found.get("error", ())):
            errors += max(0, end - max(begin, reached))
            reached = max(reached, end)
        functions = found.get("function", ())
        return Parsed(errors, len(found.get("error", ())) + len(found.get("missing", ())), len(functions),
                      sum(map(is_documented, functions)))


def is_documented(node: Any) -> bool:
    """Whether a function begins with a string by itself, as in Python, or stands below a comment."""
    body = node.child_by_field_name("body")
    first = body.named_child(0) if body is not None and body.named_child_count else None
    if first is not None and first.type == "expression_statement" and first.named_child_count == 1 \
            and first.named_child(0).type in ("string", "concatenated_string"):
        return True
    while node.parent is not None and node.parent.type in _AROUND:
        node = node.parent
    before = node.prev_named_sibling
    while before is not None and before.type in _BETWEEN:
        node, before = before, before.prev_named_sibling
    # the line end behind some comments belongs to them
    return (before is not None and before.type.endswith("comment")
            and node.start_point[0] - before.end_point[0] <= 1)


@dataclass(kw_only=True)
class CodeParse(Stage):
    """Parse source code by tree-sitter: what cannot be parsed, functions, and how many are documented.

    Adds `code_errors` (int32), places that do not parse; `code_error_ratio` (float64), their bytes, of all;
    `code_functions` (int32), functions and methods that have a name; `code_docstring_ratio` (float64), how
    many of these begin with a string, as in Python, or stand directly below a comment, of all; null where
    there is no function. All null where there is no text, where no grammar is known or installed for the
    language, and where the text is too long.

    Needs `code_language`, as `text.code_signals` adds it. The extra `[code]` brings 23 grammars; any
    other counts as soon as its package is installed and the table names it
    (`tree-sitter-haskell`, for Haskell).

    `column`: the text. `language_column`: its language. `max_chars`: longest text; the tree of a million
    characters takes some 100 MB. `table`: a YAML of your own in place of `curator_text/code/languages.yaml`.

    Known difference: a parser that recovers tells a smaller share for one slip than a compiler, which tells
    all or nothing: `code_errors = 0` is what compiles as far as syntax goes. Source: tree-sitter,
    tree-sitter.github.io; the idea is that of StarCoder's data inspection (arXiv 2305.06161, 3.1).
    """

    column: str = "text"
    language_column: str = "code_language"
    max_chars: int = 1_000_000
    table: str | None = None

    timeout_s = 20.0
    batch_size = 64
    requires = {"tree_sitter": EXTRA}
    sparse = ("code_errors", "code_error_ratio", "code_functions", "code_docstring_ratio")

    def __post_init__(self) -> None:
        self.at_least(1, "max_chars")
        self.count_by = (self.language_column,)

    def contract(self) -> Contract:
        return Contract(needs=dict.fromkeys((self.column, self.language_column), pa.string()),
                        adds={"code_errors": pa.int32(), "code_error_ratio": pa.float64(),
                              "code_functions": pa.int32(), "code_docstring_ratio": pa.float64()})

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        load_languages(self.table)

    def parameters(self) -> dict[str, Any]:
        return super().parameters() | {"table": table_digest(self.table)}

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        grammars = load_languages(self.table).grammars
        seen = counts.by_value.get(self.language_column, {})
        modules = {module_of(grammars[name]) for name in seen if name in grammars}
        missing = sorted(name.replace("_", "-") for name in modules if importlib.util.find_spec(name) is None)
        if missing:
            yield Alarm("note", f"Stage {step} could not parse some languages: for them pip install "
                                f"{listing(missing)}.")

    def setup(self, ctx: Context) -> None:
        if importlib.util.find_spec("tree_sitter") is None:
            raise CuratorError(f"text.code_parse wants tree-sitter, which is not installed: {EXTRA}")
        self._names = load_languages(self.table).grammars
        self._grammars: dict[tuple[str, bool], Grammar | None] = {}

    def process(self, batch: TextBatch) -> TextBatch:
        texts, languages = batch.column(self.column), batch.column(self.language_column)
        endings: Sequence[str | None] = [None] * len(batch)
        if "extension" in batch.columns:
            endings = batch.column("extension")
        found = [self._parsed(text, language, ending == "tsx")
                 for text, language, ending in zip(texts, languages, endings, strict=True)]
        shares = [None if one is None else one.error_bytes / max(1, len(text.encode()))
                  for one, text in zip(found, texts, strict=True)]
        documented = [one.documented / one.functions if one and one.functions else None for one in found]
        return batch.with_columns({
            "code_errors": pa.array([one and one.errors for one in found], pa.int32()),
            "code_error_ratio": pa.array(shares, pa.float64()),
            "code_functions": pa.array([one and one.functions for one in found], pa.int32()),
            "code_docstring_ratio": pa.array(documented, pa.float64())})

    def _parsed(self, text: str | None, language: str | None, tsx: bool) -> Parsed | None:
        if text is None or language is None or language not in self._names or len(text) > self.max_chars:
            return None
        key = (self._names[language], tsx)
        if key not in self._grammars:
            self._grammars[key] = load_grammar(*key)
        grammar = self._grammars[key]
        return None if grammar is None else grammar.parse(text)


def module_of(grammar: str) -> str:
    """The module of a grammar's package."""
    return "tree_sitter_" + grammar.replace("-", "_")


def load_grammar(name: str, tsx: bool = False) -> Grammar | None:
    """The grammar of this name, None if it is not installed. `tsx`: TypeScript with elements of XML."""
    import tree_sitter

    if importlib.util.find_spec(module_of(name)) is None:
        return None
    module = importlib.import_module(module_of(name))
    plain = name.replace("-", "_")
    wanted = (f"language_{'tsx' if tsx else plain}", f"language_{plain}", "language")
    make = next(getattr(module, found) for found in wanted if hasattr(module, found))
    return Grammar(tree_sitter.Language(make()))
