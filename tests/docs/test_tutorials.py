"""The tutorials: notebooks that run from a clone, and print what is stored in them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
QUICK = "5-your-own-stage"


@pytest.mark.parametrize("notebook", [
    pytest.param(path, id=path.stem, marks=() if path.stem == QUICK else pytest.mark.slow) for path in TUTORIALS])
def test_a_tutorial_prints_what_is_stored(notebook):
    ran = subprocess.run([sys.executable, str(Path(__file__).with_name("run_notebook.py")), str(notebook)],
                         capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_tutorial_runs_in_a_kernel():
    """There is no other test of what is different in a notebook: displays, and classes of cells in workers."""
    client, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(TUTORIALS[-1], as_version=4)
    client.NotebookClient(notebook, timeout=200).execute()
    assert "7 written" in json.dumps(notebook)


def test_tutorials_have_what_their_cells_show_and_no_paths_of_a_machine():
    assert [path.stem[0] for path in TUTORIALS] == ["1", "2", "3", "4", "5"]
    for path in TUTORIALS:
        text = path.read_text(encoding="utf-8")
        cells = json.loads(text)["cells"]
        assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code" and "print(" in "".join(cell["source"])), path
        assert '"output_type": "error"' not in text, path
        assert "/tmp/" not in text, path
