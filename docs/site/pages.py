"""The pages of the site: which there are, in which order, and notebooks as Markdown."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).parent.parent
NAV = Path(__file__).with_name("nav.yaml")
MADE = ("index.md", "reference/")  # pages that are no files of docs/
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def navigation() -> list[tuple[str, list[str]]]:
    """The sections and their pages."""
    return [(title, [page for name in names for page in _pages(name)])
            for section in yaml.safe_load(NAV.read_text(encoding="utf-8")) for title, names in section.items()]


def _pages(name: str) -> list[str]:
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.glob(name)) if name.endswith("*") else [name]


def all_pages() -> set[str]:
    """Every page that lies in docs/."""
    return {str(path.relative_to(DOCS)) for kind in ("md", "ipynb") for path in DOCS.rglob(f"*.{kind}")
            if "site" not in path.relative_to(DOCS).parts and ".ipynb_checkpoints" not in path.parts}


def from_notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by their names."""
    parts, pictures = [], {}
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}-{number}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![what the cell shows]({name})")
            elif text := ANSI.sub("", shown(output)).strip("\n"):
                parts.append(f"```text\n{text}\n```")
    parts.append(f"This page is a notebook: `docs/tutorials/{path.name}`. It runs from a clone.")
    return "\n\n".join(parts) + "\n", pictures


def shown(output: dict[str, Any]) -> str:
    """The text of an output; a progress bar is none, for it is over."""
    if output["output_type"] == "display_data":
        return ""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
