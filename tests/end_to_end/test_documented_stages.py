"""The Python of README and docs runs as it stands, and the stages that it defines keep the rules that `check_stage` knows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(`[\w./-]+`\n\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What stands before an excerpt: the names that its page takes for known.
BEFORE = """
from collections import Counter
from dataclasses import dataclass
import pyarrow as pa
from curator import Batch, Contract, Outputs, Reduce, Resources, Stage, read, stage, write
"""
CHECKED = """
from curator.testing import check_stage
given = {"id": ["a", "b", "c", "d"], "source": ["s"] * 4, "text": ["one", "two of them", "", "one"], "words": [1, 3, 0, 1]}
checked = []
for name, value in list(vars().items()):
    if isinstance(value, type) and issubclass(value, Stage) and value.__module__ == "__main__":
        value = value()
    if isinstance(value, Stage) and type(value).process is not Stage.process:  # else an excerpt of one
        needs = {*value.contract().needs, *(getattr(value, "columns", None) or ())}
        check_stage(value, Batch(pa.table({n: v for n, v in given.items() if n in needs | {"id", "source"}})))
        checked.append(name)
print("checked:", " ".join(checked))
"""


def blocks(page: Path) -> list[str]:
    """The page's Python, without whole files of a pack, which test_third_party_pack.py installs and runs."""
    return [code for path, code in BLOCK.findall(page.read_text(encoding="utf-8")) if not path]


FOUND = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("packs/*/README.md"))]
PAGES = {str(page.relative_to(ROOT)): page for page in FOUND if blocks(page)}


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs_and_its_stages_keep_the_rules(page, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.jsonl").write_text("".join(json.dumps({"text": f"{n} " * 100}) + "\n" for n in range(30)))
    script = tmp_path / "shown.py"
    for number, code in enumerate(blocks(PAGES[page])):  # each begins anew, in a folder without results
        script.write_text(BEFORE + code + CHECKED)
        done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"block {number}:\n{code}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        defined = re.findall(r"^class (\w+)\(|^@stage.*\ndef (\w+)", code, re.MULTILINE)
        shown = done.stdout.rpartition("checked:")[2].split()
        assert shown == [one or other for one, other in defined if (one or other) != "Shard"]  # it shows a `setup` only
        for old in tmp_path.glob("out*"):
            old.rename(tmp_path / f"done-{number}-{old.name}")
