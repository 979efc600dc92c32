"""Run the tutorials in a kernel, and store what their cells show: `make tutorials`.

    python docs/site/store.py [NOTEBOOK…]

Wants nbclient and ipykernel, as `pip install -e '.[docs]'` brings them.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent.parent / "tutorials"
DROPPED = "application/vnd"  # kinds of output that only a live page can show


def store(path: Path) -> float:
    """Run a notebook, and write it with what its cells show. Gives the seconds that it took."""
    notebook = nbformat.read(path, as_version=4)
    began = time.monotonic()
    NotebookClient(notebook, timeout=300, coalesce_streams=True, resources={"metadata": {"path": str(HERE)}}).execute()
    took = time.monotonic() - began
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which would differ in each commit
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            for kind in [kind for kind in data if kind.startswith(DROPPED)]:
                del data[kind]
            for place, key in ((output, "text"), (data, "text/plain"), (data, "text/html")):
                if key in place:
                    place[key] = re.sub(r"/\S*?/tmp\w{8}/|/tmp/tmp\w{8}/", "…/", place[key])
    nbformat.write(notebook, path)
    return took


if __name__ == "__main__":
    for name in map(Path, sys.argv[1:] or sorted(HERE.glob("*.ipynb"))):
        print(f"{name.name}: {store(name):.1f} s", flush=True)
