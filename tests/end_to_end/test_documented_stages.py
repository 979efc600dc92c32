"""The Python of README and docs runs as it stands, and the stages that it defines keep the rules that `check_stage` knows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from curator.worker.fork_server import ONE_THREAD

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


# Each block in a process of its own, forked from one that has imported what nearly all of them do; Arrow asks for pandas, if it is
# there, with the first array.
EACH_ALONE = """
import os, pathlib, runpy, sys, traceback
with __import__("contextlib").suppress(ImportError):
    import pandas
import duckdb, curator.run.run, curator.pipeline.formats, curator.testing
def alone(script):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        said = os.open(f"{script}.said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.argv[:] = [script]
        runpy.run_path(script, run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
for script in sys.argv[1:]:
    if alone(script):
        sys.exit(f"{open(script).read()}\\n{open(script + '.said').read()[-4000:]}")
    for old in pathlib.Path().glob("out*"):
        old.rename(f"done-{pathlib.Path(script).stem}-{old.name}")
"""


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs_and_its_stages_keep_the_rules(page, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.jsonl").write_text("".join(json.dumps({"text": f"{n} " * 100}) + "\n" for n in range(30)))
    shown = blocks(PAGES[page])
    scripts = [tmp_path / f"shown{number}.py" for number in range(len(shown))]
    for script, code in zip(scripts, shown, strict=True):  # each begins anew, in a folder without results
        script.write_text(BEFORE + code + CHECKED)
    done = subprocess.run([sys.executable, "-c", EACH_ALONE, *scripts], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env={**ONE_THREAD, **os.environ})
    assert done.returncode == 0, done.stderr
    for script, code in zip(scripts, shown, strict=True):
        defined = re.findall(r"^class (\w+)\(|^@stage.*\ndef (\w+)", code, re.MULTILINE)
        checked = Path(f"{script}.said").read_text().rpartition("checked:")[2].split()
        assert checked == [one or other for one, other in defined if (one or other) != "Shard"]  # it shows a `setup` only
