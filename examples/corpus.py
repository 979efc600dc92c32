"""Write a corpus of real text that every Python installation holds, as JSON Lines.

    python examples/corpus.py corpus.jsonl

Three sources: the long descriptions of the installed packages, the language reference in `pydoc_data.topics`, and the
docstrings of the standard library, a document for each module and class. Real text has real flaws: stubs, tables, licences,
repeats.
"""

from __future__ import annotations

import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from pydoc_data.topics import topics

SKIPPED = {"site-packages", "__pycache__", "lib2to3", "idlelib", "test", "tests"}


def descriptions() -> Iterator[dict[str, str]]:
    """What installed packages say of themselves."""
    for found in distributions():
        name, text = found.metadata["Name"], found.metadata.get_payload()
        if name and isinstance(text, str) and text.strip():
            yield {"id": f"package/{name}", "text": text, "kind": "description"}


def reference() -> Iterator[dict[str, str]]:
    """The topics of Python's language reference."""
    for name, text in topics.items():
        yield {"id": f"topic/{name}", "text": text, "kind": "reference"}


def docstrings() -> Iterator[dict[str, str]]:
    """A document for each module of the standard library and each class in it: its docstring and those of its functions."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if SKIPPED & set(path.relative_to(root).parts):
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        tree = ast.parse(path.read_bytes())
        for node in (tree, *(n for n in tree.body if isinstance(n, ast.ClassDef))):
            functions = [n for n in node.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
            text = "\n\n".join(filter(None, (ast.get_docstring(n) for n in (node, *functions))))
            if text:
                yield {"id": f"docstring/{module}/{getattr(node, 'name', '')}", "text": text, "kind": "docstring"}


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "corpus.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for make in (descriptions, reference, docstrings):
            for record in make():
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
    print(f"{count:,} documents, {path.stat().st_size / 1e6:.1f} MB in {path}")


if __name__ == "__main__":
    main()
