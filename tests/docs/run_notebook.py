"""Run the cells of a notebook as a script, and compare what they print with what is stored: `run_notebook.py NOTEBOOK`.

A cell tagged `varies` shows times, and what only a notebook shows (pictures, displays) is not compared.
"""

import ast
import contextlib
import io
import json
import linecache
import sys


def run(path: str) -> list[str]:
    """The cells that print something else than what is stored."""
    with open(path, encoding="utf-8") as file:
        cells = [cell for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
    differ, space = [], vars(sys.modules["__main__"])
    for number, cell in enumerate(cells):
        source, name = "".join(cell["source"]), f"<cell {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)  # as a kernel does: the source can be read
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(ast.parse(source, name), name, "exec"), space)
        stored = "".join(text for output in cell["outputs"] if output.get("name") == "stdout" for text in output["text"])
        if printed.getvalue() != stored and "varies" not in cell["metadata"].get("tags", ()):
            differ.append(f"--- stored\n{stored}--- now\n{printed.getvalue()}")
    return differ


if __name__ == "__main__":
    different = run(sys.argv[1])
    print("\n".join(different))
    sys.exit(bool(different))
